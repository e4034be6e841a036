"""Engines and sessions: where Postgres' own errors, and text that Postgres refuses, are dealt with once.

Text is made safe by the connection's own adapter for ``str``: whatever way a string takes to Postgres (a column, an
array, a literal in a query, COPY), it passes there. JSON passes the engine's serialiser.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from pipeline.domain.errors import ConfigError, ServiceUnavailable, TidegateError
from pipeline.domain.text import safe_text

__all__ = [
    "Engine",
    "Session",
    "Sessions",
    "database_name",
    "hold_snapshot",
    "make_engine",
    "make_sessions",
    "safe_json",
    "transact",
    "translated",
]

Sessions = sessionmaker[Session]

T = TypeVar("T")

STANDS_STILL_S = 30.0
"""Far above what a transaction of ours does between two statements, on a machine that is overrun too."""
_DEADLOCK_TRIES = 8
_START = "start the embedded services: tidegate up; or check TIDEGATE_DATABASE_URL"

# What a failed statement means for the caller, by SQLSTATE or by its class (the first two characters). An error
# without a code never reached the server: the connection failed. What is in neither table is not about the service
# (a constraint, a deadlock, a cancelled query, a bug) and passes as it is.
UNAVAILABLE: dict[str | None, tuple[str, str]] = {
    None: ("does not answer", _START),
    "08": ("closed the connection", _START),
    "28": ("refused the login", "check the user and the password in TIDEGATE_DATABASE_URL"),
    "3D": ("has no such database", "create it, or check TIDEGATE_DATABASE_URL"),
    "53": ("is out of resources", "free what it names (connections, disk or memory) on the Postgres server"),
    "58": ("had a system error", "look at the Postgres server's log"),
    "F0": ("can't read its configuration", "look at the Postgres server's log"),
    "57P01": ("is shutting down", _START),
    "57P02": ("is restarting after a crash", "try again in a moment"),
    "57P03": ("is starting", "try again in a moment"),
    "57P04": ("has dropped the database", "check TIDEGATE_DATABASE_URL"),
    "57P05": ("closed an idle session", "try again"),
    "25P03": ("ended a transaction that stood still", "try again"),
    "25006": ("is read-only", "point TIDEGATE_DATABASE_URL at the primary server"),
    "42P01": ("has no Tidegate tables", "make them: tidegate db upgrade"),
}
NOT_THE_SERVICE = frozenset({"27", "2F", "38", "39", "3B", "40", "54", "55", "57", "HV"})
"""Classes of operational errors that say nothing about the service: they pass as they are."""


def make_engine(
    url: str,
    *,
    pool_size: int = 5,
    application_name: str = "tidegate",
    connect_timeout_s: int = 5,
    pool_timeout_s: float = 30.0,
    stands_still_s: float = STANDS_STILL_S,
) -> Engine:
    """Make an engine for ``url``. Nothing connects before the first statement.

    Args:
        url: ``postgresql://…``; the psycopg 3 driver is filled in.
        pool_size: Most connections of this process; there is no overflow, so that the fleet's sum is known.
        application_name: What ``pg_stat_activity`` shows.
        connect_timeout_s: Wait for the server's answer to a connect.
        pool_timeout_s: Wait for a free connection of the pool.
        stands_still_s: Postgres ends a transaction in which nothing is said for so long: a process that is frozen, or
            a host that is gone without a word, holds its locks (a run's, the dispatcher's) against all others else.

    Raises:
        ConfigError: ``url`` is no Postgres URL. The text never holds the password.
    """
    engine = create_engine(
        _parsed(url),
        poolclass=_Pool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout_s,
        pool_pre_ping=True,
        # Statements' parameters are documents and prompts.
        hide_parameters=True,
        json_serializer=_dump_json,
        connect_args={
            "connect_timeout": connect_timeout_s,
            "application_name": application_name,
            "options": f"-c timezone=UTC -c idle_in_transaction_session_timeout={round(stands_still_s * 1000)}",
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
        },
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "handle_error", _translate, retval=True)
    return engine


def make_sessions(engine: Engine) -> Sessions:
    """Sessions whose objects stay readable after a commit; a use case opens one for each short transaction."""
    return sessionmaker(engine, expire_on_commit=False)


def transact(sessions: Sessions, work: Callable[[Session], T]) -> T:
    """Run ``work`` in one transaction; when Postgres ends it for a deadlock, run it again from the start.

    ``work`` must have no effect but on the session.
    """
    for _ in range(_DEADLOCK_TRIES - 1):
        try:
            with sessions.begin() as session:
                return work(session)
        except DBAPIError as error:
            if not isinstance(error.orig, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
                raise
    with sessions.begin() as session:
        return work(session)


def hold_snapshot(session: Session) -> None:
    """Have everything that this session reads be of one moment; call it before the first statement."""
    session.connection(execution_options={"isolation_level": "REPEATABLE READ"})


def database_name(url: URL) -> str:
    """Where a database is, for messages: host (or socket folder), port and name, and no user or password."""
    host = url.host or url.query.get("host") or "the local socket"
    if isinstance(host, tuple):
        host = ",".join(host)
    port = f":{url.port}" if url.port else ""
    return f"{host}{port}/{url.database or ''}"


def safe_json(value: Any) -> Any:
    """Make every string in a JSON value storable, keys included; a number that JSON can't write becomes null."""
    match value:
        case str():
            return safe_text(value)
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {safe_text(str(key)): safe_json(item) for key, item in value.items()}
        case list() | tuple():
            return [safe_json(item) for item in value]
        case _:
            return value


def translated(error: BaseException, where: str) -> TidegateError | None:
    """The error that a caller can act on; None when ``error`` says nothing about the service.

    Args:
        error: psycopg's exception.
        where: The database's name, for the text.
    """
    if not isinstance(error, psycopg.Error):
        return None
    code = error.sqlstate
    if code is None and not isinstance(error, psycopg.OperationalError):
        return None
    entry = UNAVAILABLE.get(code) or UNAVAILABLE.get(code[:2] if code else None)
    if entry is None:
        return None
    fact, remedy = entry
    return ServiceUnavailable(f"Postgres at {where} {fact}: {_first_line(error)}", remedy)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigError(
            "TIDEGATE_DATABASE_URL can't be read as a URL", "write it as postgresql://user:password@host:5432/name"
        ) from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigError(
            f"TIDEGATE_DATABASE_URL names {parsed.drivername!r}, which is not Postgres",
            "write it as postgresql://user:password@host:5432/name",
        )
    return parsed.set(drivername="postgresql+psycopg")


class _Pool(QueuePool):
    """Says in our own words that every connection is taken: Postgres is out of reach, for now."""

    def _do_get(self) -> ConnectionPoolEntry:
        try:
            return super()._do_get()
        except PoolTimeoutError:
            raise ServiceUnavailable(
                f"all {self.size()} Postgres connections of this process stayed taken for {self.timeout():g} s",
                "look at what Postgres is busy with; a process's connections are stated in worker/processes.py",
            ) from None


class _SafeStrDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Any:
        return super().dump(safe_text(obj))


def _prepare(connection: Any, _record: Any) -> None:
    connection.adapters.register_dumper(str, _SafeStrDumper)


def _translate(context: ExceptionContext) -> BaseException | None:
    # The pool's ping handles its own failure: it connects again.
    if context.is_pre_ping:
        return None
    where = database_name(context.engine.url) if context.engine is not None else "TIDEGATE_DATABASE_URL"
    return translated(context.original_exception, where)


def _dump_json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(safe_json(value), ensure_ascii=False, separators=(",", ":"))
    # json.dumps escapes the controls that Postgres refuses as \u00XX; lone surrogates stand as they are.
    if "\\u00" in text or safe_text(text) != text:
        return json.dumps(safe_json(value), ensure_ascii=False, separators=(",", ":"))
    return text


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
