"""Bringing the schema to what this version of the program needs.

The scripts lie in the ``migrations`` package beside ``pipeline``; no ``alembic.ini`` and no working folder is needed.
"""

from __future__ import annotations

import io

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from psycopg import Error as PsycopgError
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from pipeline.domain.errors import ConfigError
from pipeline.store.revisions import SCRIPTS, refuse_newer

__all__ = ["schema_drift", "upgrade"]

_LOCK = 0x7469_6465_6761_7465
"""The advisory lock that one upgrade at a time holds: "tidegate" in ASCII."""


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the schema up to ``revision``; upgrades that run at once wait for each other.

    Raises:
        ConfigError: The server lacks pgvector or the right to create it, or its schema is newer than this program.
        ServiceUnavailable: Postgres does not answer.
    """
    # The lock is a session's own, outside any transaction, so that a migration may build an index concurrently.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as guard:
        guard.execute(text("select pg_advisory_lock(:key)"), {"key": _LOCK})
        try:
            with engine.connect() as connection:
                refuse_newer(connection)
                command.upgrade(_config(connection), revision)
                connection.commit()
        except DBAPIError as error:
            raise _explained(error) from error
        finally:
            guard.execute(text("select pg_advisory_unlock(:key)"), {"key": _LOCK})


def schema_drift(engine: Engine) -> str | None:
    """How the tables in the database differ from the ones the program declares; None when they don't."""
    with engine.connect() as connection:
        try:
            command.check(_config(connection))
        except CommandError as error:
            return str(error)
        finally:
            connection.rollback()
    return None


def _config(connection: Connection) -> Config:
    # Alembic says "No new upgrade operations detected." on its stdout.
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _explained(error: DBAPIError) -> Exception:
    original = error.orig
    code = original.sqlstate if isinstance(original, PsycopgError) else None
    if code in ("0A000", "58P01") and "vector" in str(original):
        return ConfigError(
            "the Postgres server has no pgvector extension",
            "install pgvector on it (0.8 or newer; the image pgvector/pgvector holds it)",
        )
    if code == "42501":
        return ConfigError(
            f"the database user may not make the schema: {str(original).splitlines()[0]}",
            "as an administrator: create extension vector; grant create on schema public to the user",
        )
    return error
