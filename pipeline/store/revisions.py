"""Which revision the schema is at, and which one this program needs: asked by every command, so without alembic.

Alembic takes longer to import than the question takes to answer; what brings the schema there is in ``migrate.py``.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, Engine, text

import pipeline
from pipeline.domain.errors import ConfigError, ServiceUnavailable

__all__ = ["SCRIPTS", "check_schema", "head_revision", "refuse_newer", "schema_revision"]

SCRIPTS = Path(pipeline.__file__).resolve().parent.parent / "migrations"


def head_revision() -> str:
    """The revision that this version of the program needs."""
    known = _revisions()
    heads = known.keys() - known.values()
    if len(heads) != 1:
        raise ConfigError(f"there are {len(heads)} newest migrations in {str(SCRIPTS)!r}", "install Tidegate again")
    return heads.pop()


def schema_revision(engine: Engine) -> str | None:
    """The revision the database is at; None when it holds no schema of ours."""
    with engine.connect() as connection:
        return _revision(connection)


def check_schema(engine: Engine) -> None:
    """Make sure that the schema is the one this program needs.

    Raises:
        ServiceUnavailable: It is older or missing; the remedy names ``tidegate db upgrade``.
        ConfigError: It is newer than this program.
    """
    with engine.connect() as connection:
        found = refuse_newer(connection)
    head = head_revision()
    if found != head:
        state = "holds no Tidegate schema" if found is None else f"is at schema {found!r}"
        raise ServiceUnavailable(f"the database {state}, this version needs {head!r}", "run: tidegate db upgrade")


def refuse_newer(connection: Connection) -> str | None:
    """The revision the database is at; None when it holds no schema of ours.

    Raises:
        ConfigError: It is newer than this program.
    """
    found = _revision(connection)
    connection.rollback()
    if found is not None and found not in _revisions():
        raise ConfigError(
            f"the database is at schema {found!r}, which this version of Tidegate does not know",
            "upgrade Tidegate on this host to the version that made it",
        )
    return found


def _revision(connection: Connection) -> str | None:
    if connection.scalar(text("select to_regclass('alembic_version')")) is None:
        return None
    found: str | None = connection.scalar(text("select version_num from alembic_version"))
    return found


@cache
def _revisions() -> dict[str, str | None]:
    """The scripts' revisions, each with the one that it follows."""
    return dict(_read(path) for path in sorted((SCRIPTS / "versions").glob("[0-9]*.py")))


def _read(path: Path) -> tuple[str, str | None]:
    wanted = {"revision", "down_revision"}
    found = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id in wanted
    }
    return found["revision"], found["down_revision"]
