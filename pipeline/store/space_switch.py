"""A collection between two embedding spaces: searched by one whole, while the next is being filled beside it.

A run that is published under another model than its collection is searched by brings along the vectors that its texts
have in the active space, so that a search by these goes on finding them. Once every live document is in the next
space, the collection switches, by one row.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from pipeline.domain.space import Space
from pipeline.store.schema import Collection, Run
from pipeline.store.spaces import read_space

__all__ = [
    "Switched",
    "active_spaces",
    "drop_carried",
    "enter_space",
    "switch_spaces",
]


@dataclass(frozen=True, slots=True)
class Switched:
    """A collection is searched by another space from now on."""

    collection: str
    space: str


def enter_space(session: Session, run: Run) -> None:
    """A run with vectors is being made live: its space becomes its collection's first, or its next one."""
    if run.space_id is None:
        return
    own = Collection.id == run.collection_id
    # A switch waits for us, or we for it: either it sees this document, or we see its space.
    active = session.scalar(select(Collection.active_space_id).where(own).with_for_update(read=True, key_share=True))
    if active is None:
        session.execute(
            update(Collection)
            .where(own, Collection.active_space_id.is_(None))
            .values(active_space_id=run.space_id)
            .execution_options(synchronize_session=False)
        )
        active = session.scalar(select(Collection.active_space_id).where(own))
    if active != run.space_id:
        session.execute(
            update(Collection)
            .where(own, Collection.next_space_id.is_distinct_from(run.space_id))
            .values(next_space_id=run.space_id)
            .execution_options(synchronize_session=False)
        )
        session.execute(_CARRY, {"run": run.id, "own": run.space_id, "active": active})


_CARRY = text(
    """
    insert into embedding (space_id, chunk_id, text_digest, vector)
    select distinct on (chunk.id) known.space_id, chunk.id, known.text_digest, known.vector
    from chunk
    join embedding own on own.chunk_id = chunk.id and own.space_id = :own
    join embedding known on known.space_id = :active and known.text_digest = own.text_digest
    where chunk.run_id = :run
    on conflict do nothing
    """
)


def switch_spaces(session: Session) -> list[Switched]:
    """Switch the collections all of whose live documents are in their next space."""
    switched = []
    moving = select(Collection).where(Collection.next_space_id.is_not(None)).order_by(Collection.id)
    for collection in session.scalars(moving.with_for_update().execution_options(populate_existing=True)).all():
        standing = session.execute(_STANDING, {"collection": collection.id, "next": collection.next_space_id}).one()
        if standing.begun and not standing.behind and collection.next_space_id is not None:
            collection.former_space_id = collection.active_space_id
            collection.active_space_id = collection.next_space_id
            switched.append(Switched(collection.name, str(read_space(session, collection.next_space_id))))
        if not (standing.begun and standing.behind):
            collection.next_space_id = None
    session.flush()
    return switched


_STANDING = text(
    """
    with live as (
        select run.space_id
        from document join run on run.id = document.live_run_id and run.state = 'done'
        where document.collection_id = :collection
    )
    select exists (select from live where space_id is distinct from cast(:next as bigint)) as behind,
           exists (select from live where space_id = :next) as begun
    """
)


def drop_carried(session: Session, limit: int) -> int:
    """After a switch: delete a portion of the vectors that were brought along; returns how many.

    Those that a generation was made with go when it goes.
    """
    row = session.execute(
        select(Collection.id, Collection.former_space_id).where(Collection.former_space_id.is_not(None)).limit(1)
    ).first()
    if row is None:
        return 0
    values = {"collection": row.id, "former": row.former_space_id, "limit": limit}
    dropped = len(session.scalars(_DROP, values).all())
    if not dropped:
        session.execute(
            update(Collection)
            .where(Collection.id == row.id, Collection.former_space_id == row.former_space_id)
            .values(former_space_id=None)
            .execution_options(synchronize_session=False)
        )
    return dropped


_DROP = text(
    """
    delete from embedding where space_id = :former and chunk_id in (
        select embedding.chunk_id from embedding
        join chunk on chunk.id = embedding.chunk_id and chunk.collection_id = :collection
        join run on run.id = chunk.run_id and run.space_id <> :former
        join collection on collection.id = :collection and collection.active_space_id <> :former
        where embedding.space_id = :former
        limit :limit
    )
    returning chunk_id
    """
)


def active_spaces(session: Session, collection_id: int | None) -> list[tuple[Space, list[int]]]:
    """The spaces that collections are searched by, each with the ids of its collections.

    Args:
        collection_id: Only that collection's; None for all that have one.
    """
    rows = session.execute(
        select(Collection.id, Collection.active_space_id)
        .where(
            Collection.active_space_id.is_not(None),
            Collection.id == collection_id if collection_id is not None else Collection.id.is_not(None),
        )
        .order_by(Collection.active_space_id, Collection.id)
    )
    by_space: dict[int, list[int]] = {}
    for row in rows:
        by_space.setdefault(row.active_space_id, []).append(row.id)
    return [(read_space(session, space_id), collections) for space_id, collections in by_space.items()]
