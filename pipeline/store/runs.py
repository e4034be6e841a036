"""Runs: locking them, moving them between states, and what they ended with.

Everyone locks ``run`` first and ``unit`` second: claims FOR SHARE; finish, cancel and publish FOR UPDATE. The finisher
counts what is left under that lock, so two last units can't both miss it, and cancel and publish can't cross.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, func, literal, select, text, update
from sqlalchemy.orm import Session, aliased

from pipeline.domain.errors import Failure
from pipeline.domain.run import ACTIVE_RUN_STATES, RunState
from pipeline.domain.unit import OPEN_UNIT_STATES, Stage, UnitState
from pipeline.store.moves import in_state, move_runs, move_units, rows_changed
from pipeline.store.schema import Attempt, ChainWait, Collection, Document, Run, Unit

__all__ = [
    "Asker",
    "UnitStates",
    "asker",
    "cancel_active_runs",
    "delete_superseded_runs",
    "give_up_parked",
    "lock_run",
    "lock_running",
    "make_due",
    "make_live",
    "move_run",
    "note_progress",
    "park_run",
    "soonest_resume",
    "telling_failure",
    "unit_states",
]

OPEN_STATES = tuple(sorted(state.value for state in OPEN_UNIT_STATES))


def lock_run(session: Session, run_id: int) -> Run | None:
    """The run, locked FOR UPDATE until the transaction ends; None when it is gone."""
    return session.scalars(_LOCK, {"run": run_id}).one_or_none()


# Built once, as others below, where building them would cost more than running them.
_LOCK = select(Run).where(Run.id == bindparam("run")).with_for_update().execution_options(populate_existing=True)


def lock_running(session: Session, run_id: int) -> bool:
    """Hold a run FOR SHARE if it is running (a queued one is started); False when nothing may be claimed of it."""
    if _hold_running(session, run_id):
        return True
    # Started before it is held: two claimers that both held it FOR SHARE could not both go on to change it.
    session.execute(move_runs(RunState.RUNNING, Run.id == run_id, Run.state == RunState.QUEUED.value))
    return _hold_running(session, run_id)


def _hold_running(session: Session, run_id: int) -> bool:
    return session.scalar(_HOLD_RUNNING, {"run": run_id}) is not None


_HOLD_RUNNING = (
    select(Run.id).where(Run.id == bindparam("run"), Run.state == in_state(RunState.RUNNING)).with_for_update(read=True)
)


@dataclass(frozen=True, slots=True)
class Asker:
    """What narrows down whom a run may ask; ``collection`` is its name."""

    collection: str
    primary_only: bool


def asker(session: Session, run_id: int) -> Asker | None:
    """Look at a run; None when it has ended."""
    row = session.execute(_ASKER, {"run": run_id}).one_or_none()
    return None if row is None else Asker(row.name, row.primary_only)


_ASKER = (
    select(Collection.name, Run.primary_only)
    .join(Collection, Collection.id == Run.collection_id)
    .where(Run.id == bindparam("run"), Run.state.in_([in_state(state) for state in ACTIVE_RUN_STATES]))
)


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


def note_progress(run: Run) -> None:
    """A unit ended: the patience of ``park.give_up_after_s`` starts anew. The caller holds the run FOR UPDATE."""
    run.parked_since = None


@dataclass(frozen=True, slots=True)
class UnitStates:
    """In which states a run has units, by stage: what its barriers ask for."""

    of: Mapping[Stage, frozenset[UnitState]]

    def has(self, states: Iterable[UnitState], stages: Iterable[Stage] = tuple(Stage)) -> bool:
        """Whether a unit of these stages is in one of these states."""
        return any(not self.of.get(stage, frozenset()).isdisjoint(states) for stage in stages)


def unit_states(session: Session, run_id: int) -> UnitStates:
    """Look at a run's units, under its lock. A large run takes no longer than a small one."""
    found: dict[Stage, frozenset[UnitState]] = {}
    for row in session.execute(_UNIT_STATES, {"run": run_id}):
        stage = Stage(row.stage)
        found[stage] = found.get(stage, frozenset()) | {UnitState(row.state)}
    return UnitStates(found)


# One look into the index for each pair.
_UNIT_STATES = text(
    f"""
    select stage, state
    from unnest(array{[stage.value for stage in Stage]}) as stages (stage)
    cross join unnest(array{[state.value for state in UnitState]}) as states (state)
    cross join lateral (
        select from unit
        where unit.run_id = :run and unit.stage = stages.stage and unit.state = states.state
        limit 1
    ) one
    """  # noqa: S608 - our own words
)


def park_run(session: Session, run_id: int, resume_at: datetime | None) -> bool:
    """Put a run aside; how long it has waited without progress is counted from its first park since then."""
    since = func.coalesce(Run.parked_since, func.now())
    return move_run(session, run_id, RunState.PARKED, resume_at=resume_at, parked_since=since)


def soonest_resume(session: Session, run_id: int) -> datetime | None:
    """When the first of a run's parked units is looked at again; None when none has a time."""
    return session.scalar(
        select(func.min(Unit.resume_at)).where(Unit.run_id == run_id, Unit.state == UnitState.PARKED.value)
    )


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
    for table, where in ((Run, Run.id.in_(run_ids)), (Unit, Unit.run_id.in_(run_ids))):
        session.execute(
            update(table)
            .where(where, table.state == "parked")
            .values(resume_at=func.now())
            .execution_options(synchronize_session=False)
        )


def give_up_parked(session: Session, give_up_after_s: float, limit: int) -> list[int]:
    """Fail a portion of the runs that have been parked for too long without progress; returns their ids.

    A run that is due while its chain takes calls stands in line, however long the line is, and is spared.
    """
    too_old = func.now() - timedelta(seconds=give_up_after_s)
    closed = select(ChainWait.stage).where(ChainWait.stage == Unit.stage, ChainWait.primary_only == Run.primary_only)
    in_line = select(Unit.id).where(
        Unit.run_id == Run.id,
        Unit.state == UnitState.PARKED.value,
        Unit.resume_at <= func.now(),
        ~closed.exists(),
    )
    ids = list(
        session.scalars(
            select(Run.id)
            .where(Run.state == RunState.PARKED.value, Run.parked_since <= too_old, ~in_line.exists())
            .limit(limit)
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
    """Delete ended runs beyond the newest ``keep`` of their document, never the live one; returns how many.

    Their attempts stay with the document for as long as attempts are kept.
    """
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
        session.execute(
            update(Attempt)
            .where(Attempt.run_id == Run.id, Run.id.in_(ids))
            .values(document_id=Run.document_id, former_run_id=Run.id, run_id=None)
            .execution_options(synchronize_session=False)
        )
        session.execute(delete(Run).where(Run.id.in_(ids)).execution_options(synchronize_session=False))
    return len(ids)
