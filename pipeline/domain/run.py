"""The states of a run and the only moves between them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ACTIVE_RUN_STATES", "ENDED_RUN_STATES", "RUN_MOVES", "RunState", "run_states_before"]


class RunState(StrEnum):
    """``queued → running ⇄ parked``, ending ``done | empty | failed | cancelled``."""

    QUEUED = "queued"
    RUNNING = "running"
    PARKED = "parked"
    DONE = "done"
    EMPTY = "empty"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDS = frozenset({RunState.DONE, RunState.EMPTY, RunState.FAILED, RunState.CANCELLED})

RUN_MOVES: dict[RunState, frozenset[RunState]] = {
    # A queued run ends without running when it is cancelled or superseded.
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.RUNNING: frozenset({RunState.PARKED}) | _ENDS,
    # A parked run fails when it has waited for longer than park.give_up_after_s.
    RunState.PARKED: frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}),
    RunState.DONE: frozenset(),
    RunState.EMPTY: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}
ENDED_RUN_STATES = _ENDS
ACTIVE_RUN_STATES = frozenset(RunState) - _ENDS


def run_states_before(after: RunState) -> tuple[RunState, ...]:
    """The states a guarded UPDATE to ``after`` must require, in declaration order."""
    return tuple(state for state in RunState if after in RUN_MOVES[state])
