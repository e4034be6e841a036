"""Every row of the table of failures through both lanes and real HTTP: the kind, the cooldown, what the call does next.

``test_both_lanes`` shows that each misbehaviour has its kind; this shows what follows from the kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipeline.domain.errors import DeadlineExceeded, PartialStreamError
from pipeline.failover.kinds import FailureKind
from pipeline.failover.records import CallContext
from pipeline.failover.target import CallPolicy, Target, Times
from pipeline.failover.upstream import Reply
from pipeline.providers import Providers
from tests.integration.providers.conftest import chat_request
from tests.integration.providers.core import Core
from tests.upstream.fixtures import UpstreamFactory

K = FailureKind
TargetAt = Callable[..., Target]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier"),
    pytest.mark.filterwarnings("ignore:.*Accessing the.*attribute on the instance is deprecated"),
]

QUICK = Times(ttft_timeout_s=0.4, timeout_s=0.4)
ORDINARY_S, CONFIG_S = 30.0, 300.0
AFTER_7_S = {"Retry-After": "7"}


def _a_bug(_: Reply) -> str | None:
    raise ZeroDivisionError


@dataclass(frozen=True)
class Row:
    """One misbehaviour and what follows. ``raises``: the call stops with it; else it goes on to the next target."""

    act: Any
    cooldown_s: float | None
    raises: type[BaseException] | None = None
    stream: bool = True
    times: Times = field(default_factory=Times)
    policy: CallPolicy = field(default_factory=CallPolicy)
    check: Callable[[Reply], str | None] | None = None
    cancels: bool = False


ROWS: Mapping[FailureKind, Row] = {
    K.CONNECT: Row("reset", ORDINARY_S),
    K.TIMEOUT: Row("hang", ORDINARY_S, stream=False, times=QUICK),
    K.TTFT_TIMEOUT: Row("comments", ORDINARY_S, times=QUICK),
    K.RATE_LIMIT: Row({"as": "rate_limit", "headers": AFTER_7_S}, 7.0),
    K.OVERLOADED: Row({"as": "overloaded", "headers": AFTER_7_S}, 7.0),
    K.SERVER_ERROR: Row("server_error", ORDINARY_S),
    K.AUTH: Row("unauthorized", CONFIG_S),
    K.NOT_FOUND: Row("not_found", CONFIG_S),
    K.QUOTA: Row({"as": "no_quota", "headers": AFTER_7_S}, CONFIG_S),
    K.INVALID_REQUEST: Row("bad_request", None),
    K.CONTEXT_OVERFLOW: Row("overflow", None),
    K.CONTENT_POLICY: Row("policy_400", None),
    K.INVALID_OUTPUT: Row("empty", None),
    K.PARTIAL_STREAM: Row("cut", ORDINARY_S),
    K.CANCELLED: Row("hang", None, raises=asyncio.CancelledError, cancels=True),
    K.DEADLINE: Row("hang", None, raises=DeadlineExceeded, policy=CallPolicy(deadline_s=0.4, reserve_s=0.0)),
    K.UNKNOWN: Row("conflict", ORDINARY_S),
    K.INTERNAL: Row("ok", None, raises=ZeroDivisionError, check=_a_bug),
}


def test_the_table_has_no_kind_that_is_not_shown_here() -> None:
    assert set(ROWS) == set(FailureKind)


@pytest.mark.parametrize("kind", ROWS)
async def test_what_follows_from_a_kind(
    kind: FailureKind, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    row, host, spare = ROWS[kind], upstream(), upstream()
    host.behave("m", row.act)
    first, second = target_at(host.base_url, times=row.times), _spare(target_at, spare.base_url)
    await providers.prepare((first, second))
    core = Core(providers, (first, second), row.policy)
    call = asyncio.ensure_future(core.ask(stream=row.stream, check=row.check))
    if row.cancels:
        await asyncio.to_thread(host.wait_for_calls, 1)
        call.cancel()
    if row.raises is not None:
        with pytest.raises(row.raises):
            await call
        assert spare.calls() == []
        assert core.kinds == [kind]
    else:
        answer = await call
        assert (answer.target, answer.position, answer.degraded) == ("spare@fake", 1, True)
        assert core.kinds == [kind, None]
        assert [switch.reason for switch in core.observer.switches] == [kind]
    assert await core.cooldown_s() == row.cooldown_s
    assert (await core.status()).in_flight == 0
    assert len(host.calls()) == 1


async def test_an_overflow_goes_to_a_larger_window_only(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, spare = upstream(), upstream()
    host.behave("m", "overflow")
    first = target_at(host.base_url, context_window=8_000)
    small, large = (
        _spare(target_at, spare.base_url, key=f"{window}@fake", context_window=window) for window in (8_000, 64_000)
    )
    core = Core(providers, (first, small, large))
    answer = await core.ask()
    assert (answer.target, [skip.reason for skip in answer.tries[-1].skipped]) == ("64000@fake", ["contract"])


async def test_content_policy_stops_an_interactive_call(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, spare = upstream(), upstream()
    host.behave("m", "policy_400")
    core = Core(providers, (target_at(host.base_url), _spare(target_at, spare.base_url)), CallPolicy(interactive=True))
    with pytest.raises(Exception, match="content_policy"):
        await core.ask()
    assert spare.calls() == []


@pytest.mark.behaviour(6)
@pytest.mark.parametrize("act", ["cut", "eof", "stall_mid"])
async def test_a_stream_that_breaks_off_before_its_reader_raises_and_calls_nobody_else(
    act: str, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, spare = upstream(), upstream()
    host.behave("m", act)
    first = target_at(host.base_url, times=Times(idle_timeout_s=0.4))
    await providers.prepare((first,))
    core = Core(providers, (first, _spare(target_at, spare.base_url)))
    async with core.caller.stream(core.chain, chat_request(), CallContext("call")) as stream:
        deltas = aiter(stream)
        assert [bool((await anext(deltas)).text) for _ in range(3)] == [True] * 3
        with pytest.raises(PartialStreamError) as caught:
            await anext(deltas)
    assert caught.value.kind == K.PARTIAL_STREAM
    assert spare.calls() == []
    assert await core.cooldown_s() == ORDINARY_S


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_fallback_gets_its_own_models_name_and_never_the_primarys(
    stream: bool, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, spare = upstream(), upstream()
    host.behave("m", "server_error")
    core = Core(providers, (target_at(host.base_url), _spare(target_at, spare.base_url)))
    await core.ask(stream=stream)
    [asked], [fallback] = host.calls(), spare.calls()
    assert (asked.model, fallback.model) == ("m", "org/spare")
    assert asked.request["model"] == "m"
    assert fallback.request["model"] == "org/spare"


def _spare(target_at: TargetAt, base_url: str, key: str = "spare@fake", **changes: Any) -> Target:
    return target_at(base_url, key=key, preset="spare", model="openai/org/spare", **changes)
