"""Reading one stream: the watchdog's timer, the limits, and what a repetition is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.repetition import RepetitionGuard
from pipeline.failover.stream import Gathering, StreamLimits, Watchdog, accept, collect, relay
from pipeline.failover.upstream import Delta, Event, Finish, Reply, ToolCall
from tests.unit.failover.virtual_time import VirtualLoop, virtual

LIMITS = StreamLimits(
    first_content_s=8, first_content_kind=FailureKind.TTFT_TIMEOUT, idle_s=20, max_output_bytes=10_000
)


async def plays(steps: Sequence[float | str | Event]) -> AsyncGenerator[Event, None]:
    for step in steps:
        if isinstance(step, float | int):
            await asyncio.sleep(step)
        else:
            yield Delta(step) if isinstance(step, str) else step


def pairs(event: str | Event, pause_s: float, times: int) -> list[float | str | Event]:
    return [event, pause_s] * times


async def nothing() -> None:
    return None


async def read(steps: Sequence[float | str | Event], limits: StreamLimits = LIMITS) -> Reply:
    return await collect(plays(steps), limits, Gathering(limits.max_output_bytes), nothing)


async def failure(steps: Sequence[float | str | Event], limits: StreamLimits = LIMITS) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as caught:
        await read(steps, limits)
    return caught.value


def now() -> float:
    return asyncio.get_running_loop().time()


# --- the watchdog ---------------------------------------------------------------------------------------------------


@virtual
async def test_the_watchdog_sets_one_timer_for_many_tokens() -> None:
    loop, timers = asyncio.get_running_loop(), []
    set_timer = loop.call_at

    def counting(when: float, callback: Any, *args: Any, **more: Any) -> asyncio.TimerHandle:
        if getattr(callback, "__self__", None).__class__ is Watchdog:
            timers.append(when)
        return set_timer(when, callback, *args, **more)

    loop.call_at = counting  # type: ignore[assignment, method-assign]
    await read([*pairs("x", 0.01, 3000), Finish("stop")])
    assert now() == pytest.approx(30)
    # At the start, at the first content, and once when it fired and looked back.
    assert timers == [8, 20, pytest.approx(20 + 19.99, abs=0.02)]


@virtual
async def test_a_stall_is_noticed_exactly_idle_seconds_after_the_last_content() -> None:
    error = await failure(["x", 15.0, "x", 7.0, "x", 1e9])
    assert (error.kind, error.message) == (FailureKind.PARTIAL_STREAM, "no further content for 20 s")
    assert now() == 42


@virtual
async def test_an_idle_limit_below_the_first_content_limit_holds_from_the_first_content_on() -> None:
    limits = StreamLimits(60, FailureKind.TTFT_TIMEOUT, idle_s=2, max_output_bytes=100)
    await failure([1.0, "x", 1e9], limits)
    assert now() == 3


@virtual
async def test_comments_after_content_do_not_count_as_content() -> None:
    await failure(["x", *pairs(Delta(), 5.0, 100)])
    assert now() == 20


@virtual
async def test_a_finish_ends_the_reading_at_once() -> None:
    reply = await read(["x", Finish("stop"), 1e9])
    assert (reply.text, now()) == ("x", 0)


@virtual
async def test_a_cancellation_from_outside_stays_one_even_when_the_timer_fires_too() -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(read([1e9]))
    await asyncio.sleep(0)
    loop.call_at(8, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


@virtual
async def test_the_timeout_leaves_no_cancellation_behind() -> None:
    await failure([1e9])
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with asyncio.timeout(5):
        await asyncio.sleep(1)


@virtual
async def test_an_upstream_that_turns_the_timeout_into_an_error_of_its_own_is_still_timed_out() -> None:
    async def translating() -> AsyncGenerator[Event, None]:
        try:
            await asyncio.sleep(1e9)
        except asyncio.CancelledError:
            raise UpstreamFailure(FailureKind.CONNECT) from None
        yield Finish("stop")

    with pytest.raises(UpstreamFailure) as caught:
        await collect(translating(), LIMITS, Gathering(100), nothing)
    assert caught.value.kind == FailureKind.TTFT_TIMEOUT


@virtual
async def test_a_reader_may_go_on_in_another_task() -> None:
    deltas = relay(plays(["a", "b", 1e9]), LIMITS, Gathering(100), nothing)
    assert (await anext(deltas)).text == "a"

    async def elsewhere() -> str:
        await asyncio.sleep(50)
        return (await anext(deltas)).text

    assert await asyncio.create_task(elsewhere()) == "b"
    with pytest.raises(UpstreamFailure):
        await anext(deltas)
    assert now() == 70


@virtual
async def test_a_reader_that_is_away_for_long_is_not_cancelled_in_its_own_code() -> None:
    deltas = relay(plays(["a", 1.0, "b", Finish("stop")]), LIMITS, Gathering(100), nothing)
    await anext(deltas)
    await asyncio.sleep(500)
    assert (await anext(deltas)).text == "b"
    with pytest.raises(StopAsyncIteration):
        await anext(deltas)


# --- limits ---------------------------------------------------------------------------------------------------------


@virtual
async def test_an_endless_answer_is_cut_off_at_its_size() -> None:
    seen = 0

    async def endless() -> AsyncGenerator[Event, None]:
        nonlocal seen
        while True:
            seen += 1
            yield Delta(f"{seen} is a number and ")

    with pytest.raises(UpstreamFailure) as caught:
        await collect(endless(), LIMITS, Gathering(LIMITS.max_output_bytes), nothing)
    assert (caught.value.kind, caught.value.message) == ("invalid_output", "the answer is longer than 10000 bytes")
    assert seen < 600


@virtual
async def test_the_size_counts_bytes_and_reasoning_and_tool_calls() -> None:
    limits = StreamLimits(8, FailureKind.TTFT_TIMEOUT, 20, max_output_bytes=10)
    assert (await read(["日本語", Finish("stop")], limits)).text == "日本語"
    for piece in ("日本語語", Delta(reasoning="x" * 11), Delta(tool_calls=(ToolCall(0, "f", "x" * 10),))):
        assert (await failure([piece], limits)).kind == FailureKind.INVALID_OUTPUT


def test_an_answer_that_is_not_streamed_meets_the_same_limits() -> None:
    for text, reason in (("x" * 100, "longer than"), ("0123456789abcdef\n" * 1000, "repeats itself")):
        limit = 50 if reason == "longer than" else 100_000
        with pytest.raises(UpstreamFailure, match=reason):
            accept(Reply(text, "stop"), limit, allow_empty=False, may_repeat=False)


@virtual
async def test_lone_surrogates_are_measured_and_not_stumbled_over() -> None:
    assert (await read(["\ud800", Finish("stop")])).text == "\ud800"


# --- repetition -----------------------------------------------------------------------------------------------------


def repeats(text: str, piece: int = 7) -> int | None:
    """After how many characters the guard speaks up, or None."""
    guard = RepetitionGuard()
    for at in range(0, len(text), piece):
        if guard.feed(text[at : at + piece]):
            return at + piece
    return None


@pytest.mark.parametrize(
    "line",
    [
        "The same line.\n",
        "x",
        "ab",
        "| 0 | 0 |\n",
        "A longer sentence that a model got stuck on, with commas, 日本.\n" * 3,
    ],
)
def test_a_model_that_repeats_a_line_for_ever_is_noticed_soon(line: str) -> None:
    noticed = repeats("A page with an ordinary beginning. " + line * (60_000 // len(line)))
    assert noticed is not None
    assert noticed < 12_000


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"| row {n} | {n * n} |" for n in range(3000)),
        "| | | | | |\n" * 200,
        "." * 2000 + " a dotted line, then text again. ",
        "".join(chr(0x4E00 + (n * 7919) % 20_000) for n in range(20_000)),
        "",
    ],
)
def test_tables_lines_and_long_texts_are_not_repetitions(text: str) -> None:
    assert repeats(text) is None


def test_four_copies_of_a_form_are_not_a_repetition() -> None:
    form = "".join(f"Field {n}: ______\n" for n in range(60))
    assert repeats(form * 4) is None


def test_a_repeating_line_with_repeats_inside_is_noticed() -> None:
    assert repeats(("-" * 40 + " no " + "-" * 40 + "\n") * 2000) is not None


def test_the_guards_cost_does_not_grow_with_the_answer() -> None:
    guard = RepetitionGuard()
    for number in range(20_000):
        guard.feed(f"{number} ")
    assert len(guard._tail) <= max(RepetitionGuard.SPAN, RepetitionGuard.MAX_PERIOD * RepetitionGuard.MIN_REPEATS)


@virtual
async def test_a_repeating_stream_is_given_up_as_invalid_output() -> None:
    limits = StreamLimits(8, FailureKind.TTFT_TIMEOUT, 20, max_output_bytes=4_194_304)
    error = await failure(["I am sorry. "] * 100_000, limits)
    assert (error.kind, error.message) == (FailureKind.INVALID_OUTPUT, "the answer repeats itself")


# --- the virtual loop itself ----------------------------------------------------------------------------------------


def test_a_virtual_loop_that_waits_for_nothing_says_so() -> None:
    loop = VirtualLoop()
    try:
        with pytest.raises(RuntimeError, match="deadlock"):
            loop.run_until_complete(loop.create_future())
    finally:
        with suppress(RuntimeError):
            loop.close()
