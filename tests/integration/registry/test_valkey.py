"""The cooldown registry on a real server: the shared suite, and what only a real server shows."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
import redis as sync_redis
from hypothesis import HealthCheck, given, settings
from redis.asyncio import Redis

from pipeline.domain.call import SkipReason
from pipeline.failover.kinds import FailureKind
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.registry import PERMIT_TTL_S, Admitted, Refused, Report, Verdict
from pipeline.failover.target import CooldownPolicy, Target
from pipeline.registry import FallbackRegistry, RedisRegistry, connect_to
from tests.unit.failover.fakes import target
from tests.unit.failover.registry_suite import Bench, RegistrySuite
from tests.unit.failover.test_registries import redis_bench
from tests.unit.registry.test_agreement import agree, histories, worlds

FAILED = Report(Verdict.FAILURE, FailureKind.CONNECT)
SUCCESS = Report(Verdict.SUCCESS)
QUICK = CooldownPolicy(cooldown_s=0.2, jitter=0.0)


def registry_at(url: str, **settings: Any) -> RedisRegistry:
    settings.setdefault("timeout_s", 5.0)
    return RedisRegistry(connect_to(url, settings["timeout_s"]), "tidegate:test", rng=lambda: 0.5, **settings)


class TestRedisRegistryOnValkey(RegistrySuite):
    @pytest.fixture
    async def bench(self, valkey_url: str) -> AsyncIterator[Bench]:
        async with Redis.from_url(valkey_url, decode_responses=True) as client:
            yield redis_bench(client)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(among=worlds, history=histories)
def test_memory_and_valkey_agree_on_every_answer(
    valkey_url: str, among: tuple[Target, ...], history: list[tuple[Any, ...]]
) -> None:
    async def run() -> None:
        async with Redis.from_url(valkey_url, decode_responses=True) as client:
            await client.flushall()
            await agree(among, history, client)

    asyncio.run(run())


@pytest.fixture
async def registry(valkey_url: str) -> AsyncIterator[RedisRegistry]:
    registry = registry_at(valkey_url)
    yield registry
    await registry.aclose()


async def test_times_are_the_servers(registry: RedisRegistry, valkey_url: str) -> None:
    a = target("a")
    admission = await registry.admit(a)
    assert isinstance(admission, Admitted)
    with sync_redis.Redis.from_url(valkey_url) as client:
        seconds, micros = client.time()
    assert 0 <= seconds + micros / 1e6 - admission.permit.admitted_at < 1
    result = await registry.report(a, admission.permit, FAILED)
    assert result.until is not None
    assert result.until - admission.permit.admitted_at == pytest.approx(30, abs=1)


async def test_a_cooldown_ends_by_the_servers_clock(registry: RedisRegistry) -> None:
    a = target("a", cooldown=QUICK)
    admission = await registry.admit(a)
    assert isinstance(admission, Admitted)
    await registry.report(a, admission.permit, FAILED)
    assert isinstance(await registry.admit(a), Refused)
    await asyncio.sleep(0.25)
    probe = await registry.admit(a)
    assert isinstance(probe, Admitted)
    assert probe.permit.probe


async def test_fifty_callers_at_once_get_exactly_one_probe_every_time(registry: RedisRegistry) -> None:
    for trial in range(20):
        a = target(f"a{trial}", cooldown=CooldownPolicy(cooldown_s=0.001, jitter=0.0))
        admission = await registry.admit(a)
        assert isinstance(admission, Admitted)
        await registry.report(a, admission.permit, FAILED)
        await asyncio.sleep(0.005)
        admissions = await asyncio.gather(*(registry.admit(a) for _ in range(50)))
        assert sum(isinstance(each, Admitted) for each in admissions) == 1


async def test_lost_scripts_and_lost_keys_are_normal(registry: RedisRegistry, valkey_url: str) -> None:
    a = target("a")
    admission = await registry.admit(a)
    assert isinstance(admission, Admitted)
    with sync_redis.Redis.from_url(valkey_url) as client:
        client.script_flush()
        client.flushall()
    assert not await registry.renew(admission.permit)
    assert (await registry.report(a, admission.permit, FAILED)).opened


@pytest.mark.behaviour(33)
async def test_a_flushed_server_forgets_no_kill_switch(valkey_url: str) -> None:
    a = target("a")

    async def switches() -> set[str]:
        return {a.key}

    registry = registry_at(valkey_url, switches=switches)
    assert await registry.admit(a) == Refused(SkipReason.DISABLED)
    with sync_redis.Redis.from_url(valkey_url) as client:
        client.flushall()
    assert await registry.admit(a) == Refused(SkipReason.DISABLED)
    await registry.aclose()


async def test_a_connection_that_the_server_closed_is_replaced_without_a_word(
    registry: RedisRegistry, valkey_url: str
) -> None:
    a = target("a")
    await registry.admit(a)
    with sync_redis.Redis.from_url(valkey_url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    assert isinstance(await registry.admit(a), Admitted)


async def test_a_call_that_gives_up_on_its_answer_does_not_hand_it_to_the_next(valkey_url: str) -> None:
    registry = registry_at(valkey_url)
    a, b = target("a"), target("b", max_parallel=1)
    with sync_redis.Redis.from_url(valkey_url) as client:
        await registry.admit(a)
        client.execute_command("CLIENT", "PAUSE", "300", "ALL")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(registry.statuses([a, a, a]), 0.05)
    assert isinstance(await registry.admit(b), Admitted)
    assert await registry.admit(b) == Refused(SkipReason.FULL)
    await registry.aclose()


@pytest.mark.behaviour(23)
async def test_a_paused_server_costs_a_call_no_more_than_the_bound(valkey_url: str) -> None:
    said: list[str] = []
    redis = registry_at(valkey_url, timeout_s=0.25)
    registry = FallbackRegistry(
        redis,
        MemoryRegistry(time.time, lambda: 0.5),
        monotonic=time.monotonic,
        on_degraded=said.append,
        on_restored=lambda: said.append("restored"),
        retry_s=0.6,
    )
    a = target("a")
    await registry.statuses([a])
    with sync_redis.Redis.from_url(valkey_url) as client:
        client.execute_command("CLIENT", "PAUSE", "900", "ALL")
    began = time.monotonic()
    admission = await registry.admit(a)
    assert isinstance(admission, Admitted)
    await registry.report(a, admission.permit, SUCCESS)
    # One wait, not one for each of the two questions.
    assert time.monotonic() - began < 2 * 0.25
    assert said == ["Redis did not answer within 0.25 s"]
    while said[-1] != "restored":
        await asyncio.sleep(0.05)
        await registry.statuses([a])
        assert time.monotonic() - began < 10
    assert said == ["Redis did not answer within 0.25 s", "restored"]
    await registry.aclose()


async def test_a_frozen_server_that_wakes_holds_no_place_for_who_gave_up_waiting(valkey_url: str) -> None:
    redis = registry_at(valkey_url, timeout_s=0.25)
    local = MemoryRegistry(time.time, lambda: 0.5)
    registry = FallbackRegistry(
        redis,
        local,
        monotonic=time.monotonic,
        on_degraded=lambda reason: None,
        on_restored=lambda: None,
        retry_s=0.5,
    )
    a, b = target("a", max_parallel=1), target("b", max_parallel=1)
    held = await registry.admit(a)
    assert isinstance(held, Admitted)
    with sync_redis.Redis.from_url(valkey_url) as client:
        server = int(client.info("server")["process_id"])
    os.kill(server, signal.SIGSTOP)
    try:
        instead = await registry.admit(b)
        assert isinstance(instead, Admitted)
        assert local.holds(instead.permit)
        await registry.report(b, instead.permit, SUCCESS)
        await registry.report(a, held.permit, SUCCESS)
    finally:
        os.kill(server, signal.SIGCONT)
    fleet = registry_at(valkey_url)
    began = time.monotonic()
    while any(status.in_flight for status in await fleet.statuses([a, b])):
        assert time.monotonic() - began < PERMIT_TTL_S / 2
        await asyncio.sleep(0.05)
    await fleet.aclose()
    await registry.aclose()


async def test_nobody_at_the_other_end_is_found_out_at_once() -> None:
    said: list[str] = []
    registry = FallbackRegistry(
        registry_at("redis://127.0.0.1:1/0", timeout_s=0.25),
        MemoryRegistry(time.time, lambda: 0.5),
        monotonic=time.monotonic,
        on_degraded=said.append,
        on_restored=lambda: None,
    )
    assert isinstance(await registry.admit(target("a")), Admitted)
    assert len(said) == 1
    await registry.aclose()


def test_each_event_loop_has_its_own_connection(valkey_url: str) -> None:
    registry = registry_at(valkey_url)

    async def use() -> None:
        assert isinstance(await registry.admit(target("a")), Admitted)
        await registry.aclose()

    asyncio.run(use())
    asyncio.run(use())


# --- real processes -------------------------------------------------------------------------------------------------

SHARED = target("shared", max_parallel=3, cooldown=QUICK)


async def _fail(registry: RedisRegistry, parent: Connection) -> None:
    admission = await registry.admit(SHARED)
    assert isinstance(admission, Admitted)
    await registry.report(SHARED, admission.permit, FAILED)
    parent.send("failed")


async def _hold(registry: RedisRegistry, parent: Connection) -> None:
    admissions = [await registry.admit(SHARED) for _ in range(4)]
    parent.send([isinstance(admission, Admitted) for admission in admissions])
    parent.recv()


async def _rush(registry: RedisRegistry, parent: Connection) -> None:
    await registry.statuses([SHARED])
    parent.send("ready")
    await asyncio.to_thread(parent.recv)
    admissions = await asyncio.gather(*(registry.admit(SHARED) for _ in range(10)))
    parent.send(
        [
            admission.reason if isinstance(admission, Refused) else str(admission.permit.probe)
            for admission in admissions
        ]
    )
    parent.recv()


WORK = {"fail": _fail, "hold": _hold, "rush": _rush}


def _in_a_process(url: str, work: str, parent: Connection) -> None:
    async def run() -> None:
        registry = registry_at(url, permit_ttl_s=1.0)
        await WORK[work](registry, parent)
        await registry.aclose()

    asyncio.run(run())


Start = Callable[[str], tuple[Any, Any, Any]]


@pytest.fixture
def start(valkey_url: str) -> Iterator[Start]:
    """Starts a process with some work; returns it, its pipe, and the first thing it says."""
    context, started = multiprocessing.get_context("spawn"), []

    def start(work: str) -> tuple[Any, Any, Any]:
        ours, theirs = context.Pipe()
        process = context.Process(target=_in_a_process, args=(valkey_url, work, theirs))
        process.start()
        theirs.close()
        started.append((process, ours))
        return process, ours, ours.recv()

    yield start
    for process, ours in started:
        process.kill()
        process.join(30)
        process.close()
        ours.close()


async def test_a_cooldown_set_by_one_process_holds_in_another_at_its_next_call(
    start: Start, registry: RedisRegistry
) -> None:
    slow = Target(SHARED.key, SHARED.preset, SHARED.model)
    assert isinstance(await registry.admit(slow), Admitted)
    _, _, answer = await asyncio.to_thread(start, "fail")
    assert answer == "failed"
    status = (await registry.statuses([slow]))[0]
    assert status.failures == 1
    assert status.state in ("open", "half_open")


@pytest.mark.behaviour(21)
async def test_a_killed_process_gives_its_permits_back_by_itself(start: Start, registry: RedisRegistry) -> None:
    process, _, answer = await asyncio.to_thread(start, "hold")
    assert answer == [True, True, True, False]
    assert await registry.admit(SHARED) == Refused(SkipReason.FULL)
    process.kill()
    await asyncio.to_thread(process.join, 30)
    await asyncio.sleep(1.1)
    assert (await registry.statuses([SHARED]))[0].in_flight == 0
    assert isinstance(await registry.admit(SHARED), Admitted)


@pytest.mark.behaviour(10)
async def test_fifty_callers_in_five_processes_get_exactly_one_probe(start: Start, registry: RedisRegistry) -> None:
    pipes = [(await asyncio.to_thread(start, "rush"))[1] for _ in range(5)]
    admission = await registry.admit(SHARED)
    assert isinstance(admission, Admitted)
    await registry.report(SHARED, admission.permit, FAILED)
    await asyncio.sleep(0.25)
    for pipe in pipes:
        pipe.send("go")
    said = [each for pipe in pipes for each in await asyncio.to_thread(pipe.recv)]
    assert sorted(said) == ["True", *["probing"] * 49]


@pytest.mark.behaviour(11)
async def test_when_the_probing_process_is_killed_another_probes_after_its_lease(
    start: Start, registry: RedisRegistry
) -> None:
    admission = await registry.admit(SHARED)
    assert isinstance(admission, Admitted)
    await registry.report(SHARED, admission.permit, FAILED)
    await asyncio.sleep(0.25)
    process, _, answer = await asyncio.to_thread(start, "hold")
    assert answer == [True, False, False, False]
    process.kill()
    refusal = await registry.admit(SHARED)
    assert isinstance(refusal, Refused)
    assert refusal.reason is SkipReason.PROBING
    assert refusal.wait_s is not None
    await asyncio.sleep(refusal.wait_s + 0.05)
    probe = await registry.admit(SHARED)
    assert isinstance(probe, Admitted)
    assert probe.permit.probe
    assert (await registry.report(SHARED, probe.permit, SUCCESS)).closed
