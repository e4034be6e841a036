"""What the database server is, and whether it takes writes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

__all__ = ["ServerVersions", "server_versions"]


@dataclass(frozen=True, slots=True)
class ServerVersions:
    """Versions for people; ``pgvector`` is None where this database has not got it."""

    postgres: str
    pgvector: str | None
    read_only: bool


def server_versions(session: Session) -> ServerVersions:
    """Ask the server."""
    postgres = session.scalar(text("show server_version")) or "?"
    pgvector = session.scalar(text("select extversion from pg_extension where extname = 'vector'"))
    read_only = session.scalar(text("show transaction_read_only")) == "on"
    return ServerVersions(str(postgres).split(" ", 1)[0], pgvector, read_only)
