"""Reading alone: one statement and its rows, over psycopg itself or over a session.

SQLAlchemy takes longer to import than most questions take to answer, so what people ask again and again
(``tidegate status``) is written in SQL and asked through a ``Reader``; see ``docs/decisions/0019-readers.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg.rows import namedtuple_row

from pipeline.store.postgres import dump_safe_text, read_address, translated

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["Reader", "Reads", "make_reads", "reader_of"]


class Reader(Protocol):
    """Somebody to ask. Statements name their values as ``%(name)s``; rows have their columns as attributes."""

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """All rows of the answer.

        Raises:
            ServiceUnavailable: Postgres is away.
        """
        ...


Reads = Callable[[], AbstractContextManager[Reader]]
"""Opens a reader for the time of a block."""


def make_reads(url: str, *, application_name: str = "tidegate", connect_timeout_s: int = 5) -> Reads:
    """Readers over connections of their own, one each; each statement sees what was committed before it.

    Raises:
        ConfigError: ``url`` is no Postgres URL.
    """
    address = read_address(url)

    @contextmanager
    def read() -> Iterator[Reader]:
        arguments: dict[str, Any] = {
            **address.arguments,
            "connect_timeout": connect_timeout_s,
            "application_name": application_name,
            "options": address.options(last="-c timezone=UTC -c default_transaction_read_only=on"),
        }
        with _ours(address.name):
            connection = psycopg.connect(**arguments, autocommit=True, row_factory=namedtuple_row)
        with connection:
            dump_safe_text(connection)
            yield _OfConnection(connection, address.name)

    return read


def reader_of(session: Session) -> Reader:
    """A reader within a session's transaction."""
    return _OfSession(session)


class _OfConnection:
    def __init__(self, connection: psycopg.Connection[Any], where: str) -> None:
        self._connection = connection
        self._where = where

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        with _ours(self._where):
            return self._connection.execute(statement.encode(), values).fetchall()


class _OfSession:
    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        return self._session.connection().exec_driver_sql(statement, dict(values) if values else None).all()


@contextmanager
def _ours(where: str) -> Iterator[None]:
    """Psycopg's errors as ours, as the engine's listener has them for sessions."""
    try:
        yield
    except psycopg.Error as error:
        ours = translated(error, where)
        if ours is None:
            raise
        raise ours from error
