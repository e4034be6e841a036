"""The stages of a run, the states of a unit and the only moves between them."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "MODEL_STAGES",
    "OPEN_UNIT_STATES",
    "QUEUES",
    "UNIT_MOVES",
    "Queue",
    "Stage",
    "UnitState",
    "When",
    "queue_of",
    "unit_states_before",
]


class Stage(StrEnum):
    """The steps of a run that are units; publish is done by the last finisher and is none."""

    PARSE = "parse"
    DESCRIBE = "describe"
    FORMAT = "format"
    CHUNK = "chunk"
    RETRIEVE = "retrieve"
    EMBED = "embed"


class Queue(StrEnum):
    """Celery's queues, one worker process each by default."""

    PARSE = "parse"
    DESCRIBE = "describe"
    FORMAT = "format"
    RETRIEVE = "retrieve"
    EMBED = "embed"


class When(StrEnum):
    """Whether a model stage runs: always, only where it adds something, or never."""

    ALWAYS = "always"
    AUTO = "auto"
    NEVER = "never"


class UnitState(StrEnum):
    """``pending → leased → done | parked | failed``; a lease given back or expired is pending again."""

    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"
    PARKED = "parked"
    FAILED = "failed"


QUEUES: tuple[Queue, ...] = tuple(Queue)
MODEL_STAGES: tuple[Stage, ...] = (Stage.DESCRIBE, Stage.FORMAT, Stage.RETRIEVE, Stage.EMBED)

UNIT_MOVES: dict[UnitState, frozenset[UnitState]] = {
    # pending → parked: a worker that finds the whole chain cooling parks the slice without a lease.
    # pending → failed: the reconciler's give-up; pending → done: a result reused by digest.
    UnitState.PENDING: frozenset({UnitState.LEASED, UnitState.PARKED, UnitState.DONE, UnitState.FAILED}),
    UnitState.LEASED: frozenset({UnitState.DONE, UnitState.PARKED, UnitState.FAILED, UnitState.PENDING}),
    UnitState.PARKED: frozenset({UnitState.PENDING, UnitState.FAILED}),
    UnitState.DONE: frozenset(),
    UnitState.FAILED: frozenset(),
}
OPEN_UNIT_STATES = frozenset(state for state, after in UNIT_MOVES.items() if after)


def unit_states_before(after: UnitState) -> tuple[UnitState, ...]:
    """The states a guarded UPDATE to ``after`` must require, in declaration order."""
    return tuple(state for state in UnitState if after in UNIT_MOVES[state])


def queue_of(stage: Stage) -> Queue:
    """The queue that carries a stage's slices; chunk shares parse's, being pure CPU as well."""
    return Queue.PARSE if stage is Stage.CHUNK else Queue(stage.value)
