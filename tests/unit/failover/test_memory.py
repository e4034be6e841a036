"""What the in-memory registry does besides: shares, switches and cooldowns taken over from elsewhere."""

from __future__ import annotations

from pipeline.domain.call import SkipReason
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.registry import Admitted, Refused
from tests.unit.failover.fakes import target


class Fleet:
    def __init__(self, size: int = 1) -> None:
        self.now, self.size = 1000.0, size
        self.registry = MemoryRegistry(now=lambda: self.now, rng=lambda: 0.5, sharers=lambda: self.size)


async def test_each_process_takes_its_share_of_max_parallel_and_at_least_one() -> None:
    for size, share in ((1, 8), (3, 2), (0, 8), (100, 1)):
        fleet, a = Fleet(size), target("a", max_parallel=8)
        admissions = [await fleet.registry.admit(a) for _ in range(9)]
        assert sum(isinstance(admission, Admitted) for admission in admissions) == share


async def test_kill_switches_are_taken_over_as_a_whole() -> None:
    fleet, a, b = Fleet(), target("a"), target("b")
    await fleet.registry.set_disabled(a.key, True)
    fleet.registry.replace_disabled([b.key])
    assert isinstance(await fleet.registry.admit(a), Admitted)
    assert await fleet.registry.admit(b) == Refused(SkipReason.DISABLED)


async def test_a_cooldown_that_was_told_of_elsewhere_is_kept() -> None:
    fleet, a = Fleet(), target("a")
    fleet.registry.remember(a.key, Refused(SkipReason.COOLING, 99_999.0, 20.0, "rate_limit"))
    fleet.registry.remember(a.key, Refused(SkipReason.COOLING, 99_999.0, 5.0, "timeout"))
    fleet.registry.remember(a.key, Refused(SkipReason.FULL))
    refusal = await fleet.registry.admit(a)
    assert isinstance(refusal, Refused)
    assert (refusal.reason, refusal.wait_s) == (SkipReason.COOLING, 20)
    fleet.now += 21
    admission = await fleet.registry.admit(a)
    assert isinstance(admission, Admitted)
    assert admission.permit.probe
    assert fleet.registry.holds(admission.permit)
