"""A worker's registry while Redis is slow, away and back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import fakeredis
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from pipeline.domain.call import SkipReason
from pipeline.failover.kinds import FailureKind
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.registry import Admitted, BreakerState, Refused, Report, Verdict
from pipeline.failover.target import Target
from pipeline.registry import FallbackRegistry, RedisRegistry, fallback
from tests.unit.failover.fakes import target
from tests.unit.failover.virtual_time import virtual

FAILED = Report(Verdict.FAILURE, FailureKind.CONNECT)
SUCCESS = Report(Verdict.SUCCESS)


class Server:
    """A client whose server can be slow or away."""

    def __init__(self) -> None:
        self.client = fakeredis.FakeAsyncRedis(decode_responses=True)
        self.state, self.asked = "up", 0
        self.waiting: list[tuple[Any, ...]] = []
        self.connection_pool = self.client.connection_pool

    async def evalsha(self, *args: Any) -> Any:
        self.asked += 1
        if self.state == "away":
            msg = "Connection refused"
            raise RedisConnectionError(msg)
        if self.state == "slow":
            self.waiting.append(args)
            await asyncio.sleep(1e9)
        return await self.client.evalsha(*args)

    async def eval(self, *args: Any) -> Any:
        return await self.client.eval(*args)

    async def thaw(self) -> None:
        """Answer again; what was sent meanwhile lies in its sockets, and is heard though nobody waits for it."""
        self.state = "up"
        for args in self.waiting:
            await self.client.evalsha(*args)
        self.waiting.clear()

    async def aclose(self) -> None:
        await self.client.aclose()


@dataclass
class Worker:
    server: Server = field(default_factory=Server)
    said: list[str] = field(default_factory=list)
    off: set[str] = field(default_factory=set)
    reads: int = 0
    fleet_size: int = 2

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        redis = RedisRegistry(
            lambda: self.server,  # type: ignore[arg-type,return-value]
            "tidegate:test",
            rng=lambda: 0.5,
            switches=self.switches,
        )
        local = MemoryRegistry(lambda: 1000 + loop.time(), lambda: 0.5, sharers=lambda: self.fleet_size)
        self.registry = FallbackRegistry(
            redis,
            local,
            monotonic=loop.time,
            on_degraded=lambda reason: self.said.append(f"degraded: {reason}"),
            on_restored=lambda: self.said.append("restored"),
            switches=self.switches,
        )

    async def switches(self) -> Collection[str]:
        self.reads += 1
        await asyncio.sleep(0)
        return set(self.off)

    async def permit(self, of: Target) -> Any:
        admission = await self.registry.admit(of)
        assert isinstance(admission, Admitted), admission
        return admission.permit


@virtual
async def test_with_redis_there_everything_is_the_fleets() -> None:
    worker, a = Worker(), target("a")
    await worker.registry.report(a, await worker.permit(a), FAILED)
    other = Worker(server=worker.server)
    admission = await other.registry.admit(a)
    assert isinstance(admission, Refused)
    assert admission.reason is SkipReason.COOLING
    assert worker.said == other.said == []
    await worker.registry.aclose()


@virtual
async def test_a_frozen_redis_costs_at_most_the_bound_once_and_is_reported_once() -> None:
    worker, a = Worker(), target("a")
    worker.server.state = "slow"
    loop = asyncio.get_running_loop()
    permits = await asyncio.gather(*(worker.permit(a) for _ in range(20)))
    assert loop.time() == 0.25
    for permit in permits:
        assert await worker.registry.renew(permit)
        await worker.registry.first_content(a, permit)
        await worker.registry.report(a, permit, SUCCESS)
    assert loop.time() == 0.25
    assert worker.said == ["degraded: Redis did not answer within 0.25 s"]
    assert worker.registry.degraded


@virtual
async def test_without_redis_a_process_takes_its_share_and_keeps_its_own_cooldowns() -> None:
    worker, a, b = Worker(), target("a", max_parallel=4), target("b")
    worker.server.state = "away"
    first, _ = await worker.permit(a), await worker.permit(a)
    assert await worker.registry.admit(a) == Refused(SkipReason.FULL)
    assert (await worker.registry.report(a, first, FAILED)).opened
    statuses = await worker.registry.statuses([a, b])
    assert [status.state for status in statuses] == [BreakerState.OPEN, BreakerState.CLOSED]
    await worker.registry.reset(a.key)
    await worker.registry.set_disabled(b.key, True)
    statuses = await worker.registry.statuses([a, b])
    assert [status.state for status in statuses] == [BreakerState.CLOSED, BreakerState.DISABLED]
    assert worker.said == ["degraded: ConnectionError: Connection refused"]


@virtual
async def test_a_cooldown_and_a_switch_known_from_redis_hold_when_it_goes_away() -> None:
    worker, a, b = Worker(), target("a"), target("b")
    await worker.registry.report(a, await worker.permit(a), FAILED)
    await worker.registry.admit(a)
    worker.off = {b.key}
    worker.server.state = "away"
    admissions = await asyncio.gather(worker.registry.admit(b), worker.registry.admit(b), worker.registry.admit(a))
    assert [getattr(admission, "reason", None) for admission in admissions] == ["disabled", "disabled", "cooling"]
    assert worker.reads == 2, "once for Redis, once without it"


@virtual
async def test_redis_is_tried_again_every_few_seconds_by_one_operation_and_its_return_is_told_once() -> None:
    worker, a = Worker(), target("a")
    worker.server.state = "away"
    local = await worker.permit(a)
    worker.server.asked = 0
    for _ in range(29):
        await asyncio.sleep(0.1)
        await worker.registry.statuses([a])
    assert worker.server.asked == 0
    await asyncio.sleep(0.2)
    worker.server.state = "slow"
    await asyncio.gather(*(worker.registry.statuses([a]) for _ in range(10)))
    assert worker.server.asked == 1
    worker.server.state = "up"
    await asyncio.sleep(4)
    await asyncio.gather(*(worker.registry.statuses([a]) for _ in range(10)))
    assert worker.said[1:] == ["restored"]
    assert not worker.registry.degraded
    # A permit that was given meanwhile is still this process's.
    assert await worker.registry.renew(local)
    assert (await worker.registry.report(a, local, FAILED)).opened
    assert isinstance(await worker.registry.admit(a), Refused)


@virtual
async def test_a_permit_of_redis_is_settled_locally_while_it_is_away() -> None:
    worker, a = Worker(), target("a")
    permit = await worker.permit(a)
    worker.server.state = "away"
    assert not await worker.registry.renew(permit)
    assert (await worker.registry.report(a, permit, FAILED)).opened


@virtual
async def test_permits_that_a_frozen_redis_holds_for_nobody_are_given_back_when_it_wakes() -> None:
    worker, a, b = Worker(), target("a", max_parallel=1), target("b", max_parallel=1)
    held = await worker.permit(a)
    worker.server.state = "slow"
    # Asked for in vain, then asked for and given up; and a call that ends without Redis.
    await worker.registry.report(b, await worker.permit(b), SUCCESS)
    await worker.registry.report(a, held, SUCCESS)
    await worker.server.thaw()
    other = Worker(server=worker.server)
    assert await other.registry.admit(a) == await other.registry.admit(b) == Refused(SkipReason.FULL)
    await asyncio.sleep(4)
    assert worker.said[1:] == ["restored"]
    await other.permit(a)
    await other.permit(b)


@virtual
async def test_what_is_owed_to_a_redis_that_stays_away_is_bounded_and_dies_with_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fallback, "OWED_KEPT", 20)
    worker, a = Worker(), target("a")
    permits = [await worker.permit(a) for _ in range(30)]
    worker.server.state = "away"
    for permit in permits:
        await worker.registry.report(a, permit, SUCCESS)
    worker.server.asked = 0
    await asyncio.sleep(30)
    assert worker.server.asked < 20
    worker.server.state = "up"
    await asyncio.sleep(4)
    assert (await worker.registry.statuses([a]))[0].in_flight == 10
    worker.server.state = "away"
    await worker.registry.report(a, await worker.permit(a), SUCCESS)
    await worker.registry.aclose()
    asked = worker.server.asked
    await asyncio.sleep(30)
    assert worker.server.asked == asked


@pytest.mark.behaviour(33)
@virtual
async def test_a_flushed_redis_reads_the_kill_switches_again() -> None:
    worker, a, b = Worker(), target("a"), target("b")
    worker.off = {a.key}
    assert await worker.registry.admit(a) == Refused(SkipReason.DISABLED)
    assert worker.reads == 1
    await worker.permit(b)
    assert worker.reads == 1, "they are cached"
    await worker.server.client.flushall()
    assert await worker.registry.admit(a) == Refused(SkipReason.DISABLED)
    assert worker.reads == 2


@pytest.mark.behaviour(35)
@pytest.mark.parametrize("name", ["a", "it's [a] *strange* name\n"])
async def test_two_installations_on_one_redis_do_not_see_each_other(name: str) -> None:
    client = fakeredis.FakeAsyncRedis(decode_responses=True)
    one, two = (RedisRegistry(lambda: client, f"tidegate:{n}", rng=lambda: 0.5, timeout_s=5) for n in "12")
    a = target(name, quota_group="org")
    admission = await one.admit(a)
    assert isinstance(admission, Admitted)
    await one.report(a, admission.permit, Report(Verdict.FAILURE, FailureKind.RATE_LIMIT))
    await one.set_disabled(a.key, True)
    assert isinstance(await two.admit(a), Admitted)
    keys: list[Any] = await client.keys()
    assert {key.split(":reg:")[0] for key in keys} == {"tidegate:1", "tidegate:2"}
    await one.aclose()
    await one.aclose()
