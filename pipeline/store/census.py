"""How many of everything there are: the numbers that Prometheus scrapes and people look at."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pipeline.domain.call import Outcome
from pipeline.domain.unit import UnitState
from pipeline.store.fleet import fresh_workers
from pipeline.store.reader import reader_of
from pipeline.store.schema import Attempt, Run, Unit

__all__ = ["Census", "take_census"]


@dataclass(frozen=True, slots=True)
class Census:
    """Counts of one moment.

    Attributes:
        runs: By state.
        units: By (stage, state).
        oldest_waiting_s: By stage: for how long the oldest unit that nobody has leased has been in the queue.
        lost_attempts: Calls whose worker died under them, of the attempts that are kept.
        heartbeats_s: By process name: (role, seconds since its last heartbeat).
    """

    runs: dict[str, int]
    units: dict[tuple[str, str], int]
    oldest_waiting_s: dict[str, float]
    lost_attempts: int
    heartbeats_s: dict[str, tuple[str, float]]


def take_census(session: Session) -> Census:
    """Count. Its cost grows with the tables, so callers keep the answer for a while."""
    runs = session.execute(select(Run.state, func.count()).group_by(Run.state)).tuples()
    units = session.execute(select(Unit.stage, Unit.state, func.count()).group_by(Unit.stage, Unit.state)).tuples()
    waiting = session.execute(
        select(Unit.stage, func.extract("epoch", func.now() - func.min(Unit.queued_at)))
        .where(Unit.state == UnitState.PENDING.value)
        .group_by(Unit.stage)
    ).tuples()
    lost = session.scalar(select(func.count()).where(Attempt.outcome == Outcome.LOST.value))
    return Census(
        runs=dict(runs.all()),
        units={(stage, state): count for stage, state, count in units},
        oldest_waiting_s={stage: float(age) for stage, age in waiting},
        lost_attempts=lost or 0,
        heartbeats_s={worker.id: (worker.role, worker.silent_s) for worker in fresh_workers(reader_of(session))},
    )
