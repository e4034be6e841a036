"""Who this installation is."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store.schema import Installation

__all__ = ["read_installation"]


def read_installation(session: Session) -> Installation:
    """The single row that the first migration writes.

    Raises:
        ServiceUnavailable: It is not there: the schema was made by something else than ``tidegate db upgrade``.
    """
    row = session.scalars(select(Installation)).one_or_none()
    if row is None:
        raise ServiceUnavailable("the database holds no installation row", "make the schema with: tidegate db upgrade")
    return row
