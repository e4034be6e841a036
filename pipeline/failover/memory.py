"""The cooldown registry of one process: the core's own, and what workers carry on with while Redis is away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import count

from pipeline.failover import breaker as breakers
from pipeline.failover.breaker import Breaker, GroupCooldown
from pipeline.failover.registry import Admission, Permit, Refused, Report, ReportResult, TargetStatus
from pipeline.failover.target import Target

__all__ = ["MemoryRegistry"]


class MemoryRegistry:
    """A ``CooldownRegistry`` in a dictionary.

    It belongs to one event loop: no operation waits, so none interleaves with another.

    Args:
        now: Seconds since the epoch; the clock of all its times.
        rng: Uniform in [0, 1), for the cooldowns' jitter.
        sharers: How many processes there are, each of which takes its share of ``max_parallel``.
    """

    def __init__(
        self, now: Callable[[], float], rng: Callable[[], float], sharers: Callable[[], int] = lambda: 1
    ) -> None:
        self._now = now
        self._rng = rng
        self._sharers = sharers
        self._tokens = count(1)
        self._breakers: dict[str, Breaker] = {}
        self._groups: dict[str, GroupCooldown] = {}

    async def admit(self, target: Target) -> Admission:
        token = f"local-{next(self._tokens)}"
        breaker, admission = breakers.admit(self._of(target), target.key, self._share_of(target), token, self._now())
        self._breakers[target.key] = breaker
        return admission

    async def renew(self, permit: Permit) -> bool:
        breaker, held = breakers.renew(self._breakers.get(permit.target, Breaker()), permit.token, self._now())
        self._breakers[permit.target] = breaker
        return held

    async def first_content(self, target: Target, permit: Permit) -> ReportResult:
        breaker, result = breakers.first_content(self._of(target), self._share_of(target), permit, self._now())
        self._breakers[target.key] = breaker
        return result

    async def report(self, target: Target, permit: Permit, report: Report) -> ReportResult:
        now = self._now()
        rule = None if report.kind is None else target.rules[report.kind]
        breaker, result = breakers.report(
            self._of(target), target.cooldown, rule, self._share_of(target), permit, report, now, self._rng()
        )
        self._breakers[target.key] = breaker
        if target.quota_group is not None and breakers.cools_group(report, rule):
            standing = self._groups.get(target.quota_group)
            until = max(breaker.until, standing.until if standing is not None else 0.0)
            self._groups[target.quota_group] = GroupCooldown(now, until, str(report.kind))
        return result

    async def statuses(self, targets: Sequence[Target]) -> list[TargetStatus]:
        now = self._now()
        return [breakers.status(self._of(target), target.key, now) for target in targets]

    async def reset(self, target: str) -> None:
        self._breakers[target] = breakers.reset(self._breakers.get(target, Breaker()), self._now())

    async def set_disabled(self, target: str, disabled: bool) -> None:
        self._breakers[target] = replace(self._breakers.get(target, Breaker()), disabled=disabled)

    # --- for the registry that falls back on this one ---

    def replace_disabled(self, targets: Collection[str]) -> None:
        """Take over the kill switches as a whole."""
        for target in {*self._breakers, *targets}:
            breaker = self._breakers.get(target, Breaker())
            self._breakers[target] = replace(breaker, disabled=target in targets)

    def remember(self, target: str, refusal: Refused) -> None:
        """Take over a cooldown that another registry told of."""
        if refusal.wait_s is not None:
            now, breaker = self._now(), self._breakers.get(target, Breaker())
            until = max(breaker.until, now + refusal.wait_s)
            self._breakers[target] = replace(
                breaker, open=True, until=until, opened_at=now, kind=refusal.kind, ramp=None
            )

    def holds(self, permit: Permit) -> bool:
        """Whether this registry gave the permit."""
        return permit.token in self._breakers.get(permit.target, Breaker()).permits

    # --- details ---

    def _of(self, target: Target) -> Breaker:
        breaker = self._breakers.get(target.key, Breaker())
        group = None if target.quota_group is None else self._groups.get(target.quota_group)
        return breakers.join_group(breaker, group)

    def _share_of(self, target: Target) -> int | None:
        if target.max_parallel is None:
            return None
        return max(1, target.max_parallel // max(1, self._sharers()))
