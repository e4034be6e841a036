"""What a stack is made of."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from worker.embedded.child import Ladder

__all__ = ["Part", "Step"]

_SERVICES = frozenset({"postgres", "redis"})


def _nothing(failures: int) -> None:
    del failures


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process that the supervisor keeps running.

    Attributes:
        name: Unique in the stack; names the log too (``logs/<name>.log``).
        role: ``worker | beat | flower | postgres | redis``. The last two are services: they start before
            whatever follows them and stop after everything else, one by one.
        argv: The command.
        env: Variables on top of the supervisor's base environment. They appear in no state file and in no log.
        queues: What a worker consumes; only shown.
        port: Where it listens; only shown.
        is_ready: Asked, often, until it says True; bounded in time, side-effect free, may raise while things start.
            Without one a part counts as ready when it has run for a second, which says little: give one.
        ready_timeout_s: How long a first start may take before the stack gives up.
        before_start: Called before each start, with the number of failures in a row; may raise a TidegateError.
        ladder: How to end it.
    """

    name: str
    role: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    queues: Sequence[str] = ()
    port: int | None = None
    is_ready: Callable[[], bool] | None = None
    ready_timeout_s: float = 60.0
    before_start: Callable[[int], None] = _nothing
    ladder: Ladder = ((signal.SIGTERM, 30.0),)

    @property
    def is_service(self) -> bool:
        return self.role in _SERVICES


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something to be done once, when all parts before it are ready and before any after it starts.

    Attributes:
        name: Names the log, where the step is a command.
        action: A function, run in the supervisor's main thread and not to be interrupted; or a command, which can be.
        env: As for ``Part``; for a command.
        timeout_s: How long a command may take.
    """

    name: str
    action: Callable[[], None] | Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 600.0
