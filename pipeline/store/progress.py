"""How far some runs have come: what ``enqueue --wait`` and the demo watch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ARRAY, BigInteger, any_, func, literal, select
from sqlalchemy.orm import Session

from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage
from pipeline.store.parked import next_try
from pipeline.store.schema import Run, Unit

__all__ = ["Progress", "RunGlance", "StageGlance", "read_progress"]


@dataclass(frozen=True, slots=True)
class RunGlance:
    """One run.

    Attributes:
        due: Parked, and about to be tried again.
    """

    state: RunState
    failure_kind: str | None
    failure_detail: str | None
    resume_at: datetime | None
    due: bool

    @property
    def ended(self) -> bool:
        return self.state not in (RunState.QUEUED, RunState.RUNNING, RunState.PARKED)


@dataclass(frozen=True, slots=True)
class StageGlance:
    """The units of one stage, as many as there are so far."""

    total: int
    done: int
    parked: int
    failed: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Some runs by id, and their units by stage."""

    runs: dict[int, RunGlance]
    stages: dict[Stage, StageGlance]

    def count(self, *states: RunState) -> int:
        return sum(run.state in states for run in self.runs.values())


def read_progress(session: Session, run_ids: Sequence[int]) -> Progress:
    """Look at runs; those that are gone are left out."""
    # One array instead of a parameter a run: there may be more of these than a statement takes.
    wanted = any_(literal(list(run_ids), ARRAY(BigInteger)))
    runs = session.execute(
        select(
            Run.id,
            Run.state,
            Run.failure_kind,
            Run.failure_detail,
            next_try().label("resume_at"),
            func.coalesce(next_try() <= func.now(), False).label("due"),
        ).where(Run.id == wanted)
    )
    glances = {
        row.id: RunGlance(RunState(row.state), row.failure_kind, row.failure_detail, row.resume_at, row.due)
        for row in runs
    }
    units = session.execute(
        select(
            Unit.stage,
            func.count().label("total"),
            func.count().filter(Unit.state == "done").label("done"),
            func.count().filter(Unit.state == "parked").label("parked"),
            func.count().filter(Unit.state == "failed").label("failed"),
        )
        .where(Unit.run_id == wanted)
        .group_by(Unit.stage)
    )
    found = {Stage(row.stage): StageGlance(row.total, row.done, row.parked, row.failed) for row in units}
    return Progress(glances, {stage: found[stage] for stage in Stage if stage in found})
