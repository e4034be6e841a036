"""Documents one by one, as people ask about them. Reads only, each a bounded number of statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from pipeline.domain.errors import UsageError
from pipeline.domain.run import RunState
from pipeline.store.parked import NEXT_TRY

__all__ = ["DocumentRow", "Scope", "StageCounts", "list_documents", "scope_of", "waiting_by_stage"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which documents are asked about: those whose newest run is in it. Everything None is all.

    Attributes:
        batch_ids: The batches of one label; collections may share labels.
        failed: Only documents whose newest run failed.
    """

    collection_id: int | None = None
    batch_ids: tuple[int, ...] | None = None
    document_ids: tuple[UUID, ...] | None = None
    failed: bool = False

    def condition(self) -> tuple[str, dict[str, Any]]:
        """What a query's ``run`` has to meet beside being its document's newest, as SQL, with its values."""
        parts = ""
        values: dict[str, Any] = {}
        if self.collection_id is not None:
            parts += " and run.collection_id = :collection_id"
            values["collection_id"] = self.collection_id
        if self.batch_ids is not None:
            parts += " and run.batch_id = any(cast(:batch_ids as bigint[]))"
            values["batch_ids"] = list(self.batch_ids)
        if self.document_ids is not None:
            parts += " and run.document_id = any(cast(:document_ids as uuid[]))"
            values["document_ids"] = list(self.document_ids)
        return parts, values


@dataclass(frozen=True, slots=True)
class StageCounts:
    """A run's units of one stage.

    Attributes:
        lately: Of the done, those that ended in the last minute.
    """

    stage: str
    total: int
    done: int
    parked: int
    failed: int
    leased: int
    degraded: int
    lately: int


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document and its newest run."""

    id: UUID
    uri: str
    collection: str
    batch: str | None
    run_id: int
    state: RunState
    live: bool
    incomplete: bool
    pages: int | None
    chunks: int
    attempts: int
    models: tuple[str, ...]
    failure_kind: str | None
    failure_detail: str | None
    resume_at: datetime | None
    queued_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    stages: tuple[StageCounts, ...]


def scope_of(
    session: Session,
    *,
    collection: str | None = None,
    batch: str | None = None,
    document_ids: Sequence[UUID] | None = None,
    failed: bool = False,
) -> Scope:
    """Look names up.

    Raises:
        UsageError: There is no such collection or batch.
    """
    collection_id = None
    if collection is not None:
        collection_id = session.scalar(text("select id from collection where name = :name"), {"name": collection})
        if collection_id is None:
            raise UsageError(f"there is no collection {collection!r}", "its name comes from enqueue --collection")
    batch_ids = None
    if batch is not None:
        batch_ids = tuple(
            session.scalars(
                text(
                    "select id from batch where label = :label"
                    " and (cast(:collection_id as bigint) is null or collection_id = :collection_id)"
                ),
                {"label": batch, "collection_id": collection_id},
            )
        )
        if not batch_ids:
            raise UsageError(f"there is no batch {batch!r}", "enqueue prints a batch's label, and status shows it")
    return Scope(collection_id, batch_ids, tuple(document_ids) if document_ids is not None else None, failed)


def list_documents(session: Session, scope: Scope, limit: int) -> list[DocumentRow]:
    """The newest documents, the newest run first."""
    condition, values = scope.condition()
    if scope.failed:
        condition += " and run.state = 'failed'"
    rows = list(
        session.execute(
            text(_LIST.format(condition=condition, next_try=NEXT_TRY)),
            {**values, "limit": limit},
        )
    )
    stages: dict[int, list[StageCounts]] = {}
    for row in session.execute(_STAGES, {"runs": [row.run_id for row in rows]}):
        counts = StageCounts(
            row.stage, row.total, row.done, row.parked, row.failed, row.leased, row.degraded, row.lately
        )
        stages.setdefault(row.run_id, []).append(counts)
    return [
        DocumentRow(
            id=row.id,
            uri=row.source_uri,
            collection=row.collection,
            batch=row.batch,
            run_id=row.run_id,
            state=RunState(row.state),
            live=row.live_run_id is not None,
            incomplete=row.incomplete,
            pages=row.page_count,
            chunks=row.chunks,
            attempts=row.attempts,
            models=tuple(row.models or ()),
            failure_kind=row.failure_kind,
            failure_detail=row.failure_detail,
            resume_at=row.resume_at,
            queued_at=row.queued_at,
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            stages=tuple(stages.get(row.run_id, ())),
        )
        for row in rows
    ]


def waiting_by_stage(session: Session) -> dict[str, int]:
    """Pending units of each stage, handed to the broker or not."""
    rows = session.execute(text("select stage, count(*) as units from unit where state = 'pending' group by stage"))
    return {row.stage: row.units for row in rows}


# The newest runs are looked for from the newest on, and the rest is read of those that are listed alone.
_LIST = """
    select document.id, document.source_uri, collection.name as collection, batch.label as batch,
           run.id as run_id, run.state, document.live_run_id, run.incomplete, run.page_count,
           run.failure_kind, run.failure_detail, {next_try} as resume_at, run.queued_at, document.created_at,
           run.started_at, run.finished_at,
           (select count(*) from chunk where chunk.run_id = run.id) as chunks,
           (select count(*) from attempt join run own on own.id = attempt.run_id
            where own.document_id = document.id) as attempts,
           (select array_agg(distinct answered_by) from unit
            where unit.run_id = run.id and unit.state = 'done' and answered_by is not null) as models
    from (
        select run.id from run
        where not exists (select from run newer where newer.document_id = run.document_id and newer.id > run.id)
          {condition}
        order by run.id desc limit :limit
    ) listed
    join run on run.id = listed.id
    join document on document.id = run.document_id
    join collection on collection.id = run.collection_id
    left join batch on batch.id = run.batch_id
    order by run.id desc
"""

_STAGES = text(
    """
    select run_id, stage, count(*) as total,
           count(*) filter (where state = 'done') as done,
           count(*) filter (where state = 'parked') as parked,
           count(*) filter (where state = 'failed') as failed,
           count(*) filter (where state = 'leased') as leased,
           count(*) filter (where degraded and state = 'done') as degraded,
           count(*) filter (where state = 'done' and finished_at > now() - interval '1 minute') as lately
    from unit where run_id = any(cast(:runs as bigint[]))
    group by run_id, stage
    """
)
