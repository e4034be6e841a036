"""The history of model calls, read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, any_, literal, select
from sqlalchemy.orm import Session

from pipeline.domain.unit import Stage
from pipeline.store.schema import Attempt, Run, Unit

__all__ = ["AttemptRow", "attempts_of", "attempts_of_runs", "last_failures"]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One call to one target, or the end of a call that nobody answered (``exhausted``).

    Attributes:
        ordinal: The unit's page or chunk; None when the unit is gone (its run was cancelled).
        skipped: Each with ``target``, ``reason``, ``until`` and ``detail``.
    """

    id: int
    run_id: int
    unit_id: int | None
    stage: str | None
    ordinal: int | None
    call_id: str
    position: int
    target: str | None
    preset: str | None
    outcome: str
    kind: str | None
    skipped: list[dict[str, Any]]
    status: int | None
    message: str | None
    started_at: datetime
    ttft_ms: int | None
    duration_ms: int | None
    tokens_in: int
    tokens_out: int
    cost_usd: float
    cooldown_until: datetime | None
    worker: str | None


def attempts_of(session: Session, document_id: UUID, stage: Stage | None = None) -> list[AttemptRow]:
    """Every attempt for a document, all its runs', in order of start."""
    query = (
        select(Attempt, Unit.ordinal)
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Unit, Unit.id == Attempt.unit_id)
        .where(Run.document_id == document_id)
        .order_by(Attempt.started_at, Attempt.id)
    )
    if stage is not None:
        query = query.where(Attempt.stage == stage.value)
    return [_row(attempt, ordinal) for attempt, ordinal in session.execute(query)]


def attempts_of_runs(session: Session, run_ids: Collection[int]) -> list[AttemptRow]:
    """Every attempt for some runs, in order of start."""
    query = (
        select(Attempt, Unit.ordinal)
        .outerjoin(Unit, Unit.id == Attempt.unit_id)
        .where(Attempt.run_id == any_(literal(list(run_ids), ARRAY(BigInteger))))
        .order_by(Attempt.started_at, Attempt.id)
    )
    return [_row(attempt, ordinal) for attempt, ordinal in session.execute(query)]


def last_failures(session: Session, run_id: int, most: int = 3) -> list[AttemptRow]:
    """The newest attempts of a run that failed or were lost, the newest first, one a target and kind."""
    query = (
        select(Attempt, Unit.ordinal)
        .outerjoin(Unit, Unit.id == Attempt.unit_id)
        .where(Attempt.run_id == run_id, Attempt.outcome.in_(("failed", "lost")))
        .order_by(Attempt.id.desc())
        .limit(200)
    )
    found: dict[tuple[str | None, str | None], AttemptRow] = {}
    for attempt, ordinal in session.execute(query):
        found.setdefault((attempt.target, attempt.kind), _row(attempt, ordinal))
    return list(found.values())[:most]


def _row(attempt: Attempt, ordinal: int | None) -> AttemptRow:
    return AttemptRow(
        id=attempt.id,
        run_id=attempt.run_id or 0,
        unit_id=attempt.unit_id,
        stage=attempt.stage,
        ordinal=ordinal,
        call_id=attempt.call_id,
        position=attempt.position,
        target=attempt.target,
        preset=attempt.preset,
        outcome=attempt.outcome,
        kind=attempt.kind,
        skipped=attempt.skipped,
        status=attempt.status,
        message=attempt.message,
        started_at=attempt.started_at,
        ttft_ms=attempt.ttft_ms,
        duration_ms=attempt.duration_ms,
        tokens_in=attempt.tokens_in or 0,
        tokens_out=attempt.tokens_out or 0,
        cost_usd=attempt.cost_usd or 0.0,
        cooldown_until=attempt.cooldown_until,
        worker=attempt.worker,
    )
