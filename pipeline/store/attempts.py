"""The history of model calls, read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pipeline.domain.unit import Stage
from pipeline.store.reader import Reader

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


def attempts_of(reader: Reader, document_id: UUID, stage: Stage | None = None) -> list[AttemptRow]:
    """Every attempt for a document, all its runs', in order of start."""
    values = {"document": document_id, "stage": stage.value if stage else None}
    return _read(reader, _OF_A_DOCUMENT, values)


def attempts_of_runs(reader: Reader, run_ids: Collection[int]) -> list[AttemptRow]:
    """Every attempt for some runs, in order of start."""
    return _read(reader, _OF_RUNS, {"runs": list(run_ids)})


def last_failures(reader: Reader, run_id: int, most: int = 3) -> list[AttemptRow]:
    """The newest attempts of a run that failed or were lost, the newest first, one a target and kind."""
    found: dict[tuple[str | None, str | None], AttemptRow] = {}
    for row in _read(reader, _FAILED, {"run": run_id}):
        found.setdefault((row.target, row.kind), row)
    return list(found.values())[:most]


def _read(reader: Reader, which: str, values: Mapping[str, Any]) -> list[AttemptRow]:
    return [AttemptRow(**row._asdict()) for row in reader.rows(_ATTEMPTS + which, values)]


_ATTEMPTS = """
    select attempt.id, coalesce(attempt.run_id, attempt.former_run_id, 0) as run_id, attempt.unit_id,
           attempt.stage, unit.ordinal, attempt.call_id, attempt.position, attempt.target, attempt.preset,
           attempt.outcome, attempt.kind, attempt.skipped, attempt.status, attempt.message, attempt.started_at,
           attempt.ttft_ms, attempt.duration_ms,
           coalesce(attempt.tokens_in, 0) as tokens_in, coalesce(attempt.tokens_out, 0) as tokens_out,
           coalesce(attempt.cost_usd, 0)::float as cost_usd, attempt.cooldown_until, attempt.worker
    from attempt left join unit on unit.id = attempt.unit_id
"""

_OF_A_DOCUMENT = """
    where attempt.id in (
        select own.id from attempt own join run on run.id = own.run_id where run.document_id = %(document)s
        union all select id from attempt where document_id = %(document)s
    )
      and (cast(%(stage)s as text) is null or attempt.stage = %(stage)s)
    order by attempt.started_at, attempt.id
"""

_OF_RUNS = """
    where attempt.run_id = any(cast(%(runs)s as bigint[]))
    order by attempt.started_at, attempt.id
"""

_FAILED = """
    where attempt.run_id = %(run)s and attempt.outcome in ('failed', 'lost')
    order by attempt.id desc limit 200
"""
