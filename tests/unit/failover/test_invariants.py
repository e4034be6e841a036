"""Whatever the upstreams, the callers and the operators do, these hold: random histories in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.domain.call import TryRecord
from pipeline.domain.errors import TidegateError
from pipeline.failover.breaker import Breaker, state_of
from pipeline.failover.call import Caller
from pipeline.failover.kinds import FailureKind
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.records import AttemptStart, CallContext
from pipeline.failover.registry import Admission, Admitted, BreakerState, Permit, Report, ReportResult, TargetStatus
from pipeline.failover.target import CallPolicy, Chain, CooldownPolicy, Needs, Price, Target, Times
from pipeline.failover.upstream import Delta, Finish
from tests.unit.failover.fakes import FakeUpstream, LoopTime, MemoryObserver, MemorySink, chat_request, fail, target
from tests.unit.failover.virtual_time import VirtualLoop

FAILING = [kind for kind in FailureKind if kind not in (FailureKind.CANCELLED, FailureKind.DEADLINE)]

pauses = st.sampled_from([0.0, 0.3, 1.0, 4.0, 30.0])
endings = st.one_of(
    st.builds(
        lambda kind, retry: fail(kind, retry_after_s=retry),
        st.sampled_from(FAILING),
        st.sampled_from([None, 0.5, 3.0, 90.0]),
    ),
    st.sampled_from([Finish("stop"), Finish("length"), Finish("content_filter"), Delta(), ZeroDivisionError()]),
)
scripts = st.lists(
    st.builds(
        lambda wait, texts, more, end: [wait, *["x"] * texts, more, end], pauses, st.integers(0, 2), pauses, endings
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def targets(draw: st.DrawFn, name: str) -> Target:
    return target(
        name,
        max_parallel=draw(st.sampled_from([None, 1, 2])),
        on_full=draw(st.sampled_from([None, "wait", "next"])),
        context_window=draw(st.sampled_from([None, 1000, 4000])),
        quota_group=draw(st.sampled_from([None, "org"])),
        same_target_retries=draw(st.sampled_from([0, 0, 2])),
        price=draw(st.sampled_from([Price(), Price(0, 0)])),
        times=Times(ttft_timeout_s=2, idle_timeout_s=3, timeout_s=5),
        cooldown=CooldownPolicy(cooldown_s=5, cooldown_max_s=40, allowed_fails=draw(st.sampled_from([0, 1]))),
    )


policies = st.builds(
    CallPolicy,
    deadline_s=st.sampled_from([0.001, 3.0, 12.0, 60.0]),
    reserve_s=st.sampled_from([0.0, 2.0, 10.0]),
    max_attempts=st.integers(1, 5),
    permit_wait_s=st.just(1.0),
    permit_wait_max_s=st.sampled_from([2.0, 10.0]),
    interactive=st.booleans(),
    wait_for_recovery=st.booleans(),
)


@dataclass(frozen=True)
class Ask:
    """One call of the history."""

    at_s: float
    tokens: int
    stream: bool
    relayed: bool
    rich: bool
    primary_only: bool
    cancel_after_s: float | None


asks = st.builds(
    Ask,
    at_s=st.floats(0, 60),
    tokens=st.sampled_from([0, 2000]),
    stream=st.booleans(),
    relayed=st.booleans(),
    rich=st.booleans(),
    primary_only=st.sampled_from([False, False, False, True]),
    cancel_after_s=st.sampled_from([None, None, None, 0.0, 0.5, 3.0]),
)
acts = st.tuples(st.floats(0, 60), st.sampled_from("abc"), st.sampled_from(["disable", "enable", "reset"]))


@dataclass
class AuditedRegistry:
    """A memory registry that checks itself at each operation."""

    inner: MemoryRegistry
    given: dict[str, str] = field(default_factory=dict)
    returned: set[str] = field(default_factory=set)

    def _breaker(self, key: str) -> Breaker:
        return self.inner._breakers.get(key, Breaker())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def admit(self, target: Target) -> Admission:
        before = self.inner._of(target)
        admission = await self.inner.admit(target)
        if isinstance(admission, Admitted):
            assert state_of(before, self._now()) in (BreakerState.CLOSED, BreakerState.HALF_OPEN)
            half_open = state_of(before, self._now()) is BreakerState.HALF_OPEN
            assert admission.permit.probe == half_open
            if half_open:
                assert before.probe is None or before.probe[1] <= self._now(), "two probes"
            self.given[admission.permit.token] = target.key
            held = self._breaker(target.key).permits
            assert target.max_parallel is None or len(held) <= target.max_parallel
        return admission

    async def renew(self, permit: Permit) -> bool:
        assert permit.token not in self.returned, "renewed after it was given back"
        return await self.inner.renew(permit)

    async def first_content(self, target: Target, permit: Permit) -> ReportResult:
        assert permit.probe, "a round trip for nothing"
        return await self.inner.first_content(target, permit)

    async def report(self, target: Target, permit: Permit, report: Report) -> ReportResult:
        assert permit.token in self.given
        assert permit.token not in self.returned, "reported twice"
        self.returned.add(permit.token)
        before = self.inner._of(target)
        result = await self.inner.report(target, permit, report)
        after = self._breaker(target.key)
        if after.open:
            assert after.until >= before.until, "a cooldown was shortened"
        return result

    async def statuses(self, targets: Sequence[Target]) -> list[TargetStatus]:
        return await self.inner.statuses(targets)

    async def reset(self, target: str) -> None:
        await self.inner.reset(target)

    async def set_disabled(self, target: str, disabled: bool) -> None:
        await self.inner.set_disabled(target, disabled)


@dataclass
class AuditedUpstream(FakeUpstream):
    """Notes for each call when it began, and when its first content came or it was closed."""

    registry: AuditedRegistry | None = None

    def check(self, name: str) -> None:
        assert self.registry is not None
        key = target(name).key
        out = sum(1 for token, of in self.registry.given.items() if of == key and token not in self.registry.returned)
        assert out > self.running[name], "a call without a permit"


@dataclass
class History:
    """One random history, played and then judged."""

    chain: Chain
    played: dict[str, Any]
    calls: list[Ask]
    acts: list[tuple[float, str, str]]
    seed: int

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        rng = random.Random(self.seed)
        self.registry = AuditedRegistry(MemoryRegistry(now=loop.time, rng=rng.random))
        scripts = {name: list(script) for name, script in self.played.items()}
        self.upstream = AuditedUpstream(scripts, registry=self.registry)
        self.upstream.on_call = self.upstream.check
        self.sink = MemorySink()
        self.caller = Caller(self.registry, self.upstream, self.sink, MemoryObserver(), LoopTime(), rng.random)
        answering = asyncio.gather(*(self._guarded(number, ask) for number, ask in enumerate(self.calls)))
        outcomes, _ = await asyncio.gather(answering, self._operate())
        for outcome in outcomes:
            allowed = (TidegateError, asyncio.CancelledError, ZeroDivisionError)
            assert outcome is None or isinstance(outcome, allowed), repr(outcome)

    async def _operate(self) -> None:
        loop = asyncio.get_running_loop()
        for at_s, name, act in sorted(self.acts):
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            key = target(name).key
            if act == "reset":
                await self.registry.reset(key)
            else:
                await self.registry.set_disabled(key, act == "disable")

    async def _guarded(self, number: int, ask: Ask) -> BaseException | None:
        call = asyncio.create_task(self._one(number, ask))
        if ask.cancel_after_s is not None:
            asyncio.get_running_loop().call_later(ask.at_s + ask.cancel_after_s, call.cancel)
        (outcome,) = await asyncio.gather(call, return_exceptions=True)
        return outcome

    async def _one(self, number: int, ask: Ask) -> None:
        await asyncio.sleep(ask.at_s)
        context = CallContext(str(number), primary_only=ask.primary_only, within_budget=ask.rich)
        request = chat_request(stream=ask.stream or ask.relayed, needs=Needs(tokens_in=ask.tokens))
        if not ask.relayed:
            await self.caller.chat(self.chain, request, context)
            return
        async with self.caller.stream(self.chain, request, context) as stream:
            async for _ in stream:
                pass

    async def judge_rest(self) -> None:
        """Nothing is held, nothing runs, nothing is left open."""
        chain = self.chain
        assert [status.in_flight for status in await self.registry.statuses(chain.targets)] == [0] * len(chain.targets)
        assert set(self.registry.given) == self.registry.returned
        assert len(self.sink.starts) == len(self.sink.ends)
        assert not any(self.upstream.running.values())
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def judge_rows(self) -> None:
        rows = defaultdict(list)
        for attempt_id, start in enumerate(self.sink.starts, 1):
            rows[start.context.call_id].append((start, self.sink.ends[attempt_id]))
        for call_id, tries in rows.items():
            assert len(tries) <= self.chain.policy.max_attempts
            for start, record in tries:
                self._judge_try(self.calls[int(call_id)], start, record)
            if not self.chain.policy.wait_for_recovery:
                self._judge_order([start for start, _ in tries])

    def _judge_try(self, ask: Ask, start: AttemptStart, record: TryRecord) -> None:
        called = self.chain.targets[start.position]
        assert called.key == start.target
        assert Needs(tokens_in=ask.tokens).unmet_by(called) is None, "contract"
        assert ask.rich or called.is_free, "budget"
        assert start.position == 0 or not ask.primary_only
        if record.ttft_s is None and (ask.stream or ask.relayed):
            bound_s = min(called.times.ttft_timeout_s, self.chain.policy.deadline_s)
            assert record.duration_s <= bound_s + 1e-6

    def _judge_order(self, starts: list[AttemptStart]) -> None:
        positions = [start.position for start in starts]
        assert positions == sorted(positions), "order"
        accounted: set[str] = set()
        for start in starts:
            accounted |= {skip.target for skip in start.skipped} | {start.target}
            assert {before.key for before in self.chain.targets[: start.position]} <= accounted, "left out in silence"


@settings(max_examples=80, deadline=None)
@given(
    chain_targets=st.tuples(targets("a"), targets("b"), targets("c")),
    length=st.integers(1, 3),
    policy=policies,
    played=st.fixed_dictionaries(dict.fromkeys("abc", scripts)),
    calls=st.lists(asks, min_size=1, max_size=8),
    acts=st.lists(acts, max_size=4),
    seed=st.integers(0, 1000),
)
def test_the_invariants_hold_in_every_history(
    chain_targets: tuple[Target, ...],
    length: int,
    policy: CallPolicy,
    played: dict[str, Any],
    calls: list[Ask],
    acts: list[tuple[float, str, str]],
    seed: int,
) -> None:
    async def run() -> None:
        history = History(Chain("vlm", chain_targets[:length], policy), played, calls, acts, seed)
        await history.play()
        await history.judge_rest()
        history.judge_rows()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


@settings(max_examples=50, deadline=None)
@given(
    only=targets("a"),
    policy=policies,
    played=scripts,
    calls=st.lists(asks, min_size=1, max_size=3),
)
def test_no_interactive_call_starts_or_waits_for_first_content_past_its_deadline(
    only: Target, policy: CallPolicy, played: list[Any], calls: list[Ask]
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        interactive = CallPolicy(
            deadline_s=policy.deadline_s, reserve_s=policy.reserve_s, max_attempts=policy.max_attempts, interactive=True
        )
        chain = Chain("answer_llm", (only, target("b", times=only.times)), interactive)
        for ask in calls:
            registry = MemoryRegistry(now=loop.time, rng=lambda: 0.5)
            upstream = FakeUpstream({"a": list(played), "b": list(played)})
            sink = MemorySink()
            caller = Caller(registry, upstream, sink, MemoryObserver(), LoopTime(), lambda: 0.5)
            began = loop.time()
            with suppress(TidegateError, ZeroDivisionError):
                await caller.chat(chain, chat_request(stream=ask.stream), CallContext("call"))
            ends_at = began + policy.deadline_s + 1e-6
            assert all(at <= ends_at for _, at in upstream.calls)
            for (_, started_at), record in zip(upstream.calls, sink.ends.values(), strict=False):
                first_content_at = started_at + (record.duration_s if record.ttft_s is None else record.ttft_s)
                assert first_content_at <= ends_at

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
