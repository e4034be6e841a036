"""By which embedding space each collection is searched, and how far it is on its way to another. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.domain.space import Space
from pipeline.store.reader import Reader

__all__ = ["CollectionSpace", "space_reports"]


@dataclass(frozen=True, slots=True)
class CollectionSpace:
    """How a collection stands.

    Attributes:
        active: The space that it is searched by; None before its first document.
        next: The one that it is moving to; None when it is not moving.
        ready: Of its searchable documents, those that have their vectors in the next space (0 when there is none).
        documents: Its searchable documents (0 when it is not moving: nobody counts then).
    """

    collection: str
    active: Space | None
    next: Space | None
    ready: int = 0
    documents: int = 0


def space_reports(reader: Reader, collection: str | None = None, *, counted: bool = True) -> list[CollectionSpace]:
    """How collections stand, by name.

    Args:
        collection: Only that one; None for all.
        counted: Whether to count documents, which takes a while where there are many.
    """
    found = []
    for row in reader.rows(_SPACES, {"collection": collection}):
        active, coming = _space(row, "active"), _space(row, "next")
        ready = documents = 0
        if coming is not None and counted:
            ((ready, documents),) = reader.rows(_COUNTS, {"collection": row.id, "next": coming.id})
        found.append(CollectionSpace(row.name, active, coming, ready, documents))
    return found


def _space(row: Any, which: str) -> Space | None:
    """A space of a row whose columns are named ``{which}_…``; None where there is none."""
    space_id, model, dim, embedder = (getattr(row, f"{which}_{name}") for name in ("id", "model", "dim", "embedder"))
    return None if space_id is None else Space(space_id, model, dim, embedder)


_SPACES = """
    select collection.id, collection.name,
           active.id as active_id, active.model as active_model, active.dim as active_dim,
           active.embedder as active_embedder,
           next.id as next_id, next.model as next_model, next.dim as next_dim, next.embedder as next_embedder
    from collection
    left join embedding_space active on active.id = collection.active_space_id
    left join embedding_space next on next.id = collection.next_space_id
    where cast(%(collection)s as text) is null or collection.name = %(collection)s
    order by collection.name
"""

_COUNTS = """
    select count(*) filter (where run.space_id = %(next)s) as ready, count(*) as documents
    from document join run on run.id = document.live_run_id and run.state = 'done'
    where document.collection_id = %(collection)s
"""
