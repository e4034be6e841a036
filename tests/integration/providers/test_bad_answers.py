"""Answers that are meant to hurt: the right kind, in bounded time and memory, through both lanes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.failover.kinds import FailureKind
from pipeline.failover.registry import BreakerState
from pipeline.failover.target import CallPolicy, Target, Times
from pipeline.providers import Providers
from tests.integration.providers.core import Core
from tests.upstream.fixtures import ProcessFactory, UpstreamFactory

K = FailureKind
TargetAt = Callable[..., Target]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier"),
    pytest.mark.filterwarnings("ignore:.*Accessing the.*attribute on the instance is deprecated"),
]


@pytest.mark.behaviour(27)
@pytest.mark.parametrize(
    ("said", "cooldown_s"),
    [
        ("604800", 600.0),
        ("Fri, 15 Jan 2100 08:00:00 GMT", 600.0),
        ("-5", 30.0),
        ("0", 30.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 30.0),
        ("when the tide turns", 30.0),
        ("9" * 400, 30.0),
        ("1.5", 1.5),
    ],
)
async def test_whatever_retry_after_says_the_cooldown_is_a_sane_one(
    said: str, cooldown_s: float, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, spare = upstream(), upstream()
    host.behave("m", {"as": "rate_limit", "headers": {"Retry-After": said}})
    core = Core(providers, (target_at(host.base_url), target_at(spare.base_url, key="spare@fake")))
    assert (await core.ask()).position == 1
    assert core.kinds == [K.RATE_LIMIT, None]
    assert await core.cooldown_s() == cooldown_s


@pytest.mark.behaviour(32)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_login_page_with_status_200_costs_five_inputs_one_call_each(
    stream: bool, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, spare = upstream(), upstream()
    host.behave("m", "login_page")
    core = Core(providers, (target_at(host.base_url), target_at(spare.base_url, key="spare@fake")))
    for page in range(4):
        for _ in range(2):  # the same input again tells nothing new
            await core.ask(f"page {page}", stream=stream)
    assert (await core.status()).state is BreakerState.CLOSED
    await core.ask("page 4", stream=stream)
    assert await core.cooldown_s() == 30.0
    assert set(core.kinds) == {K.INVALID_OUTPUT, None}
    await core.ask("page 5", stream=stream)
    assert len(host.calls()) == 9


async def test_a_model_that_repeats_a_line_for_ever_is_cut_off(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, spare = upstream(), upstream()
    host.behave("m", "repeat")
    core = Core(providers, (target_at(host.base_url), target_at(spare.base_url, key="spare@fake")))
    began = time.monotonic()
    answer = await core.ask()
    assert time.monotonic() - began < 10
    assert (answer.position, core.kinds) == (1, [K.INVALID_OUTPUT, None])
    assert answer.tries[0].message == "the answer repeats itself"
    [call] = await asyncio.to_thread(host.wait_for_calls, 1, outcome="client_closed")
    assert call.chunks < 2_000


async def test_an_answer_without_an_end_is_cut_off_at_its_size(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, spare = upstream(), upstream()
    # No two lines alike as far as the guard against repetitions looks back.
    host.behave("m", {"text": "".join(f"{n:08d}" for n in range(100_000)), "chunk_chars": 4_000, "gap_s": 0.02})
    policy = CallPolicy(max_output_bytes=100_000)
    core = Core(providers, (target_at(host.base_url), target_at(spare.base_url, key="spare@fake")), policy)
    answer = await core.ask()
    assert (answer.position, core.kinds) == (1, [K.INVALID_OUTPUT, None])
    assert answer.tries[0].message == "the answer is longer than 100000 bytes"
    await asyncio.to_thread(host.wait_for_calls, 1, outcome="client_closed")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_line_of_many_megabytes_takes_neither_the_time_nor_the_memory(
    stream: bool, providers: Providers, target_at: TargetAt, upstream_process: ProcessFactory
) -> None:
    host, spare = upstream_process(), upstream_process()
    host.behave("m", {"line_bytes": 150_000_000})
    first = target_at(host.base_url, times=Times(ttft_timeout_s=20, timeout_s=20))
    core = Core(providers, (first, target_at(spare.base_url, key="spare@fake")))
    await providers.prepare(core.targets)
    _forget_peak()
    before, began = _resident_bytes("VmRSS"), time.monotonic()
    answer = await core.ask(stream=stream)
    assert time.monotonic() - began < 20
    assert (answer.position, core.kinds) == (1, [K.INVALID_OUTPUT, None])
    assert _resident_bytes("VmHWM") - before < 120_000_000


def _resident_bytes(name: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
