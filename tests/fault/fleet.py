"""Starting, ordering about, killing and ending a fleet's processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from pipeline.failover.registry import TargetStatus
from pipeline.registry import RedisRegistry, connect_to
from tests.fault.member import Answered, Setup, run, targets_of

__all__ = ["ANSWER_S", "Fleet", "Process", "processes"]

ANSWER_S = 60.0
"""A member that has not answered by then is stuck: the test fails instead of waiting for ever."""


def processes() -> Any:
    """How processes are made: forked from a server that has imported everything once and opened nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fault.member", "tests.fault.router"])
    return context


class Process:
    """One process with a pipe to it."""

    def __init__(self, work: Any, *arguments: Any) -> None:
        context = processes()
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(*arguments, theirs))
        self.process.start()
        theirs.close()

    def order(self, name: str, **arguments: Any) -> None:
        """Tell it what to do; ``answer`` waits for what comes of it."""
        self._pipe.send((name, arguments))

    def answer(self) -> Any:
        """What it answers to the oldest order."""
        assert self._pipe.poll(ANSWER_S), f"process {self.process.pid} does not answer"
        return self._pipe.recv()

    def ask(self, name: str, **arguments: Any) -> Any:
        """An order and its answer."""
        self.order(name, **arguments)
        return self.answer()

    def kill(self) -> None:
        """SIGKILL, as the kernel's out-of-memory killer does it."""
        self.process.kill()
        self.process.join(ANSWER_S)

    def end(self) -> None:
        if self.process.is_alive():
            self._pipe.send(None)
            self.process.join(10)
        self.process.kill()
        self.process.join(ANSWER_S)
        self.process.close()
        self._pipe.close()


class Fleet:
    """Members that share one registry; the ``with`` block starts and ends them."""

    def __init__(self, setup: Setup, size: int, clocks_off_s: Iterable[float] = ()) -> None:
        self.setup = setup
        off_s = list(clocks_off_s) or [setup.clock_off_s] * size
        self._setups = [replace(setup, clock_off_s=each) for each in off_s]
        self.members: list[Process] = []

    def __enter__(self) -> Self:
        for number, setup in enumerate(self._setups):
            self.members.append(Process(run, setup, number))
        for member in self.members:
            assert member.answer() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.end()

    def ask_all(self, name: str, **arguments: Any) -> list[Any]:
        """The same order to every living member at once; their answers."""
        living = [member for member in self.members if member.process.is_alive()]
        for member in living:
            member.order(name, **arguments)
        return [member.answer() for member in living]

    def call_all(self, **arguments: Any) -> list[Answered]:
        """Calls by every living member at once."""
        return [answered for answers in self.ask_all("call", **arguments) for answered in answers]

    def status(self) -> TargetStatus:
        """The primary, as the registry holds it."""
        return asyncio.run(self._status())

    def wait_until(self, what: Callable[[], object], timeout_s: float = 20.0) -> None:
        """Until ``what`` is true; the registry's state is shown when it does not get so."""
        deadline = time.monotonic() + timeout_s
        while not what():
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.02)

    async def _status(self) -> TargetStatus:
        registry = RedisRegistry(connect_to(self.setup.redis_url, 5.0), self.setup.prefix, rng=lambda: 0.5, timeout_s=5)
        try:
            return (await registry.statuses(targets_of(self.setup)[:1]))[0]
        finally:
            await registry.aclose()
