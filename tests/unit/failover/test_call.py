"""The behaviours of a whole call, in virtual time: what the upstream does, and what the caller gets."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pipeline.domain.call import Outcome, SkipReason, Usage
from pipeline.domain.errors import (
    ChainExhausted,
    DeadlineExceeded,
    Draining,
    PartialStreamError,
    PermitWaitExceeded,
)
from pipeline.failover.call import rejecting_targets
from pipeline.failover.kinds import PRESET_RULES, FailureKind
from pipeline.failover.records import CallContext
from pipeline.failover.registry import Admitted, BreakerState, Permit, Report, Verdict
from pipeline.failover.repetition import repeats
from pipeline.failover.target import CallPolicy, Chain, CooldownPolicy, Needs, Price, Target, Times
from pipeline.failover.upstream import Delta, EmbedRequest, Finish, Reply, ToolCall, Vectors
from tests.unit.failover.fakes import CONTEXT, GOOD, World, chat_request, fail, target
from tests.unit.failover.virtual_time import VirtualLoop, virtual

A, B, C = target("a"), target("b"), target("c")
CHAIN = Chain("vlm", (A, B))
HANG = [[1e9]]
DOWN = [[fail(FailureKind.CONNECT)]]


def now() -> float:
    return asyncio.get_running_loop().time()


async def ask(world: World, chain: Chain = CHAIN, context: CallContext = CONTEXT, **request: Any) -> Any:
    return await world.caller.chat(chain, chat_request(**request), context)


async def exhausted(
    world: World, chain: Chain = CHAIN, context: CallContext = CONTEXT, **request: Any
) -> ChainExhausted:
    with pytest.raises(ChainExhausted) as caught:
        await world.caller.chat(chain, chat_request(**request), context)
    return caught.value


async def use_up(world: World, a: Target, calls: int) -> list[Permit]:
    """Others hold permits of ``a``."""
    admissions = [await world.registry.admit(a) for _ in range(calls)]
    return [admission.permit for admission in admissions if isinstance(admission, Admitted)]


# --- the ordinary walk ----------------------------------------------------------------------------------------------


@virtual
async def test_a_good_answer_comes_from_the_first_target() -> None:
    world = World()
    answer = await ask(world)
    assert (answer.value.text, answer.target, answer.position, answer.degraded) == ("Hello world", A.key, 0, False)
    assert answer.usage == Usage(10, 2, 0.01)
    assert world.sink.outcomes == [("a", None)]
    assert world.observer.switches == []


@virtual
async def test_a_refused_connection_moves_on_and_cools_the_target() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN]
    answer = await ask(world)
    assert (answer.target, answer.position, answer.degraded) == (B.key, 1, True)
    assert [record.kind for record in answer.tries] == ["connect", None]
    assert answer.tries[0].cooldown_until == 1030
    assert world.observer.cooldowns == [(A.key, "connect", 1030)]
    assert [(s.from_target, s.to_target, s.reason) for s in world.observer.switches] == [(A.key, B.key, "connect")]
    assert world.observer.tries == list(answer.tries)


@virtual
async def test_the_next_call_starts_from_the_top_and_lists_the_cooling_primary_on_its_row() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN]
    await ask(world)
    answer = await ask(world)
    assert world.upstream.called == ["a", "b", "b"]
    (skip,) = answer.tries[0].skipped
    assert (skip.target, skip.reason, skip.until, skip.detail) == (A.key, SkipReason.COOLING, 1030, "connect")
    assert world.sink.starts[-1].skipped == answer.tries[0].skipped
    assert len(world.observer.switches) == 1, "a skip is no switch"


@virtual
async def test_when_nobody_answers_the_error_says_who_was_tried_and_when_to_come_back() -> None:
    world = World()
    world.upstream.scripts = {
        "a": [[fail(FailureKind.RATE_LIMIT, retry_after_s=40)]],
        "b": [[fail(FailureKind.OVERLOADED, retry_after_s=20)]],
    }
    error = await exhausted(world)
    assert [(record.target, record.kind) for record in error.tries] == [(A.key, "rate_limit"), (B.key, "overloaded")]
    assert (error.retryable, error.retry_at) == (True, 1020)
    assert world.observer.switches[-1].to_target is None
    assert world.sink.exhaustions == [("vlm", 2, ())]
    error = await exhausted(world)
    assert [(skip.target, skip.reason) for skip in error.skipped] == [(A.key, "cooling"), (B.key, "cooling")]
    assert (error.retryable, error.retry_at, error.tries) == (True, 1020, ())
    assert world.sink.exhaustions[-1] == ("vlm", 2, error.skipped)
    assert world.upstream.called == ["a", "b"]


@virtual
async def test_an_input_that_everybody_rejects_is_not_retryable() -> None:
    world = World()
    world.upstream.scripts = {
        "a": [[fail(FailureKind.INVALID_REQUEST, status=400)]],
        "b": [[fail(FailureKind.CONTEXT_OVERFLOW)]],
    }
    error = await exhausted(world)
    assert not error.retryable
    assert error.retry_at is None
    assert rejecting_targets(error.tries) == {A.key, B.key}
    assert world.observer.cooldowns == []


@virtual
async def test_a_failure_of_no_known_kind_is_unknown_and_cools() -> None:
    world = World()
    world.upstream.scripts["a"] = [[fail("gremlins")], [fail(FailureKind.INTERNAL)]]
    first = await ask(world)
    assert first.tries[0].kind == "unknown"
    await asyncio.sleep(31)
    assert (await ask(world)).tries[0].kind == "unknown", "a provider can't blame our own code"


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(1)
@virtual
async def test_keep_alive_comments_do_not_reset_the_first_content_timer() -> None:
    world = World()
    a = target("a", times=Times(ttft_timeout_s=1.5))
    world.upstream.scripts["a"] = [[Delta(), 0.5] * 100]
    answer = await ask(world, Chain("vlm", (a, B)))
    assert world.upstream.closed[0] == ("a", 1.5)
    assert [record.kind for record in answer.tries] == ["ttft_timeout", None]


@pytest.mark.behaviour(2)
@virtual
async def test_a_late_first_chunk_is_given_up_at_the_limit_and_its_socket_closed() -> None:
    world = World()
    a = target("a", times=Times(ttft_timeout_s=2))
    world.upstream.scripts["a"] = [[10, *GOOD]]
    await ask(world, Chain("vlm", (a, B)))
    assert world.upstream.closed[0] == ("a", 2.0)
    assert now() == 2


@pytest.mark.behaviour(3)
@virtual
async def test_a_target_that_stays_silent_for_ever_is_a_ttft_timeout() -> None:
    world = World()
    world.upstream.scripts["a"] = HANG
    answer = await ask(world)
    assert answer.tries[0].kind == FailureKind.TTFT_TIMEOUT
    assert answer.tries[0].ttft_s is None
    assert now() == 8


@pytest.mark.behaviour(4)
@virtual
async def test_an_error_after_a_role_chunk_switches_and_the_caller_sees_one_clean_answer() -> None:
    world = World()
    world.upstream.scripts["a"] = [[Delta(), fail(FailureKind.SERVER_ERROR)]]
    answer = await ask(world)
    assert answer.value.text == "Hello world"
    assert answer.tries[0].kind == FailureKind.SERVER_ERROR


@pytest.mark.behaviour(5)
@virtual
async def test_a_stream_that_ends_without_a_finish_reason_is_partial_and_nothing_of_it_is_kept() -> None:
    world = World()
    world.upstream.scripts["a"] = [["Half an ans"]]
    answer = await ask(world)
    assert answer.value.text == "Hello world"
    assert answer.tries[0].kind == FailureKind.PARTIAL_STREAM
    assert (await world.registry.statuses([A]))[0].state is BreakerState.OPEN


@pytest.mark.behaviour(6)
@virtual
async def test_a_stalled_stream_after_content_is_collected_from_the_next_target() -> None:
    world = World()
    a = target("a", times=Times(idle_timeout_s=5))
    world.upstream.scripts["a"] = [["Half", 1e9]]
    answer = await ask(world, Chain("vlm", (a, B)))
    assert answer.value.text == "Hello world"
    assert answer.tries[0].kind == FailureKind.PARTIAL_STREAM
    assert world.upstream.closed[0] == ("a", 5)


def freeze(at_s: float, for_s: float) -> None:
    """Stop this process at a moment: the loop's clock goes on, and nothing else does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.call_at(loop.time() + at_s, loop.pass_by, for_s)


@virtual
async def test_a_process_that_was_frozen_reads_what_has_come_meanwhile() -> None:
    world = World()
    world.upstream.scripts["a"] = [[9.0, *GOOD]]
    freeze(at_s=1.0, for_s=33.0)
    answer = await ask(world)
    assert (answer.target, world.upstream.called) == (A.key, ["a"])


@virtual
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_came_in_time_is_read_however_late_the_process_gets_to_it(stream: bool) -> None:
    world = World()
    world.upstream.scripts["a"] = [[7.5, *GOOD]]
    freeze(at_s=7.0, for_s=1.5)
    answer = await ask(world, stream=stream)
    assert (answer.target, world.upstream.called) == (A.key, ["a"])


@virtual
@pytest.mark.parametrize("stream", [True, False])
async def test_a_process_that_was_frozen_holds_its_own_silence_against_nobody(stream: bool) -> None:
    world = World()
    world.upstream.scripts["a"] = [*HANG]
    freeze(at_s=1.0, for_s=200.0)
    answer = await ask(world, stream=stream)
    assert (answer.target, world.sink.outcomes[0]) == (B.key, ("a", "ttft_timeout" if stream else "timeout"))
    assert world.observer.cooldowns == []
    assert [status.state for status in await world.registry.statuses([A])] == [BreakerState.CLOSED]
    assert await world.in_flight(A, B) == 0


@virtual
async def test_a_stream_that_was_cut_while_the_process_was_frozen_cools_nobody() -> None:
    world = World()
    world.upstream.scripts["a"] = [["Hel", 3.0, fail(FailureKind.CONNECT)]]
    freeze(at_s=1.0, for_s=200.0)
    answer = await ask(world)
    assert (answer.target, world.sink.outcomes[0]) == (B.key, ("a", "partial_stream"))
    assert world.observer.cooldowns == []


@virtual
async def test_a_target_that_stays_silent_is_cooled_however_late_the_timer_of_a_busy_loop_is() -> None:
    world = World()
    world.upstream.scripts["a"] = [*HANG]
    freeze(at_s=7.5, for_s=1.5)
    await ask(world)
    assert [(key, kind) for key, kind, _ in world.observer.cooldowns] == [(A.key, "ttft_timeout")]


@virtual
async def test_a_stream_that_keeps_coming_is_never_killed_for_being_slow() -> None:
    world = World()
    world.upstream.scripts["a"] = [[*(["x", 7.0] * 50), Finish("stop")]]
    answer = await ask(world)
    assert not answer.degraded
    assert now() == 350
    assert answer.tries[0].ttft_s == 0


@pytest.mark.behaviour(30)
@virtual
async def test_a_slow_stream_that_began_before_the_deadline_is_not_cut_by_it() -> None:
    world = World()
    world.upstream.scripts["a"] = [[*(["x", 1.0] * 30), Finish("stop")]]
    chain = Chain("vlm", (A,), CallPolicy(deadline_s=5))
    assert len((await ask(world, chain)).value.text) == 30


@virtual
async def test_a_call_that_is_not_streamed_has_a_total_timeout() -> None:
    world = World()
    a = target("a", times=Times(timeout_s=3))
    world.upstream.scripts["a"] = [["x", 10, Finish("stop")]]
    answer = await ask(world, Chain("retrieval_llm", (a, B)), stream=False)
    assert answer.tries[0].kind == FailureKind.TIMEOUT
    assert answer.value.text == "Hello world"
    assert answer.tries[1].ttft_s == 0
    assert now() == 3


@pytest.mark.behaviour(14)
@virtual
async def test_a_tenants_deadline_of_a_millisecond_cools_nobody() -> None:
    world = World()
    world.upstream.scripts["a"] = HANG
    chain = Chain("vlm", (A,), CallPolicy(deadline_s=0.001))
    for _ in range(10):
        with pytest.raises(DeadlineExceeded) as caught:
            await ask(world, chain)
        assert caught.value.tries[0].kind == FailureKind.DEADLINE
    assert (await world.registry.statuses([A]))[0].state is BreakerState.CLOSED
    assert world.observer.cooldowns == []
    assert rejecting_targets(caught.value.tries) == frozenset()


@virtual
async def test_the_first_target_leaves_the_reserve_to_the_last() -> None:
    world = World()
    world.upstream.scripts = {"a": HANG, "b": [[9, *GOOD]]}
    slow = Times(ttft_timeout_s=100)
    chain = Chain("vlm", (target("a", times=slow), target("b", times=slow)), CallPolicy(deadline_s=30, reserve_s=10))
    answer = await ask(world, chain)
    assert world.upstream.calls == [("a", 0), ("b", 20)]
    assert (answer.target, now()) == (B.key, 29)
    assert answer.tries[0].kind == FailureKind.DEADLINE
    assert world.observer.cooldowns == []


@virtual
async def test_a_short_deadline_still_gives_the_first_target_half_of_it() -> None:
    world = World()
    world.upstream.scripts["a"] = HANG
    await ask(world, Chain("vlm", (A, B), CallPolicy(deadline_s=4, reserve_s=10)))
    assert world.upstream.calls == [("a", 0), ("b", 2)]


@virtual
async def test_a_deadline_that_passes_between_two_targets_skips_the_next_one() -> None:
    world = World()
    world.upstream.scripts["a"] = [[2.95, fail(FailureKind.SERVER_ERROR)]]
    answer = await ask(world, Chain("vlm", (A, B, C), CallPolicy(deadline_s=6, reserve_s=3)))
    assert world.upstream.called == ["a", "c"]
    assert [(skip.target, skip.reason) for skip in answer.tries[1].skipped] == [(B.key, SkipReason.DEADLINE)]


@virtual
async def test_a_record_that_takes_longer_than_the_deadline_to_begin_leads_to_no_call() -> None:
    for stream in (True, False):
        world = World()

        world.sink.before_begin = partial(asyncio.sleep, 5)
        with pytest.raises(DeadlineExceeded):
            await ask(world, Chain("vlm", (A,), CallPolicy(deadline_s=3)), stream=stream)
        assert world.upstream.called == []
        assert world.sink.ends[1].kind == FailureKind.DEADLINE
        assert await world.in_flight(A) == 0


# --- budgets of one call --------------------------------------------------------------------------------------------


@pytest.mark.behaviour(18)
@virtual
async def test_three_targets_twice_with_four_attempts_make_exactly_four_calls() -> None:
    world = World(spread=0.5)
    chain = Chain(
        "vlm", tuple(target(name, same_target_retries=1) for name in "abc"), CallPolicy(max_attempts=4, deadline_s=30)
    )
    world.upstream.scripts = {name: [*DOWN] for name in "abc"}
    error = await exhausted(world, chain)
    assert world.upstream.called == ["a", "a", "b", "b"]
    assert now() < 30
    assert error.retryable
    assert error.retry_at is not None


@virtual
async def test_attempts_that_ran_out_before_everybody_was_asked_are_worth_another_call() -> None:
    world = World()
    world.upstream.scripts["a"] = [[fail(FailureKind.INVALID_REQUEST)]]
    error = await exhausted(world, Chain("vlm", (A, B), CallPolicy(max_attempts=1)))
    assert (error.retryable, error.retry_at) == (True, 1000)


@pytest.mark.behaviour(16)
@virtual
async def test_the_same_target_is_tried_again_after_each_retry_after() -> None:
    world = World()
    limits = [[fail(FailureKind.RATE_LIMIT, retry_after_s=float(seconds))] for seconds in (1, 2, 4)]
    world.upstream.scripts["a"] = [*limits, GOOD]
    answer = await ask(world, Chain("vlm", (target("a", same_target_retries=3), B)))
    assert world.upstream.calls == [("a", 0), ("a", 1), ("a", 3), ("a", 7)]
    assert not answer.degraded
    assert world.observer.cooldowns == []
    assert world.observer.switches == [], "staying is no switch"


@virtual
async def test_the_backoff_is_exponential_with_full_jitter() -> None:
    world = World(spread=0.5)
    world.upstream.scripts["a"] = [*DOWN]
    await ask(world, Chain("vlm", (target("a", same_target_retries=3), B)))
    assert [at for name, at in world.upstream.calls if name == "a"] == [0, 0.25, 0.75, 1.75]
    assert world.observer.cooldowns[0][:2] == (A.key, "connect"), "only the last failure is held against it"


@virtual
async def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    world = World()
    world.upstream.scripts["a"] = [[fail(FailureKind.RATE_LIMIT, retry_after_s=50)]]
    answer = await ask(world, Chain("vlm", (target("a", same_target_retries=3), B), CallPolicy(deadline_s=30)))
    assert answer.degraded
    assert now() == 0


@virtual
async def test_a_target_that_cooled_during_the_backoff_is_passed_over() -> None:
    world = World()
    a = target("a", same_target_retries=2)
    world.upstream.scripts["a"] = [[fail(FailureKind.OVERLOADED, retry_after_s=2)]]
    (other,) = await use_up(world, a, 1)

    async def somebody_else() -> None:
        await asyncio.sleep(1)
        await world.registry.report(a, other, Report(Verdict.FAILURE, FailureKind.CONNECT))

    _, answer = await asyncio.gather(somebody_else(), ask(world, Chain("vlm", (a, B))))
    assert world.upstream.called == ["a", "b"]
    assert answer.tries[1].skipped[0].reason is SkipReason.COOLING


@virtual
async def test_a_probe_is_not_repeated_at_the_same_target() -> None:
    world = World()
    a = target("a", same_target_retries=2)
    world.upstream.scripts["a"] = [*DOWN]
    chain = Chain("vlm", (a, B), CallPolicy(max_attempts=9))
    await ask(world, chain)
    await asyncio.sleep(31)
    world.upstream.calls.clear()
    await ask(world, chain)
    assert world.upstream.called == ["a", "b"]


@virtual
async def test_the_last_attempt_is_held_against_its_target_even_where_it_would_be_repeated() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN]
    await exhausted(world, Chain("vlm", (target("a", same_target_retries=2),), CallPolicy(max_attempts=1)))
    assert [cooled[0] for cooled in world.observer.cooldowns] == [A.key]


@virtual
async def test_what_the_request_caused_is_not_repeated_at_the_same_target() -> None:
    world = World()
    world.upstream.scripts["a"] = [[fail(FailureKind.INVALID_REQUEST)]]
    await ask(world, Chain("vlm", (target("a", same_target_retries=2), B)))
    assert world.upstream.called == ["a", "b"]


@pytest.mark.behaviour(13)
@virtual
async def test_one_target_and_an_outage_of_a_minute_take_at_most_four_of_eleven_calls() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN]
    chain = Chain("vlm", (target("a", cooldown=CooldownPolicy(cooldown_s=10)),))
    for _ in range(11):
        await exhausted(world, chain)
        await asyncio.sleep(6)
    assert len(world.upstream.calls) <= 4


# --- skips ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(20)
@virtual
async def test_a_request_too_long_for_a_target_skips_it_by_contract() -> None:
    world = World()
    small, large = target("a", context_window=8_192), target("b", context_window=32_768)
    answer = await ask(world, Chain("vlm", (small, large)), needs=Needs(tokens_in=10_000))
    assert world.upstream.called == ["b"]
    (skip,) = answer.tries[0].skipped
    assert (skip.reason, skip.detail) == (SkipReason.CONTRACT, "10000 tokens above its window of 8192")


@virtual
async def test_a_request_that_nobody_can_take_is_not_retryable() -> None:
    world = World()
    error = await exhausted(world, Chain("vlm", (target("a", json_schema=False),)), needs=Needs(json_schema=True))
    assert not error.retryable
    assert error.skipped[0].reason is SkipReason.CONTRACT


@virtual
async def test_a_skip_is_listed_on_the_next_row_only() -> None:
    world = World()
    world.upstream.scripts["b"] = [*DOWN]
    answer = await ask(world, Chain("vlm", (target("a", context_window=10), B, C)), needs=Needs(tokens_in=100))
    assert [[skip.target for skip in record.skipped] for record in answer.tries] == [[A.key], []]


@pytest.mark.behaviour(19)
@virtual
async def test_an_exhausted_budget_skips_the_paid_fallback_and_says_so() -> None:
    world = World()
    free, paid = target("a", price=Price(0, 0)), target("b", price=Price(1, None))
    world.upstream.scripts["a"] = [*DOWN]
    error = await exhausted(world, Chain("vlm", (free, paid)), replace(CONTEXT, within_budget=False))
    assert world.upstream.called == ["a"]
    assert [(skip.target, skip.reason) for skip in error.skipped] == [(paid.key, SkipReason.OVER_BUDGET)]
    assert world.sink.exhaustions == [("vlm", 2, error.skipped)]
    assert "b@host over_budget" in str(error)
    assert error.retryable


@virtual
async def test_a_local_target_is_always_within_budget() -> None:
    world = World()
    ocr = Target("ocr@host", "ocr", "local/ocr")
    answer = await world.caller.chat(Chain("vlm", (ocr,)), chat_request(), replace(CONTEXT, within_budget=False))
    assert answer.target == "ocr@host"


@virtual
async def test_a_process_that_drains_begins_no_try() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN]
    world.draining = lambda: bool(world.upstream.called)
    with pytest.raises(Draining):
        await ask(world)
    assert world.upstream.called == ["a"], "it was awaited, and the next target is for somebody else to ask"
    assert [record.outcome for record in world.sink.ends.values()] == [Outcome.FAILED]
    assert world.sink.exhaustions == [], "nothing ran dry"


@virtual
async def test_who_waits_for_a_permit_when_the_process_drains_waits_no_longer() -> None:
    world = World()
    full = target("a", max_parallel=1)
    await use_up(world, full, 1)
    waiting = asyncio.create_task(ask(world, Chain("vlm", (full,))))
    await asyncio.sleep(2)
    assert not waiting.done()
    world.draining = lambda: True
    began = now()
    with pytest.raises(Draining):
        await waiting
    assert now() - began <= 1, "a waiter asks again within a second"
    assert world.upstream.called == []
    assert await world.in_flight(full) == 1, "no permit was taken"


@pytest.mark.behaviour(29)
@virtual
async def test_a_target_that_rejected_this_input_before_is_not_paid_again() -> None:
    world = World()
    paid = Chain("vlm", (A, B))
    world.upstream.scripts = {"a": [*DOWN], "b": [[Finish("stop")]]}
    first = await exhausted(world, paid)
    assert first.retryable
    rejected_by = rejecting_targets(first.tries)
    assert rejected_by == {B.key}
    second = await exhausted(world, paid, CallContext("call-2", rejected_by=rejected_by))
    assert second.retryable
    assert [skip.reason for skip in second.skipped] == [SkipReason.COOLING, SkipReason.REJECTED]
    assert world.upstream.called == ["a", "b"]


@virtual
async def test_a_collections_list_of_targets_skips_the_others() -> None:
    world = World()
    answer = await ask(world, context=CallContext("call-1", allowed=frozenset({"b"})))
    assert world.upstream.called == ["b"]
    assert answer.tries[0].skipped[0].reason is SkipReason.NOT_ALLOWED


@virtual
async def test_a_redo_of_a_degraded_result_takes_no_fallback_again() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN]
    error = await exhausted(world, context=CallContext("call-1", primary_only=True))
    assert [(skip.target, skip.reason) for skip in error.skipped] == [(B.key, SkipReason.NOT_ALLOWED)]
    assert error.retryable


@virtual
async def test_disabled_targets_wait_for_a_person_without_a_time() -> None:
    world = World()
    for t in (A, B):
        await world.registry.set_disabled(t.key, True)
    error = await exhausted(world)
    assert {skip.reason for skip in error.skipped} == {SkipReason.DISABLED}
    assert (error.retryable, error.retry_at) == (True, None)


@pytest.mark.behaviour(28)
@virtual
async def test_a_kill_switch_thrown_in_mid_stream_spares_the_second_target() -> None:
    world = World()
    world.upstream.scripts["a"] = [["Half", 2, fail(FailureKind.SERVER_ERROR)]]

    async def operator() -> None:
        await asyncio.sleep(1)
        await world.registry.set_disabled(B.key, True)

    _, error = await asyncio.gather(operator(), exhausted(world))
    assert world.upstream.called == ["a"]
    assert error.skipped[0].reason is SkipReason.DISABLED


# --- full is not busy -----------------------------------------------------------------------------------------------


@virtual
async def test_ingestion_waits_for_a_full_target_instead_of_spilling_onto_the_fallback() -> None:
    world = World()
    a = target("a", max_parallel=1)
    world.upstream.scripts["a"] = [[5, *GOOD]]
    chain = Chain("vlm", (a, B), CallPolicy(deadline_s=8, reserve_s=1))
    answers = await asyncio.gather(*(ask(world, chain) for _ in range(4)))
    assert [answer.degraded for answer in answers] == [False] * 4, "the wait is not on the call's deadline"
    assert world.upstream.most["a"] == 1
    assert 20 <= now() < 24


@virtual
async def test_a_waiter_leaves_when_the_target_starts_to_cool() -> None:
    world = World()
    a = target("a", max_parallel=1)
    (permit,) = await use_up(world, a, 1)

    async def it_fails() -> None:
        await asyncio.sleep(3)
        await world.registry.report(a, permit, Report(Verdict.FAILURE, FailureKind.TIMEOUT))

    _, answer = await asyncio.gather(it_fails(), ask(world, Chain("vlm", (a, B))))
    assert answer.degraded
    assert 3 <= now() <= 4


@virtual
async def test_after_a_minute_of_waiting_the_unit_is_given_back() -> None:
    world = World()
    a = target("a", max_parallel=1)
    permits = await use_up(world, a, 1)

    async def it_is_a_long_call() -> None:
        while now() < 65:
            await asyncio.sleep(10)
            await world.registry.renew(permits[0])

    long_call = asyncio.create_task(it_is_a_long_call())
    with pytest.raises(PermitWaitExceeded) as caught:
        await ask(world, Chain("vlm", (a, B)))
    assert (caught.value.target, caught.value.waited_s, caught.value.retryable) == (A.key, 60, True)
    assert 60 <= now() <= 61
    assert world.sink.starts == []
    assert world.sink.exhaustions == [], "it only waited"
    await long_call


@virtual
async def test_a_wait_in_vain_after_a_failed_try_still_closes_the_call_with_a_row() -> None:
    world = World()
    b = target("b", max_parallel=1)
    await use_up(world, b, 1)
    world.upstream.scripts["a"] = [*DOWN]
    with pytest.raises(PermitWaitExceeded):
        await ask(world, Chain("vlm", (A, b), CallPolicy(permit_wait_max_s=2)))
    assert [skip.reason for skip in world.sink.exhaustions[0][2]] == [SkipReason.FULL]


@virtual
async def test_an_interactive_role_waits_a_second_and_goes_on() -> None:
    world = World()
    a = target("a", max_parallel=1)
    await use_up(world, a, 1)
    answer = await ask(world, Chain("answer_llm", (a, B), CallPolicy(interactive=True)))
    assert answer.degraded
    assert answer.tries[0].skipped[0].reason is SkipReason.FULL
    assert 1 <= now() <= 1.1


@virtual
async def test_an_interactive_role_that_is_told_to_wait_does_so_within_its_deadline() -> None:
    world = World()
    a = target("a", max_parallel=1, on_full="wait")
    await use_up(world, a, 1)
    with pytest.raises(DeadlineExceeded) as caught:
        await ask(world, Chain("answer_llm", (a,), CallPolicy(interactive=True, deadline_s=6)))
    assert [skip.reason for skip in caught.value.skipped] == [SkipReason.FULL]
    assert now() == pytest.approx(6, abs=0.1)


@virtual
async def test_a_full_target_leaves_the_reserve_to_the_last_one() -> None:
    world = World()
    a = target("a", max_parallel=1, on_full="wait")
    await use_up(world, a, 1)
    answer = await ask(world, Chain("answer_llm", (a, B), CallPolicy(interactive=True, deadline_s=6)))
    assert [skip.reason for skip in answer.tries[0].skipped] == [SkipReason.FULL]
    assert now() == pytest.approx(3, abs=0.5)


@virtual
async def test_a_deadline_that_passes_while_others_are_left_lists_them() -> None:
    world = World()
    world.upstream.scripts["a"] = [[9, fail(FailureKind.SERVER_ERROR)]]
    chain = Chain("vlm", (target("a", times=Times(timeout_s=60)), B), CallPolicy(deadline_s=9, reserve_s=0))
    with pytest.raises(DeadlineExceeded) as caught:
        await ask(world, chain, stream=False)
    assert [skip.reason for skip in caught.value.skipped] == [SkipReason.DEADLINE]
    assert world.sink.exhaustions == [("vlm", 2, caught.value.skipped)]


@virtual
async def test_a_full_target_that_is_waited_for_within_the_deadline_is_passed_over_at_last() -> None:
    world = World()
    a = target("a", max_parallel=1, on_full="wait")
    await use_up(world, a, 1)
    chain = Chain("answer_llm", (a, B), CallPolicy(interactive=True, permit_wait_max_s=3))
    assert (await ask(world, chain)).degraded
    assert now() == pytest.approx(3, abs=0.1)


# --- kinds with an action of their own ------------------------------------------------------------------------------


@virtual
async def test_an_overflow_goes_on_with_larger_windows_only() -> None:
    world = World()
    a, b = target("a", context_window=8_000), target("b", context_window=8_000)
    c, d = target("c", context_window=32_000), target("d", context_window=None)
    world.upstream.scripts = {name: [[fail(FailureKind.CONTEXT_OVERFLOW)]] for name in "abc"}
    answer = await ask(world, Chain("vlm", (a, b, c, d)))
    assert world.upstream.called == ["a", "c", "d"]
    assert answer.tries[1].skipped[0].detail == "its window of 8000 tokens is not above the 8000 that overflowed"


@virtual
async def test_an_overflow_of_a_window_that_nobody_stated_goes_on_with_the_next() -> None:
    world = World()
    world.upstream.scripts["a"] = [[fail(FailureKind.CONTEXT_OVERFLOW)]]
    assert (await ask(world)).target == B.key


@virtual
async def test_a_content_filter_goes_on_with_the_next_target_in_ingestion() -> None:
    world = World()
    world.upstream.scripts["a"] = [["I can't", Finish("content_filter")]]
    answer = await ask(world)
    assert answer.tries[0].kind == FailureKind.CONTENT_POLICY
    assert answer.degraded
    assert world.observer.cooldowns == []


@virtual
async def test_a_content_filter_stops_an_interactive_role() -> None:
    world = World()
    world.upstream.scripts["a"] = [[fail(FailureKind.CONTENT_POLICY)]]
    error = await exhausted(world, Chain("answer_llm", (A, B), CallPolicy(interactive=True)))
    assert world.upstream.called == ["a"]
    assert not error.retryable


@virtual
async def test_the_targets_named_for_content_policy_take_over() -> None:
    world = World()
    d = target("d")
    world.upstream.scripts = {name: [[fail(FailureKind.CONTENT_POLICY)]] for name in "ac"}
    chain = Chain("answer_llm", (A, B), CallPolicy(interactive=True), content_policy_fallbacks=(C, d))
    answer = await ask(world, chain)
    assert world.upstream.called == ["a", "c", "d"]
    assert (answer.position, answer.degraded) == (3, True)
    assert [record.skipped for record in answer.tries] == [(), (), ()]


@virtual
async def test_a_kind_that_is_set_to_stop_stops() -> None:
    world = World()
    a = target("a", rules=PRESET_RULES["conservative"])
    world.upstream.scripts["a"] = [[fail(FailureKind.INVALID_REQUEST)]]
    error = await exhausted(world, Chain("vlm", (a, B)))
    assert world.upstream.called == ["a"]
    assert not error.retryable


# --- what is an answer ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour(7)
@virtual
@pytest.mark.parametrize("stream", [True, False])
async def test_an_empty_answer_is_invalid_output(stream: bool) -> None:
    world = World()
    world.upstream.scripts["a"] = [[Finish("stop", Usage(10, 0, 0.02))]]
    answer = await ask(world, stream=stream)
    assert answer.tries[0].kind == FailureKind.INVALID_OUTPUT
    assert answer.usage.cost_usd == pytest.approx(0.03), "it was paid for all the same"
    assert (await world.registry.statuses([A]))[0].state is BreakerState.CLOSED


@virtual
async def test_an_empty_body_is_invalid_output_and_a_lone_role_chunk_is_a_cut() -> None:
    world = World()
    world.upstream.scripts = {"a": [[]], "b": [[Delta()]]}
    error = await exhausted(world)
    assert [record.kind for record in error.tries] == [FailureKind.INVALID_OUTPUT, FailureKind.PARTIAL_STREAM]


@pytest.mark.behaviour(7)
@virtual
async def test_an_answer_of_tool_calls_alone_passes() -> None:
    world = World()
    pieces = (ToolCall(0, "look_up", '{"q": ', "call-1"), ToolCall(0, arguments='"x"}'), ToolCall(1, "stop", "{}"))
    world.upstream.scripts["a"] = [[*(Delta(tool_calls=(piece,)) for piece in pieces), Finish("tool_calls")]]
    answer = await ask(world)
    assert answer.value.tool_calls == (ToolCall(0, "look_up", '{"q": "x"}', "call-1"), ToolCall(1, "stop", "{}"))


@pytest.mark.behaviour(7)
@virtual
async def test_a_contract_that_allows_an_empty_answer_takes_one() -> None:
    world = World()
    world.upstream.scripts["a"] = [[Finish("stop")]]
    answer = await ask(world, Chain("vlm", (A,), CallPolicy(allow_empty=True)))
    assert answer.value.text == ""


@virtual
async def test_reasoning_without_an_answer_is_no_answer() -> None:
    world = World()
    world.upstream.scripts["a"] = [[Delta(reasoning="hm"), Finish("stop")]]
    answer = await ask(world)
    assert answer.tries[0].kind == FailureKind.INVALID_OUTPUT
    assert answer.tries[0].ttft_s == 0, "but it is content"


@virtual
@pytest.mark.parametrize("stream", [True, False])
async def test_a_truncated_answer_is_invalid_output(stream: bool) -> None:
    world = World()
    world.upstream.scripts["a"] = [["Half", Finish("length", Usage(1, 1, 1.0))]]
    answer = await ask(world, stream=stream)
    assert answer.tries[0].kind == FailureKind.INVALID_OUTPUT
    assert answer.tries[0].usage == Usage(1, 1, 1.0)


@virtual
async def test_an_answer_that_fails_the_callers_check_is_tried_elsewhere() -> None:
    world = World()
    world.upstream.scripts["a"] = [["{}", Finish("stop")]]

    def check(reply: Reply) -> str | None:
        return "not the schema" if reply.text == "{}" else None

    answer = await world.caller.chat(CHAIN, chat_request(), CONTEXT, check=check)
    assert (answer.target, answer.tries[0].message) == (B.key, "not the schema")


@pytest.mark.behaviour(32)
@virtual
async def test_a_login_page_cools_its_target_after_five_inputs() -> None:
    world = World()
    world.upstream.scripts["a"] = [[fail(FailureKind.INVALID_OUTPUT, "an HTML page", status=200)]]
    for page in range(8):
        await ask(world, input_digest=f"page-{page}")
    assert world.upstream.called.count("a") == 5


@pytest.mark.behaviour(22)
@virtual
async def test_a_cut_and_its_successor_are_two_rows_and_their_costs_add_up() -> None:
    world = World()
    a = target("a", price=Price(10, 100))
    world.upstream.scripts["a"] = [[*["word "] * 7, fail(FailureKind.SERVER_ERROR)]]
    answer = await ask(world, Chain("vlm", (a, B)), needs=Needs(tokens_in=100))
    assert world.sink.outcomes == [("a", "partial_stream"), ("b", None)]
    assert answer.tries[0].usage == Usage(100, 7, 0.0017)
    assert answer.usage.cost_usd == pytest.approx(0.01 + 0.0017)
    assert (answer.usage.tokens_in, answer.usage.tokens_out) == (110, 9)


@virtual
async def test_a_breaking_stream_keeps_its_retry_after() -> None:
    world = World()
    world.upstream.scripts["a"] = [["Half", fail(FailureKind.RATE_LIMIT, status=429, retry_after_s=77)]]
    answer = await ask(world)
    assert (answer.tries[0].kind, answer.tries[0].cooldown_until) == (FailureKind.PARTIAL_STREAM, 1077)


# --- embeddings -----------------------------------------------------------------------------------------------------

EMBEDDER = Chain("embedder", (A, B))
TWO = EmbedRequest(("one", "two"), dim=2)
RIGHT = [[Vectors([[1.0, 0.0], [0.6, 0.8]], Usage(2, 0, 0.1))]]


@virtual
async def test_vectors_come_from_the_first_replica() -> None:
    world = World()
    world.upstream.scripts["a"] = RIGHT
    answer = await world.caller.embed(EMBEDDER, TWO, CONTEXT)
    assert (answer.value.vectors[1], answer.usage.cost_usd) == ([0.6, 0.8], 0.1)


@virtual
@pytest.mark.parametrize(
    ("vectors", "reason"),
    [
        ([[1.0, 0.0]], "1 vectors for 2 texts"),
        ([[1.0, 0.0], [1.0]], "vector 1 has 1 numbers instead of 2"),
        ([[1.0, 0.0], [float("nan"), 1.0]], "vector 1 has a length of nan"),
        ([[0.0, 0.0], [1.0, 0.0]], "vector 0 has a length of 0.0"),
        ([[], []], "no vector for any text"),
    ],
)
async def test_vectors_of_a_wrong_count_or_width_are_invalid_output(vectors: Any, reason: str) -> None:
    world = World()
    world.upstream.scripts = {"a": [[Vectors(vectors)]], "b": RIGHT}
    answer = await world.caller.embed(EMBEDDER, TWO, CONTEXT)
    assert (answer.tries[0].kind, answer.tries[0].message) == (FailureKind.INVALID_OUTPUT, reason)
    assert answer.target == B.key


@virtual
async def test_an_answer_that_lacks_one_texts_vector_is_an_answer() -> None:
    world = World()
    world.upstream.scripts["a"] = [[Vectors([[], [0.6, 0.8]])]]
    answer = await world.caller.embed(EMBEDDER, TWO, CONTEXT)
    assert (answer.target, answer.value.vectors) == (A.key, [[], [0.6, 0.8]])


@virtual
async def test_a_replica_from_another_space_is_refused_by_the_callers_check() -> None:
    world = World()
    world.upstream.scripts["a"] = world.upstream.scripts["b"] = RIGHT
    with pytest.raises(ChainExhausted) as caught:
        await world.caller.embed(EMBEDDER, TWO, CONTEXT, check=lambda vectors: "another space")
    assert [record.message for record in caught.value.tries] == ["another space"] * 2


# --- streamed answers -----------------------------------------------------------------------------------------------


async def read(world: World, chain: Chain = CHAIN, heard: list[str] | None = None) -> Any:
    heard = [] if heard is None else heard
    async with world.caller.stream(chain, chat_request(), CONTEXT) as stream:
        async for delta in stream:
            heard.append(delta.text)
    return stream.answer


@virtual
async def test_a_streamed_answer_is_handed_on_as_it_comes() -> None:
    world, heard = World(), list[str]()
    world.upstream.scripts["a"] = [[Delta(), *GOOD]]
    answer = await read(world, heard=heard)
    assert heard == ["Hello", " world"]
    assert (answer.value.text, answer.usage.cost_usd, answer.degraded) == ("Hello world", 0.01, False)
    assert await world.in_flight(A, B) == 0


@virtual
async def test_before_content_a_stream_switches_unseen() -> None:
    world, heard = World(), list[str]()
    world.upstream.scripts["a"] = HANG
    answer = await read(world, heard=heard)
    assert heard == ["Hello", " world"]
    assert (answer.degraded, now()) == (True, 8)


@pytest.mark.behaviour(6)
@virtual
async def test_a_stall_after_content_raises_once_and_calls_nobody_else() -> None:
    world, heard = World(), list[str]()
    world.upstream.scripts["a"] = [["Half", 1e9]]
    with pytest.raises(PartialStreamError) as caught:
        await read(world, heard=heard)
    assert (caught.value.target, caught.value.kind) == (A.key, "partial_stream")
    assert heard == ["Half"]
    assert world.upstream.called == ["a"]
    assert world.observer.cooldowns == [(A.key, "partial_stream", 1000 + 120 + 30)]
    assert world.upstream.closed == [("a", 120)]


@virtual
async def test_a_slow_reader_is_not_held_against_the_upstream() -> None:
    world = World()
    world.upstream.scripts["a"] = [["a", 1, "b", 1, "c", Finish("stop")]]
    chain = Chain("answer_llm", (target("a", times=Times(idle_timeout_s=2)),))
    async with world.caller.stream(chain, chat_request(), CONTEXT) as stream:
        async for _ in stream:
            await asyncio.sleep(5)
    assert stream.answer is not None


@virtual
async def test_a_reader_that_turns_away_closes_the_socket_and_returns_the_permit() -> None:
    world = World()
    world.upstream.scripts["a"] = [["a", 1, "b", 1e9]]
    async with world.caller.stream(CHAIN, chat_request(), CONTEXT) as stream:
        async for delta in stream:
            if delta.text == "b":
                break
    assert world.upstream.closed == [("a", 1)]
    assert world.sink.ends[1].outcome is Outcome.CANCELLED
    assert await world.in_flight(A) == 0
    assert world.observer.cooldowns == []


@virtual
async def test_an_answer_that_breaks_a_rule_after_content_raises_with_its_kind() -> None:
    world = World()
    world.upstream.scripts["a"] = [["Half", Finish("length")]]
    with pytest.raises(PartialStreamError) as caught:
        await read(world)
    assert caught.value.kind == FailureKind.INVALID_OUTPUT


# --- probes ---------------------------------------------------------------------------------------------------------


@virtual
async def test_a_probes_first_content_lets_parked_work_go_on_before_its_stream_ends() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN, [1, "Hello", 50, Finish("stop")]]
    await ask(world)
    await asyncio.sleep(31)
    call = asyncio.create_task(ask(world))
    await asyncio.sleep(2)
    assert world.observer.recoveries == [A.key]
    assert (await world.registry.statuses([A]))[0].state is BreakerState.CLOSED
    assert not (await call).degraded
    assert world.observer.recoveries == [A.key]


@pytest.mark.behaviour(10)
@virtual
async def test_during_a_probe_the_others_are_on_the_fallback() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN, [5, *GOOD]]
    await ask(world)
    await asyncio.sleep(31)
    world.upstream.calls.clear()
    answers = await asyncio.gather(*(ask(world) for _ in range(50)))
    assert world.upstream.called.count("a") == 1
    assert sum(answer.degraded for answer in answers) == 49
    probing = [answer.tries[0].skipped[0].reason for answer in answers if answer.degraded]
    assert set(probing) == {SkipReason.PROBING}


@virtual
async def test_an_interactive_caller_may_wait_for_a_recovery_within_its_deadline() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN, GOOD]
    policy = CallPolicy(interactive=True, wait_for_recovery=True, deadline_s=60)
    answer = await ask(world, Chain("answer_llm", (A,), policy))
    assert [record.kind for record in answer.tries] == ["connect", None]
    assert now() == pytest.approx(30, abs=0.01)


@virtual
async def test_a_recovery_beyond_the_deadline_or_the_attempts_is_not_waited_for() -> None:
    for policy in (CallPolicy(deadline_s=20), CallPolicy(deadline_s=100, max_attempts=1)):
        world = World()
        world.upstream.scripts["a"] = [*DOWN]
        waiting = CallPolicy(
            interactive=True,
            wait_for_recovery=True,
            deadline_s=policy.deadline_s,
            max_attempts=policy.max_attempts,
        )
        await exhausted(world, Chain("answer_llm", (A,), waiting))
        assert now() == 0


@virtual
async def test_after_a_recovery_a_target_that_turned_the_input_down_is_not_asked_again() -> None:
    world = World()
    world.upstream.scripts = {"a": [*DOWN, *DOWN, GOOD], "b": [[fail(FailureKind.INVALID_REQUEST)]]}
    policy = CallPolicy(interactive=True, wait_for_recovery=True)
    answer = await ask(world, Chain("answer_llm", (A, B), policy))
    assert world.upstream.called == ["a", "b", "a", "a"]
    assert [skip.reason for skip in answer.tries[3].skipped] == []


@virtual
async def test_while_somebody_else_probes_a_waiting_caller_looks_every_second() -> None:
    world = World()
    world.upstream.scripts["a"] = [*DOWN, [0.4, *GOOD]]
    waiting = Chain("answer_llm", (A,), CallPolicy(interactive=True, wait_for_recovery=True, deadline_s=60))
    await exhausted(world, Chain("answer_llm", (A,)))
    await asyncio.sleep(30.5)
    first, second = await asyncio.gather(ask(world, waiting), ask(world, waiting))
    assert len(first.tries) == len(second.tries) == 1
    assert now() < 34


# --- cancellation and our own bugs ----------------------------------------------------------------------------------


@pytest.mark.behaviour(15)
@virtual
@pytest.mark.parametrize("stream", [True, False])
async def test_a_cancelled_call_records_no_failure_and_gives_its_permit_back(stream: bool) -> None:
    world = World()
    world.upstream.scripts["a"] = HANG
    call = asyncio.create_task(ask(world, stream=stream))
    await asyncio.sleep(3)
    assert await world.in_flight(A) == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await world.in_flight(A) == 0
    assert world.sink.ends[1].outcome is Outcome.CANCELLED
    assert world.upstream.closed == [("a", 3)]
    assert world.upstream.called == ["a"]
    assert world.observer.cooldowns == []


class Slow:
    """Wraps a registry or sink so that its operations take a second each."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)

        async def slowly(*args: Any) -> Any:
            await asyncio.sleep(0.5)
            answer = await operation(*args)
            await asyncio.sleep(0.5)
            return answer

        return slowly


@virtual
@pytest.mark.parametrize("at_s", [0.25, 0.75, 1.25, 1.75, 2.5, 3.25, 3.75, 4.25, 4.75, 5.25])
async def test_a_cancellation_at_any_moment_leaves_no_permit_and_no_open_attempt(at_s: float) -> None:
    world = World()
    registry, sink = world.registry, world.sink
    world.upstream.scripts = {"a": [[1, fail(FailureKind.CONNECT)]], "b": [[1, *GOOD]]}
    world.use(Slow(registry), Slow(sink))
    call = asyncio.create_task(ask(world))
    await asyncio.sleep(at_s)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [status.in_flight for status in await registry.statuses([A, B])] == [0, 0]
    assert len(sink.starts) == len(sink.ends)


@virtual
async def test_a_cancellation_while_a_target_refuses_is_not_lost() -> None:
    world = World()
    await world.registry.set_disabled(A.key, True)
    world.use(Slow(world.registry))
    call = asyncio.create_task(ask(world))
    await asyncio.sleep(0.75)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert world.sink.starts == []


@virtual
async def test_a_cancellation_while_success_is_being_recorded_still_cancels() -> None:
    world = World()
    world.use(world.registry, Slow(world.sink))
    call = asyncio.create_task(ask(world))
    await asyncio.sleep(1.5)
    call.cancel()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert world.sink.ends[1].outcome is Outcome.OK


@pytest.mark.behaviour(31)
@virtual
async def test_our_own_bug_cools_nobody() -> None:
    world = World()
    world.upstream.scripts["a"] = [[ZeroDivisionError("secret text of a page")]]
    with pytest.raises(ZeroDivisionError):
        await ask(world)
    record = world.sink.ends[1]
    assert (record.outcome, record.kind, record.message) == (Outcome.FAILED, "internal", "ZeroDivisionError")
    assert (await world.registry.statuses([A]))[0].state is BreakerState.CLOSED
    assert await world.in_flight(A) == 0
    assert world.upstream.called == ["a"]


@virtual
async def test_a_bug_in_a_streamed_call_is_internal_too() -> None:
    world = World()
    world.upstream.scripts["a"] = [["x", ZeroDivisionError()]]
    with pytest.raises(ZeroDivisionError):
        await read(world)
    assert world.sink.ends[1].kind == "internal"


@virtual
async def test_a_timeout_error_of_our_own_is_a_bug_and_not_a_slow_target() -> None:
    world = World()
    world.upstream.scripts["a"] = [[TimeoutError()]]
    with pytest.raises(TimeoutError):
        await ask(world, stream=False)
    assert world.sink.ends[1].kind == "internal"


@virtual
async def test_a_sink_that_can_not_begin_an_attempt_ends_the_call_before_any_money_is_spent() -> None:
    world = World()

    async def away() -> None:
        raise ConnectionError

    world.sink.before_begin = away
    with pytest.raises(ConnectionError):
        await ask(world)
    assert world.upstream.called == []
    assert await world.in_flight(A) == 0


# --- permits and availability ---------------------------------------------------------------------------------------


@virtual
async def test_a_long_streams_permit_is_renewed_while_it_runs() -> None:
    world = World()
    a = target("a", max_parallel=1)
    world.upstream.scripts["a"] = [[*(["x", 5.0] * 20), Finish("stop")]]
    call = asyncio.create_task(ask(world, Chain("vlm", (a,))))
    await asyncio.sleep(95)
    assert await world.in_flight(a) == 1
    await call
    assert await world.in_flight(a) == 0
    assert len(asyncio.all_tasks()) == 1


@virtual
async def test_a_renewal_under_way_is_over_before_the_permit_goes_back() -> None:
    world = World()
    registry = world.registry
    world.use(Slow(registry))
    world.upstream.scripts["a"] = [[10.2, "x", Finish("stop")]]
    await ask(world, Chain("vlm", (target("a", times=Times(ttft_timeout_s=60)),)))
    await asyncio.sleep(60)
    assert [status.in_flight for status in await registry.statuses([A])] == [0]


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(24)
@virtual
async def test_every_error_of_a_call_survives_a_pickle_round_trip() -> None:
    world = World()
    world.upstream.scripts = {"a": [*DOWN], "b": [*DOWN]}
    errors = [
        await exhausted(world),
        DeadlineExceeded("vlm", 5.0, (await exhausted(world)).tries),
        PermitWaitExceeded("vlm", A.key, 60.0),
        PartialStreamError(A.key, "partial_stream", "cut"),
        fail(FailureKind.RATE_LIMIT, "busy", status=429, retry_after_s=1.5, details={"code": "x"}),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(again) is type(error)
        assert vars(again) == vars(error)
        assert str(again) == str(error)


@virtual
async def test_an_answer_may_repeat_what_repeats_itself_and_a_local_program_may_at_all() -> None:
    line = "the gate was found shut and the lamp was lit\n"
    world = World()
    for name in ("a", "ocr"):
        world.upstream.scripts[name] = [[*[line] * 500, Finish("stop")]]
    alone = Chain("vlm_formatter", (A,))
    with pytest.raises(ChainExhausted):
        await ask(world, alone)
    answer = await ask(World(upstream=world.upstream), alone, repetitive=True)
    assert answer.value.text.count(line) == 500
    local = Chain("vlm_formatter", (Target("ocr@host", "ocr", "local/ocr"),))
    assert (await ask(world, local)).value.text.count(line) == 500
    assert (await ask(world, local, stream=False)).value.text.count(line) == 500


def test_a_text_repeats_itself_wherever_the_circle_is() -> None:
    words = " ".join(f"word{n}" for n in range(2000))
    circle = "checked, no findings\n" * 600
    assert repeats(f"{words}\n{circle}{words}")
    assert repeats("\n" * 9000)
    assert not repeats(words)
    assert not repeats("n/a\n" * 100)
