"""Model calls that a command makes itself: a query's vector, an answer, the registry's states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pipeline.domain.errors import ServiceUnavailable
from pipeline.failover.registry import TargetStatus
from pipeline.observe.metrics import Metrics
from worker.bootstrap import Container
from worker.calls import Calls, make_calls
from worker.events import EventLog
from worker.loop import LoopThread

__all__ = ["CommandCalls", "calls_of"]

T = TypeVar("T")


class CommandCalls:
    """The calls of one command, on a loop of their own."""

    def __init__(self, container: Container) -> None:
        self._loop = LoopThread()
        self.container = container
        self.calls = make_calls(container, EventLog(Metrics()))

    def run(self, work: Callable[[Calls], Awaitable[T]]) -> T:
        """Do something on the loop, and wait for it."""

        async def on_loop() -> T:
            return await work(self.calls)

        return self._loop.submit(on_loop()).result()

    @property
    def loop(self) -> LoopThread:
        return self._loop

    def statuses(self) -> dict[str, TargetStatus]:
        """Every target's state as the fleet's registry holds it.

        Raises:
            ServiceUnavailable: Redis is away, so nobody knows.
        """
        found = self.run(lambda calls: calls.registry.statuses(self.container.chains.targets))
        self.refuse_alone()
        return {status.target: status for status in found}

    def refuse_alone(self) -> None:
        """Make sure that the last operation reached the fleet's registry, and not this process's stand-in."""
        if (refusal := self.calls.registry.refusal) is not None:
            raise ServiceUnavailable(
                f"Redis, which holds the targets' states, refuses to be asked: {refusal}",
                "it may be full, or a replica; see what else it says:  tidegate doctor",
            )
        if self.calls.registry.degraded:
            raise ServiceUnavailable(
                "Redis, which holds the targets' states, does not answer",
                "start the embedded services: tidegate up; or check TIDEGATE_REDIS_URL",
            )

    def close(self) -> None:
        self._loop.close(self.calls.close())


@contextmanager
def calls_of(container: Container) -> Iterator[CommandCalls]:
    """Calls that are closed at the end of the block."""
    made = CommandCalls(container)
    try:
        yield made
    finally:
        made.close()
