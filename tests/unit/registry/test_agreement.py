"""The Lua and the Python say the same: one random history, both registries, answer by answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.failover.kinds import PRESET_RULES, FailureKind
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.registry import Admitted, Permit, Report, ReportResult, TargetStatus, Verdict
from pipeline.failover.target import CooldownPolicy, Target
from pipeline.registry import RedisRegistry
from tests.unit.failover.fakes import target
from tests.unit.failover.registry_suite import Bench
from tests.unit.failover.test_registries import memory_bench, redis_bench

policy = st.builds(
    CooldownPolicy,
    cooldown_s=st.sampled_from([1.0, 30.0]),
    cooldown_max_s=st.sampled_from([40.0, 600.0]),
    config_cooldown_s=st.just(50.0),
    allowed_fails=st.integers(0, 2),
    fail_window_s=st.just(20.0),
    streak=st.integers(1, 3),
)


@st.composite
def targets(draw: st.DrawFn, name: str) -> Target:
    return target(
        name,
        max_parallel=draw(st.sampled_from([None, None, 2, 3])),
        quota_group=draw(st.sampled_from([None, "org"])),
        cooldown=draw(policy),
        rules=PRESET_RULES[draw(st.sampled_from(["standard", "permissive"]))],
    )


kinds = st.sampled_from(
    [FailureKind.CONNECT, FailureKind.SERVER_ERROR, FailureKind.RATE_LIMIT, FailureKind.INVALID_OUTPUT, *FailureKind]
)
failures = st.builds(
    Report,
    verdict=st.just(Verdict.FAILURE),
    kind=kinds,
    retry_after_s=st.sampled_from([None, None, None, 2.5, 100.0, -1.0]),
    input_digest=st.sampled_from([None, "one", "two", "three"]),
)
reports = st.one_of(
    st.just(Report(Verdict.SUCCESS)),
    st.just(Report(Verdict.SUCCESS)),
    failures,
    failures,
    st.just(Report(Verdict.NEUTRAL)),
)
which = st.sampled_from([0, 0, 0, 0, 1, 2])
# Of the permits given so far, mostly the newest.
recent = st.sampled_from([-1, -1, -1, -2, -3, 0])
steps = st.one_of(
    st.tuples(st.just("admit"), which),
    st.tuples(st.just("admit"), which),
    st.tuples(st.just("admit"), which),
    st.tuples(st.just("report"), recent, reports),
    st.tuples(st.just("report"), recent, reports),
    st.tuples(st.just("report"), recent, reports),
    st.tuples(st.just("first_content"), recent),
    st.tuples(st.just("renew"), recent),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 3.0, 29.0, 31.0, 31.0, 200.0])),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 3.0, 29.0, 31.0, 31.0, 200.0])),
    st.tuples(st.sampled_from(["reset", "disable", "enable", "enable"]), which),
)


class Follower:
    """Plays steps on one registry and keeps the permits that it gave."""

    def __init__(self, bench: Bench, among: tuple[Target, ...]) -> None:
        self.bench = bench
        self.among = among
        self.permits: list[tuple[Target, Permit]] = []

    async def play(self, step: tuple[Any, ...]) -> Any:
        what, registry = step[0], self.bench.registry
        if what == "admit":
            of = self.among[step[1]]
            admission = await registry.admit(of)
            if isinstance(admission, Admitted):
                self.permits.append((of, admission.permit))
                return replace(admission.permit, token="")
            return admission
        if what == "advance":
            return await self.bench.advance(step[1])
        if what == "reset":
            return await registry.reset(self.among[step[1]].key)
        if what in ("disable", "enable"):
            return await registry.set_disabled(self.among[step[1]].key, what == "disable")
        if not self.permits:
            return None
        at = max(step[1], -len(self.permits))
        of, permit = self.permits[at]
        if what == "report":
            # Sometimes the same permit is reported again.
            self.permits = self.permits if at == 0 else [*self.permits[:at], *self.permits[at:][1:]]
            return await registry.report(of, permit, step[2])
        if what == "renew":
            return await registry.renew(permit)
        return await registry.first_content(of, permit)

    async def statuses(self) -> list[TargetStatus]:
        return await self.bench.registry.statuses(self.among)


def rounded(answer: Any) -> Any:
    """Times to the millisecond: Redis keeps them as text of microseconds."""
    if isinstance(answer, list):
        return [rounded(each) for each in answer]
    if isinstance(answer, ReportResult | TargetStatus) or hasattr(answer, "wait_s"):
        return replace(
            answer,
            until=None if answer.until is None else round(answer.until, 3),
            wait_s=None if answer.wait_s is None else round(answer.wait_s, 3),
        )
    return answer


worlds = st.tuples(targets("a"), targets("b"), targets("c"))
histories = st.lists(steps, min_size=10, max_size=60)


async def agree(among: tuple[Target, ...], history: list[tuple[Any, ...]], client: Any) -> None:
    """Play a history on both registries; every answer and every state is the same."""
    memory, redis = Follower(memory_bench(), among), Follower(redis_bench(client), among)
    for number, step in enumerate(history):
        answers = [rounded(await follower.play(step)) for follower in (memory, redis)]
        assert answers[0] == answers[1], (number, step)
        states = [rounded(await follower.statuses()) for follower in (memory, redis)]
        assert states[0] == states[1], (number, step)


# Few here, where the Lua runs in Python; hundreds against the real server, in the integration tests.
@settings(max_examples=15, deadline=None)
@given(among=worlds, history=histories)
def test_memory_and_redis_agree_on_every_answer(among: tuple[Target, ...], history: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        client = fakeredis.FakeAsyncRedis(decode_responses=True)
        await agree(among, history, client)
        await client.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("spread", [0.0, 0.25, 0.999])
async def test_both_spread_a_cooldown_by_the_same_jitter(spread: float) -> None:
    client, a = fakeredis.FakeAsyncRedis(decode_responses=True), target("a")
    waits = []
    for registry in (
        MemoryRegistry(lambda: 1000.0, lambda: spread),
        RedisRegistry(lambda: client, "tidegate:test", rng=lambda: spread, timeout_s=5),
    ):
        admission = await registry.admit(a)
        assert isinstance(admission, Admitted)
        result = await registry.report(a, admission.permit, Report(Verdict.FAILURE, FailureKind.CONNECT))
        waits.append(result.wait_s)
    assert waits[0] == pytest.approx(30 * (1 + 0.1 * (2 * spread - 1)))
    assert waits[1] == pytest.approx(waits[0], abs=1e-5)
    await client.aclose()
