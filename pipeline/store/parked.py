"""Parked units: put aside until a target of their chain is back, and let go on in portions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage, UnitState
from pipeline.store.moves import move_units, rows_changed
from pipeline.store.schema import Run, Unit
from pipeline.store.units import Claimed, Moment, held_by

__all__ = ["make_parked_due", "park_pending", "park_unit", "parked_runs", "postpone_parked", "wake_parked"]


def park_unit(session: Session, unit: Claimed, resume_at: Moment | None, calls: int = 0) -> bool:
    """Put a unit aside until a target is back; False when the lease is no longer ours."""
    return bool(
        rows_changed(
            session,
            move_units(UnitState.PARKED, held_by(unit), resume_at=resume_at, calls=Unit.calls + calls),
        )
    )


def park_pending(session: Session, run_id: int, stage: Stage, ordinals: Sequence[int], resume_at: Moment | None) -> int:
    """Park a slice's pending units in one statement (their whole chain is cooling; no lease, no call, no row)."""
    return rows_changed(
        session,
        move_units(
            UnitState.PARKED,
            Unit.run_id == run_id,
            Unit.stage == stage.value,
            Unit.state == UnitState.PENDING.value,
            Unit.ordinal.in_(ordinals),
            resume_at=resume_at,
        ),
    )


def wake_parked(session: Session, run_id: int, stage: Stage | None, limit: int) -> int:
    """Make parked units of a run pending again, by ordinal; returns how many."""
    chosen = (
        select(Unit.id)
        .where(Unit.run_id == run_id, Unit.state == UnitState.PARKED.value)
        .order_by(Unit.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    if stage is not None:
        chosen = chosen.where(Unit.stage == stage.value)
    picked = chosen.cte("picked")
    return rows_changed(
        session, move_units(UnitState.PENDING, Unit.id == picked.c.id, Unit.state == UnitState.PARKED.value)
    )


def parked_runs(session: Session, stage: Stage, *, primary_only: bool, limit: int) -> list[int]:
    """Runs with parked units of a stage that are due, the longest overdue first."""
    return list(
        session.scalars(
            select(Unit.run_id)
            .join(Run, Run.id == Unit.run_id)
            .where(
                Unit.state == UnitState.PARKED.value,
                Unit.stage == stage.value,
                Unit.resume_at <= func.now(),
                Run.primary_only.is_(primary_only),
            )
            .group_by(Unit.run_id)
            .order_by(func.max(Unit.priority).desc(), func.min(Unit.resume_at), Unit.run_id)
            .limit(limit)
        )
    )


def postpone_parked(session: Session, stage: Stage, *, primary_only: bool, until: Moment | None) -> None:
    """Have the due parked units of a stage wait until ``until`` (None: until somebody acts), and their runs too."""
    runs = select(Run.id).where(Run.primary_only.is_(primary_only))
    moved = session.scalars(
        update(Unit)
        .where(
            Unit.state == UnitState.PARKED.value,
            Unit.stage == stage.value,
            Unit.resume_at <= func.now(),
            Unit.run_id.in_(runs),
        )
        .values(resume_at=until)
        .returning(Unit.run_id)
        .execution_options(synchronize_session=False)
    ).all()
    if moved:
        soonest = (
            select(func.min(Unit.resume_at))
            .where(Unit.run_id == Run.id, Unit.state == UnitState.PARKED.value)
            .scalar_subquery()
        )
        rows_changed(
            session,
            update(Run).where(Run.id.in_(set(moved)), Run.state == RunState.PARKED.value).values(resume_at=soonest),
        )


def make_parked_due(session: Session, stages: Sequence[Stage]) -> int:
    """A target of these stages is back (recovered, enabled, reset): let their parked units be looked at now."""
    names = [stage.value for stage in stages]
    waiting = [Unit.state == UnitState.PARKED.value, Unit.stage.in_(names)]
    units = rows_changed(session, update(Unit).where(*waiting).values(resume_at=func.now()))
    if units:
        rows_changed(
            session,
            update(Run)
            .where(Run.state == RunState.PARKED.value, Run.id.in_(select(Unit.run_id).where(*waiting)))
            .values(resume_at=func.now()),
        )
    return units
