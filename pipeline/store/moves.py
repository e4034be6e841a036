"""Moves between states: the one place that writes a unit's or a run's state.

A move is an UPDATE that finds only rows in a state that the tables of ``pipeline.domain`` let it come from. The
caller's conditions narrow that further and can't widen it, so no statement anywhere can make an illegal move. What
goes with a state (a lease, a resume time, when it ended) is written by the same statement.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import ColumnElement, CursorResult, Text, Update, func, literal_column, null, update
from sqlalchemy.orm import Session

from pipeline.domain.run import ENDED_RUN_STATES, RunState, run_states_before
from pipeline.domain.unit import UnitState, unit_states_before
from pipeline.store.schema import Base, Run, Unit

__all__ = ["in_state", "move_runs", "move_units", "rows_changed"]

# Tables rather than classes: nothing reads a state from an object in memory that a statement went past, and the ORM's
# part in such a statement costs more than Postgres'.
_UNITS, _RUNS = (Base.metadata.tables[table.__tablename__] for table in (Unit, Run))

_NONE = null()
_NO_LEASE: dict[str, Any] = dict.fromkeys(("lease_token", "lease_expires_at", "leased_by", "leased_at"), _NONE)
_END = _NO_LEASE | {"resume_at": _NONE, "finished_at": func.now()}
_GOES_WITH: dict[UnitState, dict[str, Any]] = {
    UnitState.PENDING: _NO_LEASE | {"resume_at": _NONE, "dispatched_at": _NONE},
    UnitState.LEASED: {"resume_at": _NONE, "leased_at": func.now()},
    UnitState.PARKED: _NO_LEASE | {"dispatched_at": _NONE},
    UnitState.DONE: _END,
    UnitState.FAILED: _END,
}


def in_state(state: UnitState | RunState) -> ColumnElement[str]:
    """A state as it stands in the SQL itself: the indexes of what is in one state are for such statements."""
    return literal_column(f"'{state.value}'", Text)


def move_units(to: UnitState, *where: ColumnElement[bool], **values: Any) -> Update:
    """A statement that moves units to ``to``: those that meet ``where`` and are in a state that allows it.

    A claim brings its token and the time until which it holds; every other move gives the lease up.
    """
    before = [in_state(state) for state in unit_states_before(to)]
    return update(_UNITS).where(Unit.state.in_(before), *where).values(state=in_state(to), **(_GOES_WITH[to] | values))


def move_runs(to: RunState, *where: ColumnElement[bool], **values: Any) -> Update:
    """A statement that moves runs to ``to``: those that meet ``where`` and are in a state that allows it."""
    before = [in_state(state) for state in run_states_before(to)]
    own: dict[str, Any] = {} if to is RunState.PARKED else {"resume_at": _NONE}
    if to is RunState.RUNNING:
        own["started_at"] = func.coalesce(Run.started_at, func.now())
    elif to in ENDED_RUN_STATES:
        own["finished_at"] = func.now()
    return update(_RUNS).where(Run.state.in_(before), *where).values(state=in_state(to), **(own | values))


def rows_changed(session: Session, statement: Update) -> int:
    """Run an UPDATE; returns how many rows it changed."""
    result = session.execute(statement.execution_options(synchronize_session=False))
    return cast("CursorResult[Any]", result).rowcount
