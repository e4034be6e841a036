"""The registry that a worker uses: Redis, and while it is away the process's own memory.

An ingest is never stopped by its own bookkeeping. Each operation waits a bounded time for Redis; then this process
goes on with local breakers, a fair share of each ``max_parallel``, and the cooldowns and kill switches it last knew.
It says so once, and tries Redis again every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pipeline.domain.call import SkipReason
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.registry import Admission, Permit, Refused, Report, ReportResult, TargetStatus, Verdict
from pipeline.failover.target import Target
from pipeline.registry.redis import RedisRegistry, RegistryAway, Switches

__all__ = ["FallbackRegistry"]

RETRY_S = 3.0
"""How often a process that goes on without Redis tries it again."""

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
        self._reading: asyncio.Future[None] | None = None

    @property
    def degraded(self) -> bool:
        """Whether this process goes on without Redis now."""
        return self._retry_at is not None

    async def admit(self, target: Target) -> Admission:
        admission = await self._either(lambda: self._redis.admit(target), lambda: self._local.admit(target))
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
        if self._local.holds(permit) and not self.degraded:
            await self._local.report(target, permit, Report(Verdict.NEUTRAL))
        return await self._either(
            lambda: self._redis.report(target, permit, report), lambda: self._local.report(target, permit, report)
        )

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
        """Close the running loop's connection to Redis."""
        await self._redis.aclose()

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
