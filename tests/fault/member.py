"""One process of a fleet: the failover core over a real registry and real HTTP, taking orders through a pipe.

A member is what a worker process is, as far as calls go: ``Caller``, ``FallbackRegistry`` over Redis, ``Providers``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from typing import Any

from pydantic import SecretStr

from pipeline.clock import LoopClock
from pipeline.domain.call import Answer, Skip, TryRecord
from pipeline.failover.call import Caller
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.records import AttemptStart, CallContext, Switch
from pipeline.failover.target import CallPolicy, Chain, CooldownPolicy, Target, Times
from pipeline.failover.upstream import ChatRequest, Message, Reply, TextPart
from pipeline.providers.base import Providers
from pipeline.providers.local import LocalUpstream
from pipeline.registry import FallbackRegistry, RedisRegistry, connect_to

__all__ = ["Answered", "Setup", "run", "targets_of"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What all members of a fleet have in common, and (``clock_off_s``) what is wrong with one's clock."""

    redis_url: str
    primary_url: str
    fallback_url: str
    prefix: str = "tidegate:fleet"
    max_parallel: int | None = 8
    ttft_timeout_s: float = 10.0
    cooldown_s: float = 30.0
    cooldown_max_s: float = 600.0
    permit_ttl_s: float = 30.0
    registry_timeout_s: float = 5.0
    interactive: bool = False
    clock_off_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answered:
    """One call that was answered. ``seconds`` is what its caller waited."""

    position: int
    seconds: float
    skipped: tuple[Skip, ...]
    tried: tuple[str | None, ...]


def targets_of(setup: Setup) -> tuple[Target, Target]:
    """The primary, which the setup's limits are for, and the fallback behind it, which has none."""
    primary = Target(
        "primary@fleet",
        "primary",
        "openai/primary",
        setup.primary_url,
        "fast",
        max_parallel=setup.max_parallel,
        times=Times(ttft_timeout_s=setup.ttft_timeout_s),
        cooldown=CooldownPolicy(cooldown_s=setup.cooldown_s, cooldown_max_s=setup.cooldown_max_s),
    )
    return primary, Target("fallback@fleet", "fallback", "openai/fallback", setup.fallback_url, "fast")


class Member:
    """The process's side. Each method that the parent may order is a coroutine without an underscore."""

    def __init__(self, setup: Setup, number: int) -> None:
        rng = Random(number).random
        self.cooled_until: list[float] = []
        self.answered: list[Answered] = []
        self.degraded: list[str] = []
        self._running: list[asyncio.Task[None]] = []
        self._chain = Chain("vlm", targets_of(setup), CallPolicy(interactive=setup.interactive))

        def now() -> float:
            return time.time() + setup.clock_off_s

        self._providers = Providers({"primary@fleet": SecretStr("sk-fleet")}, LocalUpstream(), now, lambda *_: None)
        redis = RedisRegistry(
            connect_to(setup.redis_url, setup.registry_timeout_s),
            setup.prefix,
            rng=rng,
            timeout_s=setup.registry_timeout_s,
            permit_ttl_s=setup.permit_ttl_s,
        )
        self._registry = FallbackRegistry(
            redis,
            MemoryRegistry(now, rng),
            monotonic=time.monotonic,
            on_degraded=self.degraded.append,
            on_restored=lambda: self.degraded.append("restored"),
        )
        self._caller = Caller(self._registry, self._providers, _Nowhere(), self, LoopClock(), rng)

    # --- orders ---

    async def call(self, text: str = "a page", calls: int = 1) -> list[Answered]:
        """So many calls at once; returns what came of them."""
        before = len(self.answered)
        await self.start(text, calls)
        await self.settle()
        return self.answered[before:]

    async def start(self, text: str = "a page", calls: int = 1) -> None:
        """Begin calls, and do not wait for them."""
        self._running += [asyncio.create_task(self._ask(text)) for _ in range(calls)]

    async def settle(self) -> None:
        """Wait for the calls that were begun."""
        await asyncio.gather(*self._running)
        self._running.clear()

    async def cancel(self) -> None:
        """Cancel the calls that were begun, and wait until they have ended."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    async def follow(self, starts_s: Sequence[float], at: float) -> list[Answered]:
        """A call at each of these times after the wall clock's ``at``; returns once all are answered."""
        before = len(self.answered)
        for start_s in sorted(starts_s):
            await asyncio.sleep(max(0.0, at + start_s - time.time()))
            await self.start()
        await self.settle()
        return self.answered[before:]

    async def told(self) -> tuple[list[Answered], list[float], list[str]]:
        """What was answered, what this member learned of cooldowns, and what it said of its registry."""
        return self.answered, self.cooled_until, self.degraded

    async def warm(self) -> None:
        """Connect to Redis."""
        await self._registry.statuses(self._chain.targets)

    # --- details ---

    async def _ask(self, text: str) -> None:
        began = time.monotonic()
        request = ChatRequest("describe", (Message("user", (TextPart(text),)),), input_digest=text)
        answer: Answer[Reply] = await self._caller.chat(self._chain, request, CallContext("fleet"))
        tried = tuple(record.kind for record in answer.tries)
        self.answered.append(Answered(answer.position, time.monotonic() - began, answer.tries[-1].skipped, tried))

    async def close(self) -> None:
        await self.cancel()
        await self._providers.close()
        await self._registry.aclose()

    # --- Observer ---

    def tried(self, context: CallContext, role: str, record: TryRecord) -> None:
        """Nothing is counted."""

    def switched(self, switch: Switch) -> None:
        """Nothing is counted."""

    def cooled(self, target: str, kind: str, until: float) -> None:
        self.cooled_until.append(until)

    def recovered(self, target: str) -> None:
        """Nothing is counted."""


class _Nowhere:
    """A sink without a store: attempts are another test's matter."""

    async def begin(self, start: AttemptStart) -> int:
        return 1

    async def end(self, attempt_id: int, record: TryRecord) -> None:
        """Nothing is kept."""

    async def exhausted(self, context: CallContext, role: str, position: int, skipped: tuple[Skip, ...]) -> None:
        """Nothing is kept."""


def run(setup: Setup, number: int, parent: Connection) -> None:
    """The process's whole life: an order is a method's name and its arguments, an answer its result."""

    async def serve() -> None:
        member = Member(setup, number)
        await member.warm()
        parent.send("ready")
        while (order := await asyncio.to_thread(parent.recv)) is not None:
            name, arguments = order
            act: Awaitable[Any] = getattr(member, name)(**arguments)
            parent.send(await act)
        await member.close()

    asyncio.run(serve())
