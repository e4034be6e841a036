"""Moves between states: the one place that writes a unit's or a run's state.

A move is an UPDATE that finds only rows in a state that the tables of ``pipeline.domain`` let it come from. The
caller's conditions narrow that further and can't widen it, so no statement anywhere can make an illegal move. What
goes with a state (a lease, a resume time, when it ended) is written by the same statement.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import ColumnElement, CursorResult, Update, func, update
from sqlalchemy.orm import Session

from pipeline.domain.run import ENDED_RUN_STATES, RunState, run_states_before
from pipeline.domain.unit import UnitState, unit_states_before
from pipeline.store.schema import Run, Unit

__all__ = ["move_runs", "move_units", "rows_changed"]

_NO_LEASE: dict[str, Any] = {"lease_token": None, "lease_expires_at": None, "leased_by": None, "leased_at": None}
_END = _NO_LEASE | {"resume_at": None, "finished_at": func.now()}
_GOES_WITH: dict[UnitState, dict[str, Any]] = {
    UnitState.PENDING: _NO_LEASE | {"resume_at": None, "dispatched_at": None},
    UnitState.LEASED: {"resume_at": None, "leased_at": func.now()},
    UnitState.PARKED: _NO_LEASE | {"dispatched_at": None},
    UnitState.DONE: _END,
    UnitState.FAILED: _END,
}


def move_units(to: UnitState, *where: ColumnElement[bool], **values: Any) -> Update:
    """A statement that moves units to ``to``: those that meet ``where`` and are in a state that allows it.

    A claim brings its token and the time until which it holds; every other move gives the lease up.
    """
    before = [state.value for state in unit_states_before(to)]
    return (
        update(Unit)
        .where(Unit.state.in_(before), *where)
        .values(state=to.value, **(_GOES_WITH[to] | values))
        .execution_options(synchronize_session=False)
    )


def move_runs(to: RunState, *where: ColumnElement[bool], **values: Any) -> Update:
    """A statement that moves runs to ``to``: those that meet ``where`` and are in a state that allows it."""
    before = [state.value for state in run_states_before(to)]
    own: dict[str, Any] = {} if to is RunState.PARKED else {"resume_at": None}
    if to is RunState.RUNNING:
        own["started_at"] = func.coalesce(Run.started_at, func.now())
    elif to in ENDED_RUN_STATES:
        own["finished_at"] = func.now()
    return (
        update(Run)
        .where(Run.state.in_(before), *where)
        .values(state=to.value, **(own | values))
        .execution_options(synchronize_session=False)
    )


def rows_changed(session: Session, statement: Update) -> int:
    """Run an UPDATE; returns how many rows it changed."""
    result = session.execute(statement.execution_options(synchronize_session=False))
    return cast("CursorResult[Any]", result).rowcount
