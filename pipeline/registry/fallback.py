"""The registry that a worker uses: Redis, and while it is away the process's own memory.

An ingest is never stopped by its own bookkeeping. Each operation waits a bounded time for Redis; then this process
goes on with local breakers, a fair share of each ``max_parallel``, and the cooldowns and kill switches it last knew.
It says so once, and tries Redis again every few seconds.

A Redis that was frozen still holds the permits of calls that ended meanwhile, and once it wakes it also hears the
questions that nobody waits for any more. Those permits are given back then: a target with few places would otherwise
seem full until their leases lapse.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import uuid4

from pipeline.domain.call import SkipReason
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.registry import Admission, Permit, Refused, Report, ReportResult, TargetStatus, Verdict
from pipeline.failover.target import Target
from pipeline.registry.redis import RedisRegistry, RegistryAway, Switches

__all__ = ["FallbackRegistry"]

RETRY_S = 3.0
"""How often a process that goes on without Redis tries it again."""
OWED_KEPT = 1000
"""A process remembers this many permits that Redis may hold for nobody; older ones lapse by themselves."""

T = TypeVar("T")


class FallbackRegistry:
    """``CooldownRegistry`` that no operation of raises because Redis is away.

    Args:
        redis: The fleet's registry.
        local: This process's, with ``sharers`` set to the fleet's size.
        monotonic: Seconds that only go forward.
        on_degraded: Told once, with the reason, when this process goes on alone.
        on_restored: Told once when Redis is back.
        switches: Reads the kill switches from their truth, for the time without Redis; None where nobody keeps any.
        retry_s: How often Redis is tried again.
    """

    def __init__(
        self,
        redis: RedisRegistry,
        local: MemoryRegistry,
        *,
        monotonic: Callable[[], float],
        on_degraded: Callable[[str], None],
        on_restored: Callable[[], None],
        switches: Switches | None = None,
        retry_s: float = RETRY_S,
    ) -> None:
        self._redis = redis
        self._local = local
        self._monotonic = monotonic
        self._on_degraded = on_degraded
        self._on_restored = on_restored
        self._switches = switches
        self._retry_s = retry_s
        self._retry_at: float | None = None
        self._refusal: str | None = None
        self._reading: asyncio.Future[None] | None = None
        # Permits that Redis may hold though nobody here does: token -> its target, the oldest first.
        self._owed: OrderedDict[str, Target] = OrderedDict()
        self._giving_back: asyncio.Future[None] | None = None

    @property
    def degraded(self) -> bool:
        """Whether this process goes on without Redis now."""
        return self._retry_at is not None

    @property
    def refusal(self) -> str | None:
        """What Redis said when this process went on without it; None when it did not answer, or is back."""
        return self._refusal if self.degraded else None

    async def admit(self, target: Target) -> Admission:
        admission = await self._either(lambda: self._ask_to_admit(target), lambda: self._local.admit(target))
        if isinstance(admission, Refused) and admission.reason is SkipReason.COOLING and not self.degraded:
            self._local.remember(target.key, admission)
        return admission

    async def renew(self, permit: Permit) -> bool:
        if self._local.holds(permit):
            return await self._local.renew(permit)
        return await self._either(lambda: self._redis.renew(permit), lambda: self._local.renew(permit))

    async def first_content(self, target: Target, permit: Permit) -> ReportResult:
        return await self._either(
            lambda: self._redis.first_content(target, permit), lambda: self._local.first_content(target, permit)
        )

    async def report(self, target: Target, permit: Permit, report: Report) -> ReportResult:
        ours = self._local.holds(permit)
        if ours and not self.degraded:
            await self._local.report(target, permit, Report(Verdict.NEUTRAL))

        def locally() -> Awaitable[ReportResult]:
            if not ours:
                self._owe(target, permit.token)
            return self._local.report(target, permit, report)

        return await self._either(lambda: self._redis.report(target, permit, report), locally)

    async def statuses(self, targets: Sequence[Target]) -> list[TargetStatus]:
        return await self._either(lambda: self._redis.statuses(targets), lambda: self._local.statuses(targets))

    async def reset(self, target: str) -> None:
        await self._local.reset(target)
        await self._either(lambda: self._redis.reset(target), lambda: self._local.reset(target))

    async def set_disabled(self, target: str, disabled: bool) -> None:
        await self._local.set_disabled(target, disabled)
        await self._either(
            lambda: self._redis.set_disabled(target, disabled), lambda: self._local.set_disabled(target, disabled)
        )

    async def aclose(self) -> None:
        """Close the running loop's connection to Redis; what is owed lapses."""
        if self._giving_back is not None:
            self._giving_back.cancel()
        await self._redis.aclose()

    # --- details ---

    async def _ask_to_admit(self, target: Target) -> Admission:
        token = uuid4().hex
        try:
            return await self._redis.admit(target, token)
        except RegistryAway:
            self._owe(target, token)
            raise

    def _owe(self, target: Target, token: str) -> None:
        self._owed[token] = target
        if len(self._owed) > OWED_KEPT:
            self._owed.popitem(last=False)
        if self._giving_back is None or self._giving_back.done():
            self._giving_back = asyncio.ensure_future(self._give_back())

    async def _give_back(self) -> None:
        while self._owed:
            await asyncio.sleep(self._retry_s)
            for token, target in list(self._owed.items()):
                if not await self._is_given_back(token, target):
                    break
                self._owed.pop(token, None)

    async def _is_given_back(self, token: str, target: Target) -> bool:
        async def told() -> bool:
            await self._redis.give_back(target, token)
            return True

        async def not_now() -> bool:
            return False

        return await self._either(told, not_now)

    async def _either(self, redis: Callable[[], Awaitable[T]], local: Callable[[], Awaitable[T]]) -> T:
        if self._retry_at is not None and self._monotonic() < self._retry_at:
            await self._switches_are_read()
            return await local()
        retrying = self._retry_at is not None
        if retrying:
            # One operation finds out; the others of this process do not wait for it.
            self._retry_at = self._monotonic() + self._retry_s
        try:
            answer = await redis()
        except RegistryAway as away:
            self._refusal = away.refusal
            await self._go_on_alone(str(away), retrying=retrying)
            return await local()
        if self._retry_at is not None:
            self._retry_at = None
            self._on_restored()
        return answer

    async def _go_on_alone(self, reason: str, *, retrying: bool) -> None:
        first = self._retry_at is None
        self._retry_at = self._monotonic() + self._retry_s
        if first:
            self._on_degraded(reason)
        if self._switches is not None and (first or retrying):
            self._reading = asyncio.ensure_future(self._read_switches(self._switches))
        await self._switches_are_read()

    async def _switches_are_read(self) -> None:
        """Operations that find Redis away together read the switches once, and none goes on without them."""
        if self._reading is not None and not self._reading.done():
            await asyncio.shield(self._reading)

    async def _read_switches(self, switches: Switches) -> None:
        self._local.replace_disabled(await switches())
