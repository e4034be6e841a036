"""Runs: locking them, moving them between states, and what they ended with.

Everyone locks ``run`` first and ``unit`` second: claims FOR SHARE; finish, cancel and publish FOR UPDATE. The finisher
counts what is left under that lock, so two last units can't both miss it, and cancel and publish can't cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, literal, select, update
from sqlalchemy.orm import Session, aliased

from pipeline.domain.errors import Failure
from pipeline.domain.run import ACTIVE_RUN_STATES, RunState
from pipeline.domain.unit import OPEN_UNIT_STATES, Stage, UnitState
from pipeline.store.moves import move_runs, move_units, rows_changed
from pipeline.store.schema import Attempt, Document, Run, Unit

__all__ = [
    "cancel_active_runs",
    "delete_superseded_runs",
    "give_up_parked",
    "lock_run",
    "lock_running",
    "make_due",
    "make_live",
    "move_run",
    "note_progress",
    "open_units",
    "park_run",
    "single_unit_states",
    "soonest_resume",
    "telling_failure",
]

OPEN_STATES = tuple(sorted(state.value for state in OPEN_UNIT_STATES))


def lock_run(session: Session, run_id: int) -> Run | None:
    """The run, locked FOR UPDATE until the transaction ends; None when it is gone."""
    return session.scalars(
        select(Run).where(Run.id == run_id).with_for_update().execution_options(populate_existing=True)
    ).one_or_none()


def lock_running(session: Session, run_id: int) -> bool:
    """Hold a run FOR SHARE if it is running (a queued one is started); False when nothing may be claimed of it."""
    # Started before it is held: two claimers that both held it FOR SHARE could not both go on to change it.
    session.execute(move_runs(RunState.RUNNING, Run.id == run_id, Run.state == RunState.QUEUED.value))
    state = session.scalar(select(Run.state).where(Run.id == run_id).with_for_update(read=True))
    return state == RunState.RUNNING


def move_run(session: Session, run_id: int, to: RunState, **values: Any) -> bool:
    """Move a run to ``to`` if the state it is in allows that; False when it does not."""
    return bool(rows_changed(session, move_runs(to, Run.id == run_id, **values)))


def make_live(session: Session, run: Run) -> None:
    """Make a run the generation that search sees."""
    session.execute(
        update(Document)
        .where(Document.id == run.document_id)
        .values(live_run_id=run.id)
        .execution_options(synchronize_session=False)
    )


def note_progress(session: Session, run_id: int) -> None:
    """A unit ended: the patience of ``park.give_up_after_s`` starts anew."""
    session.execute(
        update(Run)
        .where(Run.id == run_id, Run.parked_since.is_not(None))
        .values(parked_since=None)
        .execution_options(synchronize_session=False)
    )


def open_units(session: Session, run_id: int, stages: Sequence[Stage]) -> bool:
    """True when any unit of these stages has yet to end. Call it under the run's lock."""
    return bool(
        session.scalar(
            select(
                select(literal(1))
                .where(
                    Unit.run_id == run_id,
                    Unit.stage.in_([stage.value for stage in stages]),
                    Unit.state.in_(OPEN_STATES),
                )
                .exists()
            )
        )
    )


def park_run(session: Session, run_id: int, resume_at: datetime | None) -> bool:
    """Put a run aside; how long it has waited without progress is counted from its first park since then."""
    since = func.coalesce(Run.parked_since, func.now())
    return move_run(session, run_id, RunState.PARKED, resume_at=resume_at, parked_since=since)


def single_unit_states(session: Session, run_id: int) -> dict[Stage, UnitState]:
    """The states of the units that a run has one of: parse and, once it is due, chunk."""
    rows = session.execute(
        select(Unit.stage, Unit.state).where(
            Unit.run_id == run_id, Unit.stage.in_((Stage.PARSE.value, Stage.CHUNK.value))
        )
    )
    return {Stage(row.stage): UnitState(row.state) for row in rows}


def soonest_resume(session: Session, run_id: int) -> tuple[bool, bool, datetime | None]:
    """(anything pending or leased, anything parked, the soonest ``resume_at`` of the parked)."""
    row = session.execute(
        select(
            func.coalesce(func.bool_or(Unit.state.in_(("pending", "leased"))), False),
            func.coalesce(func.bool_or(Unit.state == "parked"), False),
            func.min(Unit.resume_at).filter(Unit.state == "parked"),
        ).where(Unit.run_id == run_id, Unit.state.in_(OPEN_STATES))
    ).one()
    return bool(row[0]), bool(row[1]), row[2]


def telling_failure(session: Session, run_id: int, stages: Sequence[Stage]) -> Failure | None:
    """The failure that says most about why units of these stages failed: the first one by page or chunk."""
    row = session.execute(
        select(Unit.stage, Unit.ordinal, Unit.failure_kind, Unit.failure_detail)
        .where(
            Unit.run_id == run_id,
            Unit.stage.in_([stage.value for stage in stages]),
            Unit.state == UnitState.FAILED.value,
        )
        .order_by(Unit.ordinal, Unit.id)
        .limit(1)
    ).first()
    if row is None:
        return None
    where = f"{row.stage} {row.ordinal}: " if row.ordinal else ""
    return Failure(row.failure_kind or "unknown", f"{where}{row.failure_detail or 'no detail was kept'}")


def make_due(session: Session, run_ids: Sequence[int]) -> None:
    """Have the reconciler look at parked runs at its next pass."""
    for table, where in ((Unit, Unit.run_id.in_(run_ids)), (Run, Run.id.in_(run_ids))):
        session.execute(
            update(table)
            .where(where, table.state == "parked")
            .values(resume_at=func.now())
            .execution_options(synchronize_session=False)
        )


def give_up_parked(session: Session, give_up_after_s: float) -> list[int]:
    """Fail the runs that have been parked for too long without progress; returns their ids."""
    too_old = func.now() - timedelta(seconds=give_up_after_s)
    ids = list(
        session.scalars(
            select(Run.id)
            .where(Run.state == RunState.PARKED.value, Run.parked_since <= too_old)
            .with_for_update(skip_locked=True)
        )
    )
    if ids:
        session.execute(
            move_units(
                UnitState.FAILED,
                Unit.run_id.in_(ids),
                failure_kind="chain_exhausted",
                failure_detail="no target came back in time",
            )
        )
        for run_id in ids:
            move_run(
                session,
                run_id,
                RunState.FAILED,
                failure_kind="chain_exhausted",
                failure_detail=f"parked for over {give_up_after_s:g} s without progress",
            )
    return ids


def cancel_active_runs(session: Session, condition: ColumnElement[bool], detail: str) -> list[int]:
    """Cancel the active runs that meet ``condition``: their open units go, their done ones stay for reuse."""
    ids = list(
        session.scalars(
            select(Run.id)
            .where(condition, Run.state.in_([state.value for state in ACTIVE_RUN_STATES]))
            .order_by(Run.id)
            .with_for_update()
        )
    )
    if not ids:
        return []
    # A worker that still holds a lease finds its token gone: its late answer is dropped.
    session.execute(
        delete(Unit)
        .where(Unit.run_id.in_(ids), Unit.state.in_(OPEN_STATES))
        .execution_options(synchronize_session=False)
    )
    for run_id in ids:
        move_run(session, run_id, RunState.CANCELLED, failure_kind="cancelled", failure_detail=detail)
    return ids


def delete_superseded_runs(session: Session, keep: int, limit: int) -> int:
    """Delete ended runs beyond the newest ``keep`` of their document, never the live one; returns how many."""
    newer = aliased(Run)
    rank = (
        select(func.count())
        .select_from(newer)
        .where(newer.document_id == Run.document_id, newer.id > Run.id)
        .scalar_subquery()
    )
    live = select(literal(1)).where(Document.live_run_id == Run.id).exists()
    ids = list(
        session.scalars(
            select(Run.id)
            .where(
                Run.state.not_in([state.value for state in ACTIVE_RUN_STATES]),
                ~live,
                rank >= keep,
            )
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
    )
    if ids:
        session.execute(delete(Attempt).where(Attempt.run_id.in_(ids)).execution_options(synchronize_session=False))
        session.execute(delete(Run).where(Run.id.in_(ids)).execution_options(synchronize_session=False))
    return len(ids)
