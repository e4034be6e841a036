"""Lost leases: taken from workers that died, froze or hang, each counted against its unit and kept as an attempt.

The caller has locked the run and settles it in the same transaction: a unit that fails here may have been the last one
that was open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy.orm import Session

from pipeline.domain.call import Outcome
from pipeline.domain.unit import Stage, UnitState
from pipeline.store.moves import move_units, rows_changed
from pipeline.store.schema import Attempt, Unit, Worker
from pipeline.store.units import Claimed, held_by

__all__ = ["LostLease", "expired_runs", "holds_leases", "lose_lease", "lose_leases", "release_leases", "runs_held_by"]

_LEASED = Unit.state == UnitState.LEASED.value
_EXPIRED = Unit.lease_expires_at < func.now()


@dataclass(frozen=True, slots=True)
class LostLease:
    """A lease that was taken from its worker, and where its unit went: pending again, or failed as poison."""

    unit_id: int
    stage: Stage
    worker: str
    state: UnitState


def expired_runs(session: Session, limit: int = 500) -> list[int]:
    """The runs whose units hold leases that ran out, the longest overdue first."""
    overdue = select(Unit.run_id).where(_LEASED, _EXPIRED).group_by(Unit.run_id)
    return list(session.scalars(overdue.order_by(func.min(Unit.lease_expires_at)).limit(limit)))


def runs_held_by(session: Session, worker: str) -> list[int]:
    """The runs of which a worker holds units."""
    return list(session.scalars(select(Unit.run_id).where(_LEASED, Unit.leased_by == worker).distinct()))


def holds_leases(session: Session, worker: str) -> bool:
    """Whether a worker holds any unit."""
    return session.scalar(select(Unit.id).where(_LEASED, Unit.leased_by == worker).limit(1)) is not None


def lose_lease(session: Session, unit: Claimed, max_lost: int, cause: str) -> bool:
    """Count a lost lease of a worker that lives (a dead parse child is one); False when it is no longer ours.

    Args:
        max_lost: The unit's last one: it is failed as poison.
        cause: What the attempt says of it.
    """
    return bool(_lose(session, (held_by(unit),), max_lost, cause))


def lose_leases(
    session: Session, run_id: int, max_lost: int, *, cause: str, worker: str | None = None
) -> list[LostLease]:
    """Take back the leases of a run that ran out, or all that a worker holds of it, which is known to be dead."""
    which = _EXPIRED if worker is None else Unit.leased_by == worker
    return _lose(session, (Unit.run_id == run_id, _LEASED, which), max_lost, cause)


def release_leases(session: Session, run_id: int, worker: str) -> int:
    """Take back what a worker holds of a run without a mark against the units; returns how many there were."""
    return rows_changed(
        session, move_units(UnitState.PENDING, Unit.run_id == run_id, _LEASED, Unit.leased_by == worker)
    )


def _lose(session: Session, which: Sequence[ColumnElement[bool]], max_lost: int, cause: str) -> list[LostLease]:
    # Whoever renews a lease at this moment lives: its rows are left alone.
    rows = session.execute(
        select(Unit.id, Unit.run_id, Unit.stage, Unit.leased_by, Unit.leased_at, Unit.lost_leases)
        .where(*which)
        .order_by(Unit.id)
        .with_for_update(skip_locked=True)
    ).all()
    drained = _draining(session, {row.leased_by for row in rows})
    spared = [row.id for row in rows if row.leased_by in drained]
    marked = [row for row in rows if row.leased_by not in drained]
    poison = [row.id for row in marked if row.lost_leases + 1 >= max_lost]
    again = [row.id for row in marked if row.lost_leases + 1 < max_lost]
    mark = {"lost_leases": Unit.lost_leases + 1}
    detail = f"its worker died {max_lost} times while it worked on it"
    for ids, statement in (
        (spared, move_units(UnitState.PENDING, Unit.id.in_(spared))),
        (again, move_units(UnitState.PENDING, Unit.id.in_(again), **mark)),
        (
            poison,
            move_units(UnitState.FAILED, Unit.id.in_(poison), failure_kind="poison", failure_detail=detail, **mark),
        ),
    ):
        if ids:
            rows_changed(session, statement)
    _record(session, rows, cause)
    return [
        LostLease(
            row.id,
            Stage(row.stage),
            row.leased_by or "",
            UnitState.FAILED if row.id in poison else UnitState.PENDING,
        )
        for row in rows
    ]


def _draining(session: Session, workers: set[str | None]) -> set[str]:
    """Those that had been told to end: a deploy whose patience was too short is no mark against a unit."""
    return set(session.scalars(select(Worker.id).where(Worker.id.in_(workers - {None}), Worker.draining)))


def _record(session: Session, rows: Sequence[Any], cause: str) -> None:
    """Every lost lease is an attempt: the call that was open, or else a row that names no target."""
    open_calls: set[int] = set()
    for worker in {row.leased_by for row in rows}:
        own = [row.id for row in rows if row.leased_by == worker]
        open_calls.update(
            session.scalars(
                update(Attempt)
                .where(
                    Attempt.run_id.in_({row.run_id for row in rows}),
                    Attempt.unit_id.in_(own),
                    Attempt.outcome == Outcome.RUNNING.value,
                    Attempt.worker == worker,
                )
                .values(outcome=Outcome.LOST.value, message=cause)
                .returning(Attempt.unit_id)
                .execution_options(synchronize_session=False)
            )
        )
    others = [row for row in rows if row.id not in open_calls]
    if others:
        session.execute(insert(Attempt), [_without_call(row, cause) for row in others])


def _without_call(row: Any, cause: str) -> dict[str, Any]:
    return {
        "run_id": row.run_id,
        "unit_id": row.id,
        "stage": row.stage,
        "role": row.stage,
        "call_id": uuid4().hex,
        "position": 0,
        "outcome": Outcome.LOST.value,
        "message": cause,
        "started_at": row.leased_at,
        "worker": row.leased_by,
    }
