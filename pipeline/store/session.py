"""Engines and sessions: where Postgres' own errors become ours, and where JSON is made storable.

Other text is made storable by the connection's adapter (``pipeline.store.postgres.dump_safe_text``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.text import safe_text
from pipeline.store.postgres import dump_safe_text, read_address, translated

__all__ = [
    "Engine",
    "Session",
    "Sessions",
    "hold_snapshot",
    "make_engine",
    "make_sessions",
    "safe_json",
    "transact",
]

Sessions = sessionmaker[Session]

T = TypeVar("T")

STANDS_STILL_S = 30.0
"""Far above what a transaction of ours does between two statements, on a machine that is overrun too."""
_DEADLOCK_TRIES = 8


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
    address = read_address(url)

    def translate(context: ExceptionContext) -> BaseException | None:
        # The pool's ping handles its own failure: it connects again.
        return None if context.is_pre_ping else translated(context.original_exception, address.name)

    engine = create_engine(
        "postgresql+psycopg://",
        poolclass=_Pool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout_s,
        pool_pre_ping=True,
        # Statements' parameters are documents and prompts.
        hide_parameters=True,
        json_serializer=_dump_json,
        connect_args={
            **address.arguments,
            "connect_timeout": connect_timeout_s,
            "application_name": application_name,
            "options": address.options(
                first=f"-c idle_in_transaction_session_timeout={round(stands_still_s * 1000)}", last="-c timezone=UTC"
            ),
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
        },
    )
    event.listen(engine, "connect", lambda connection, _record: dump_safe_text(connection))
    event.listen(engine, "handle_error", translate, retval=True)
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


def _dump_json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(safe_json(value), ensure_ascii=False, separators=(",", ":"))
    # json.dumps escapes the controls that Postgres refuses as \u00XX; lone surrogates stand as they are.
    if "\\u00" in text or safe_text(text) != text:
        return json.dumps(safe_json(value), ensure_ascii=False, separators=(",", ":"))
    return text
