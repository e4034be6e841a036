"""Status: where every document is, how far the stages are, and who works on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any
from uuid import UUID

from pipeline.domain.run import ACTIVE_RUN_STATES, RunState
from pipeline.domain.unit import QUEUES, Queue, Stage, queue_of
from pipeline.sources import source_uri
from pipeline.store.fleet import Pulse, fresh_workers, pulse
from pipeline.store.overview import (
    Degraded,
    ParkedAt,
    StageTotals,
    count_states,
    degraded_units,
    parked_by_stage,
    stage_totals,
)
from pipeline.store.reader import Reader, Reads
from pipeline.store.reports import (
    DocumentRow,
    StageCounts,
    documents_named,
    list_documents,
    scope_of,
    waiting_by_stage,
)

__all__ = ["DocumentStatus", "Process", "QueueLoad", "Status", "UnitCounts", "status"]

MAX_LISTED = 1000


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """Units of one run; ``total`` grows as pages and chunks become known."""

    total: int
    done: int
    parked: int
    failed: int


@dataclass(frozen=True, slots=True)
class DocumentStatus:
    """One document's newest run.

    Attributes:
        stage: The first stage with anything open, or the one that failed; None when there is none.
        pages: None until the document has been parsed.
        degraded: Units that were answered by a target that is not the first of its chain.
        live: Whether search finds this document, by this run or an earlier one.
        attempts: Model calls, those of earlier runs included.
        models: The targets that answered for this run.
        seconds: From the first claim to the end (or None).
    """

    id: UUID
    path: str
    collection: str
    batch: str | None
    run: int
    state: RunState
    stage: Stage | None
    pages: int | None
    chunks: int
    units: UnitCounts
    degraded: int
    incomplete: bool
    live: bool
    failure_kind: str | None
    failure_detail: str | None
    resume_at: datetime | None
    attempts: int
    models: tuple[str, ...]
    created_at: datetime
    finished_at: datetime | None
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        failure = {"kind": self.failure_kind, "detail": self.failure_detail} if self.failure_kind else None
        return {
            "id": str(self.id),
            "path": self.path,
            "collection": self.collection,
            "batch": self.batch,
            "run": self.run,
            "state": self.state.value,
            "stage": self.stage.value if self.stage else None,
            "pages": self.pages,
            "chunks": self.chunks,
            "units": {
                "total": self.units.total,
                "done": self.units.done,
                "parked": self.units.parked,
                "failed": self.units.failed,
            },
            "degraded": self.degraded,
            "incomplete": self.incomplete,
            "live": self.live,
            "failure": failure,
            "resume_at": _iso(self.resume_at),
            "attempts": self.attempts,
            "models": list(self.models),
            "created_at": _iso(self.created_at),
            "finished_at": _iso(self.finished_at),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Process:
    """A process whose heartbeat is fresh."""

    pid: int
    host: str
    role: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """Units waiting for a queue's workers, and how many workers take from it."""

    waiting: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Status:
    """The whole answer. ``counts`` covers every document in the scope, ``documents`` the newest of them."""

    documents: list[DocumentStatus]
    counts: dict[RunState, int]
    processes: list[Process]
    queues: dict[Queue, QueueLoad]
    stages: list[StageTotals]
    parked: list[ParkedAt]
    notes: list[str]
    beat: Pulse = field(default_factory=Pulse)

    @property
    def workers(self) -> int:
        return sum(1 for process in self.processes if process.role == "worker")

    @property
    def active(self) -> int:
        """Documents that are not at an end."""
        return sum(count for state, count in self.counts.items() if state in ACTIVE_RUN_STATES)

    @property
    def alarms(self) -> list[str]:
        """Why what is under way does not go on, each with the command that helps."""
        if not self.active:
            return []
        alarms = []
        if not self.workers:
            alarms.append("no worker is running:  tidegate up")
        idle = [queue.value for queue, load in self.queues.items() if load.waiting and not load.consumers]
        if idle and self.workers:
            names = ",".join(idle)
            alarms.append(f"nobody takes from {', '.join(idle)}:  tidegate up, or tidegate worker --queues {names}")
        if trouble := self.beat.trouble:
            alarms.append(f"{trouble}:  tidegate up, or tidegate beat")
        return alarms

    def to_json(self) -> dict[str, Any]:
        return {
            "documents": [document.to_json() for document in self.documents],
            "counts": {state.value: count for state, count in self.counts.items()},
            "workers": self.workers,
            "processes": [
                {"pid": one.pid, "host": one.host, "role": one.role, "queues": list(one.queues)}
                for one in self.processes
            ],
            "queues": {
                queue.value: {"waiting": load.waiting, "consumers": load.consumers}
                for queue, load in self.queues.items()
            },
            "stages": {
                one.stage.value: {
                    "total": one.total,
                    "done": one.done,
                    "parked": one.parked,
                    "failed": one.failed,
                    "last_minute": one.lately,
                }
                for one in self.stages
            },
            "parked": [
                {
                    "stage": one.stage.value,
                    "documents": one.documents,
                    "resume_at": _iso(one.resume_at),
                    "primary_only": one.primary_only,
                }
                for one in self.parked
            ],
            "notes": [*self.notes, *self.alarms],
        }


def status(
    reads: Reads,
    *,
    collection: str | None = None,
    batch: str | None = None,
    document: str | None = None,
    document_ids: Sequence[UUID] | None = None,
    failed: bool = False,
    limit: int = MAX_LISTED,
) -> Status:
    """Where documents are.

    Args:
        document: One document, as people name it, or those that came out of an archive.
        document_ids: These documents (what an ``enqueue --wait`` waits for).
        failed: List only those whose newest run failed; the counts cover all the same.
        limit: Most documents to list, the newest first.

    Raises:
        UsageError: There is no such collection, batch or document.
        ServiceUnavailable: Postgres is away.
    """
    with reads() as reader:
        if document is not None:
            document_ids = [one.id for one in documents_named(reader, document, as_uri=source_uri(document))]
        scope = scope_of(reader, collection=collection, batch=batch, document_ids=document_ids, failed=failed)
        counts, superseded = count_states(reader, scope)
        stages = stage_totals(reader, scope, superseded)
        parked = parked_by_stage(reader, scope) if counts[RunState.PARKED] else []
        degraded = degraded_units(reader, scope)
        rows = list_documents(reader, scope, limit)
        processes = _processes(reader)
        # Where everything was counted, what waits has been counted too.
        waiting = waiting_by_stage(reader) if superseded is None else {one.stage.value: one.pending for one in stages}
        queues = _queues(waiting, processes)
        beat = pulse(reader)
    return Status(
        documents=[_document(row) for row in rows],
        counts=counts,
        processes=processes,
        queues=queues,
        stages=stages,
        parked=parked,
        notes=_notes(degraded, batch, collection),
        beat=beat,
    )


def stage_of(state: RunState, stages: Sequence[StageCounts]) -> Stage | None:
    """The first stage with anything open, or the one that failed."""
    by_stage = {counts.stage: counts for counts in stages}
    if state is RunState.QUEUED:
        return Stage.PARSE
    for stage in Stage:
        counts = by_stage.get(stage.value)
        if counts is None:
            continue
        if state is RunState.FAILED and counts.failed:
            return stage
        if state is RunState.PARKED and counts.parked:
            return stage
        if state is RunState.RUNNING and counts.total > counts.done + counts.failed:
            return stage
    return None


def _document(row: DocumentRow) -> DocumentStatus:
    seconds = (
        round((row.finished_at - row.started_at).total_seconds(), 3) if row.finished_at and row.started_at else None
    )
    return DocumentStatus(
        id=row.id,
        path=row.uri,
        collection=row.collection,
        batch=row.batch,
        run=row.run_id,
        state=row.state,
        stage=stage_of(row.state, row.stages),
        pages=row.pages,
        chunks=row.chunks,
        units=UnitCounts(
            total=sum(one.total for one in row.stages),
            done=sum(one.done for one in row.stages),
            parked=sum(one.parked for one in row.stages),
            failed=sum(one.failed for one in row.stages),
        ),
        degraded=sum(one.degraded for one in row.stages),
        incomplete=row.incomplete,
        live=row.live,
        failure_kind=row.failure_kind,
        failure_detail=row.failure_detail,
        resume_at=row.resume_at if row.state is RunState.PARKED else None,
        attempts=row.attempts,
        models=row.models,
        created_at=row.created_at,
        finished_at=row.finished_at,
        seconds=seconds,
    )


def _processes(reader: Reader) -> list[Process]:
    return [Process(one.pid, one.host, one.role, one.queues) for one in fresh_workers(reader)]


def _queues(by_stage: Mapping[str, int], processes: Sequence[Process]) -> dict[Queue, QueueLoad]:
    waiting = dict.fromkeys(QUEUES, 0)
    for stage, units in by_stage.items():
        waiting[queue_of(Stage(stage))] += units
    return {
        queue: QueueLoad(waiting[queue], sum(1 for one in processes if queue.value in one.queues)) for queue in QUEUES
    }


def _notes(degraded: Degraded, batch: str | None, collection: str | None) -> list[str]:
    if not degraded.units:
        return []
    label = batch or degraded.batch
    # Batches of several collections may have one label, today's date for one.
    named = [("--batch", label), ("--collection", collection)]
    whose = " ".join(f"{option} {quote(value)}" for option, value in named if value) or "--batch LABEL"
    were = "unit was" if degraded.units == 1 else "units were"
    return [f"{degraded.units:,} {were} answered by a fallback:  tidegate requeue {whose} --degraded"]


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
