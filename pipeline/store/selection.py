"""Choosing documents to act on, with what their newest run left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage
from pipeline.store.reports import Scope

__all__ = ["Chosen", "UnitTotals", "choose", "lock_documents", "unit_totals"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A document and its newest run.

    Attributes:
        digest: Of the document's bytes as they stand now.
        degraded: Done units that were answered by a fallback: of the run, and of the live one where the run came to
            nothing.
    """

    document_id: UUID
    uri: str
    collection_id: int
    collection: str
    digest: str
    media_type: str
    run_id: int
    batch_id: int | None
    priority: int
    state: RunState
    incomplete: bool
    degraded: int


class UnitTotals(NamedTuple):
    """The units of a stage of a run.

    Attributes:
        reusable: Done ones whose result another run may take over.
        degraded: Those of the reusable that a fallback answered.
    """

    total: int
    done: int
    reusable: int
    degraded: int


def choose(session: Session, scope: Scope, after: int | None, limit: int) -> list[Chosen]:
    """A portion of the documents in a scope, by their newest run's id.

    Args:
        after: The last run's id of the portion before; None for the first.
    """
    rows = session.execute(
        _CHOOSE,
        {
            "collection_id": scope.collection_id,
            "batch_ids": list(scope.batch_ids) if scope.batch_ids is not None else None,
            "document_ids": list(scope.document_ids) if scope.document_ids is not None else None,
            "after": after or 0,
            "limit": limit,
        },
    )
    return [
        Chosen(
            document_id=row.document_id,
            uri=row.source_uri,
            collection_id=row.collection_id,
            collection=row.collection,
            digest=row.blob_digest,
            media_type=row.media_type,
            run_id=row.id,
            batch_id=row.batch_id,
            priority=row.priority,
            state=RunState(row.state),
            incomplete=row.incomplete,
            degraded=row.degraded,
        )
        for row in rows
    ]


_CHOOSE = text(
    """
    select run.id, run.document_id, run.batch_id, run.priority, run.state, run.incomplete,
           document.source_uri, document.collection_id, document.blob_digest, document.media_type,
           collection.name as collection,
           (select count(*) from unit
            where unit.run_id in (run.id, live.id) and unit.state = 'done' and unit.degraded) as degraded
    from run
    join document on document.id = run.document_id
    join collection on collection.id = document.collection_id
    left join run live on live.id = document.live_run_id and live.blob_digest = run.blob_digest
                          and run.state in ('failed', 'cancelled')
    where run.id > :after
      and (cast(:collection_id as bigint) is null or run.collection_id = :collection_id)
      and (cast(:batch_ids as bigint[]) is null or run.batch_id = any(cast(:batch_ids as bigint[])))
      and (cast(:document_ids as uuid[]) is null or run.document_id = any(cast(:document_ids as uuid[])))
      and not exists (select from run newer where newer.document_id = run.document_id and newer.id > run.id)
    order by run.id
    limit :limit
    """
)


def lock_documents(session: Session, document_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Lock documents against another enqueue or requeue; returns the newest run of each that is still there."""
    # Two statements: what the lock waited for is seen by the second.
    locked = list(session.scalars(_LOCK, {"ids": list(document_ids)}))
    rows = session.execute(_NEWEST, {"ids": locked})
    return {row.document_id: row.id for row in rows}


_LOCK = text("select id from document where id = any(cast(:ids as uuid[])) order by id for no key update")
_NEWEST = text(
    "select document_id, max(id) as id from run where document_id = any(cast(:ids as uuid[])) group by document_id"
)


def unit_totals(session: Session, run_ids: Sequence[int]) -> dict[int, dict[Stage, UnitTotals]]:
    """The units of each run and stage."""
    found: dict[int, dict[Stage, UnitTotals]] = {}
    for row in session.execute(_TOTALS, {"runs": list(run_ids)}):
        found.setdefault(row.run_id, {})[Stage(row.stage)] = UnitTotals(row.total, row.done, row.reusable, row.degraded)
    return found


_TOTALS = text(
    """
    select run_id, stage, count(*) as total,
           count(*) filter (where state = 'done') as done,
           count(*) filter (where state = 'done' and input_digest is not null) as reusable,
           count(*) filter (where state = 'done' and input_digest is not null and degraded) as degraded
    from unit where run_id = any(cast(:runs as bigint[]))
    group by run_id, stage
    """
)
