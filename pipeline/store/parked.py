"""Parked units: put aside until a target of their chain is back, and let go on in portions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    DateTime,
    any_,
    delete,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage, UnitState
from pipeline.store.moves import move_runs, move_units, rows_changed
from pipeline.store.reports import NEXT_TRY
from pipeline.store.schema import ChainWait, Run, Unit
from pipeline.store.units import Claimed, Moment, held_by

__all__ = [
    "due_units",
    "make_parked_due",
    "make_timeless_due",
    "make_waiting_due",
    "next_try",
    "note_closed",
    "note_open",
    "park_pending",
    "park_unit",
    "pending_units",
    "wake_parked",
    "wake_units",
]


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


def wake_parked(session: Session, run_id: int) -> int:
    """Make the parked units of a run, which the caller has locked, pending again; returns how many."""
    return rows_changed(
        session, move_units(UnitState.PENDING, Unit.run_id == run_id, Unit.state == UnitState.PARKED.value)
    )


def wake_units(session: Session, units: Mapping[int, Sequence[int]]) -> list[int]:
    """Make parked units (ids by run) pending again, and let their runs go on; returns the runs that did.

    A run that somebody holds at this moment is passed over: its units stay due.
    """
    held = list(
        session.scalars(
            select(Run.id)
            .where(Run.id.in_(units), Run.state.in_((RunState.PARKED.value, RunState.RUNNING.value)))
            .order_by(Run.id)
            .with_for_update(skip_locked=True)
        )
    )
    wanted = [unit for run_id in held for unit in units[run_id]]
    woken = set(
        session.scalars(
            move_units(UnitState.PENDING, Unit.id.in_(wanted), Unit.state == UnitState.PARKED.value).returning(
                Unit.run_id
            )
        )
    )
    rows_changed(session, move_runs(RunState.RUNNING, Run.id.in_(woken), Run.state == RunState.PARKED.value))
    return [run_id for run_id in units if run_id in woken]


def due_units(session: Session, stage: Stage, *, primary_only: bool, limit: int) -> dict[int, list[int]]:
    """The next parked units of a stage that are due, as ids by run: priority first, then the longest overdue.

    It walks an index in that order and stops at ``limit``, whatever waits.
    """
    rows = session.execute(_DUE_PRIMARY_ONLY if primary_only else _DUE, {"stage": stage.value, "limit": limit})
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row.run_id, []).append(row.id)
    return found


_DUE = text(
    """
    select unit.run_id, unit.id from unit
    where unit.state = 'parked' and unit.stage = :stage and unit.resume_at <= now()
      and not exists (select from run where run.id = unit.run_id and run.primary_only)
    order by unit.priority desc, unit.resume_at, unit.id
    limit :limit
    """
)
# Few runs are of this kind, and they have an index of their own.
_DUE_PRIMARY_ONLY = text(
    """
    select unit.run_id, unit.id from run
    join unit on unit.run_id = run.id and unit.stage = :stage and unit.state = 'parked' and unit.resume_at <= now()
    where run.primary_only
    order by unit.priority desc, unit.resume_at, unit.id
    limit :limit
    """
)


def pending_units(session: Session, stage: Stage, most: int) -> int:
    """How many units of a stage are free to be worked on, counted up to ``most``; suspects wait for others."""
    count: int = session.execute(_PENDING, {"stage": stage.value, "most": most}).scalar_one()
    return min(count, most)


# Each half has an index of its own.
_PENDING = text(
    """
    select (select count(*) from (select from unit where stage = :stage and state = 'pending' and lost_leases = 0
                                  and dispatched_at is null limit :most) undispatched)
         + (select count(*) from (select from unit where stage = :stage and state = 'pending' and lost_leases = 0
                                  and dispatched_at is not null limit :most) dispatched)
    """
)


def next_try() -> ColumnElement[datetime | None]:
    """``NEXT_TRY`` for a query of ``Run``; null where it is not parked, or waits without a time."""
    return literal_column(f"({NEXT_TRY})", DateTime(timezone=True))


def note_closed(session: Session, stage: Stage, *, primary_only: bool, until: datetime | None) -> None:
    """Keep until when a chain is closed, for people (None: until somebody acts)."""
    statement = insert(ChainWait).values(stage=stage.value, primary_only=primary_only, until=until)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["stage", "primary_only"],
            set_={"until": statement.excluded.until},
            where=ChainWait.until.is_distinct_from(statement.excluded.until),
        )
    )


def note_open(session: Session, stage: Stage, *, primary_only: bool) -> None:
    """A chain takes calls again."""
    session.execute(delete(ChainWait).where(ChainWait.stage == stage.value, ChainWait.primary_only.is_(primary_only)))


def make_parked_due(session: Session, stages: Sequence[Stage]) -> int:
    """A target of these stages is back (enabled, reset): let their parked units be looked at now; returns how many.

    Units that are due already are not written again.
    """
    names = [stage.value for stage in stages]
    session.execute(delete(ChainWait).where(ChainWait.stage.in_(names)))
    return _make_due(session, Unit.stage.in_(names), or_(Unit.resume_at.is_(None), Unit.resume_at > func.now()))


def make_waiting_due(session: Session, stages: Collection[Stage]) -> int:
    """A target of these stages has recovered before it was to be tried: let what waits for that time be looked at now.

    What waits without a time waits for a person.
    """
    return _make_due(session, Unit.stage.in_([stage.value for stage in stages]), Unit.resume_at > func.now())


def make_timeless_due(session: Session) -> int:
    """The configuration may have changed: look once more at what waits without a time; returns how many units."""
    return _make_due(session, Unit.resume_at.is_(None))


def _make_due(session: Session, *which: ColumnElement[bool]) -> int:
    # Runs first, as everybody locks them.
    waiting = (Unit.state == UnitState.PARKED.value, *which)
    runs = list(session.scalars(select(Unit.run_id).where(*waiting).distinct()))
    if not runs:
        return 0
    session.execute(
        update(Run)
        .where(Run.state == RunState.PARKED.value, Run.id == any_(literal(sorted(runs), ARRAY(BigInteger))))
        .values(resume_at=func.now())
        .execution_options(synchronize_session=False)
    )
    return rows_changed(session, update(Unit).where(*waiting).values(resume_at=func.now()))
