"""What both lanes make of an upstream that misbehaves, and what they send to one that does not."""

import asyncio
import hashlib
import pickle
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.target import Price, Target
from pipeline.failover.upstream import Delta, EmbedRequest
from pipeline.providers import Providers
from tests.integration.providers.conftest import KEY, PAGE, chat_request, collect, failure_of
from tests.upstream import dead_port, redirect
from tests.upstream.fixtures import UpstreamFactory

K = FailureKind
TargetAt = Callable[..., Target]

# litellm's own types: it silences these warnings itself when it is imported, but pytest undoes that.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier"),
    pytest.mark.filterwarnings("ignore:.*Accessing the.*attribute on the instance is deprecated"),
]

KINDS: dict[str, tuple[FailureKind, int | None]] = {
    "reset": (K.CONNECT, None),
    "close": (K.CONNECT, None),
    "login_page": (K.INVALID_OUTPUT, 200),
    "broken_json": (K.INVALID_OUTPUT, 200),
    "error_in_stream": (K.OVERLOADED, 503),
    "bad_request": (K.INVALID_REQUEST, 400),
    "bad_key_400": (K.AUTH, 400),
    "retired_400": (K.NOT_FOUND, 400),
    "overflow": (K.CONTEXT_OVERFLOW, 400),
    "policy_400": (K.CONTENT_POLICY, 400),
    "no_credit_400": (K.QUOTA, 400),
    "unauthorized": (K.AUTH, 401),
    "no_credit": (K.QUOTA, 402),
    "forbidden": (K.AUTH, 403),
    "not_found": (K.NOT_FOUND, 404),
    "request_timeout": (K.TIMEOUT, 408),
    "conflict": (K.UNKNOWN, 409),
    "unprocessable": (K.INVALID_REQUEST, 422),
    "rate_limit": (K.RATE_LIMIT, 429),
    "no_quota": (K.QUOTA, 429),
    "server_error": (K.SERVER_ERROR, 500),
    "bad_gateway": (K.SERVER_ERROR, 502),
    "overloaded": (K.OVERLOADED, 503),
    "gateway_timeout": (K.TIMEOUT, 504),
    "overloaded_529": (K.OVERLOADED, 529),
}


@pytest.mark.behaviour(26)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("act", KINDS)
async def test_every_misbehaviour_has_its_kind_after_one_call(
    act: str, stream: bool, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", act)
    found = await failure_of(providers, target_at(host.base_url), chat_request(stream=stream))
    assert (found.kind, found.status) == KINDS[act]
    assert len(host.calls()) == 1
    assert pickle.loads(pickle.dumps(found)).args == found.args  # noqa: S301
    assert found.__cause__ is None


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_host_that_is_not_there_is_connect(stream: bool, providers: Providers, target_at: TargetAt) -> None:
    for url in (f"http://127.0.0.1:{dead_port()}/v1", "http://no-such-host.invalid/v1"):
        assert (await failure_of(providers, target_at(url), chat_request(stream=stream))).kind == K.CONNECT


async def test_tls_to_a_plain_port_is_connect(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    url = upstream().base_url.replace("http:", "https:")
    assert (await failure_of(providers, target_at(url), chat_request())).kind == K.CONNECT


@pytest.mark.parametrize("url", ["nonsense", "ftp://models.example/v1"])
async def test_what_is_no_url_is_a_matter_of_configuration(url: str, providers: Providers, target_at: TargetAt) -> None:
    assert (await failure_of(providers, target_at(url), chat_request())).kind == K.NOT_FOUND


@pytest.mark.behaviour(27)
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"Retry-After": "Fri, 15 Jan 2027 08:01:00 GMT", "Date": "Fri, 15 Jan 2027 08:00:00 GMT"}, 60.0),
        ({"Retry-After": "Fri, 15 Jan 2027 08:01:00 GMT", "Date": "Fri, 15 Jan 2027 08:02:00 GMT"}, None),
        ({"Retry-After": "0"}, None),
        ({"Retry-After": "later"}, None),
        ({"Retry-After": "-20"}, None),
        ({"Retry-After": "604800"}, 604_800.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_handed_on_exactly(
    status: int,
    headers: dict[str, str],
    seconds: float | None,
    providers: Providers,
    target_at: TargetAt,
    upstream: UpstreamFactory,
) -> None:
    host = upstream()
    host.behave("*", {"status": status, "headers": headers})
    found = await failure_of(providers, target_at(host.base_url), chat_request())
    assert found.retry_after_s == seconds


@pytest.mark.behaviour(34)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_redirect_to_another_host_carries_no_key(
    stream: bool, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host, other = upstream(), upstream()
    host.behave("*", redirect(f"{other.base_url}/chat/completions"))
    found = await failure_of(providers, target_at(host.base_url), chat_request(stream=stream))
    assert (found.kind, found.status) == (K.NOT_FOUND, 307)
    assert "127.0.0.1" in found.message
    assert other.calls() == []


async def test_what_the_upstream_echoes_of_the_request_is_not_in_the_message(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", {"status": 400, "message": f"Bad content: '{PAGE}' sent with key {KEY}"})
    found = await failure_of(providers, target_at(host.base_url), chat_request())
    assert found.kind == K.INVALID_REQUEST
    assert found.message.startswith("invalid_request_error: Bad con")
    assert "moon" not in str(found)
    assert KEY not in str(found)


# Streams ----------------------------------------------------------------------------------------------------------


async def test_a_stream_is_deltas_and_one_finish_with_usage(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    priced = target_at(host.base_url, price=Price(1_000_000, 2_000_000))
    deltas, finish = await collect(providers, priced, chat_request())
    assert "".join(delta.text for delta in deltas) == PAGE.strip()
    [call] = host.calls()
    assert finish is not None
    assert finish.reason == "stop"
    assert finish.usage is not None
    assert finish.usage.tokens_in == call.input_tokens
    assert finish.usage.cost_usd == finish.usage.tokens_in + 2 * finish.usage.tokens_out


@pytest.mark.parametrize("act", [{"newline": "\r\n"}, {"split_bytes": 1}, {"split_bytes": 7}, {"done": False}], ids=str)
async def test_however_the_stream_is_written_the_answer_is_the_same(
    act: dict[str, Any], providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", act)
    text = "Umlauts äöü, 日本語, 🌊 and line ends of Unicode \u2028 inside \u0085 JSON."
    deltas, finish = await collect(providers, target_at(host.base_url), chat_request(text))
    assert "".join(delta.text for delta in deltas) == text
    assert finish is not None


async def test_an_eof_without_finish_reason_ends_the_stream_without_finish(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", "eof")
    deltas, finish = await collect(providers, target_at(host.base_url), chat_request())
    assert len(deltas) == 3
    assert finish is None


@pytest.mark.parametrize("act", ["cut", "cut_rst"])
async def test_a_cut_after_content_is_partial_and_before_it_a_matter_of_the_connection(
    act: str, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", act)
    assert (await failure_of(providers, target_at(host.base_url), chat_request())).kind == K.PARTIAL_STREAM
    host.behave("*", {"as": act, "cut_after": 0})
    assert (await failure_of(providers, target_at(host.base_url), chat_request())).kind == K.CONNECT


async def test_an_error_event_after_content_keeps_its_kind_and_quotes_nothing(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", "error_mid")
    events = providers.stream(target_at(host.base_url), chat_request())
    for _ in range(3):
        assert isinstance(await anext(events), Delta)
    with pytest.raises(UpstreamFailure) as caught:
        await anext(events)
    assert caught.value.kind == K.OVERLOADED
    assert "engine" not in caught.value.message


@pytest.mark.parametrize(
    ("act", "reason"), [("empty", "stop"), ("truncated", "length"), ("filtered", "content_filter")]
)
async def test_how_an_answer_ended_is_left_to_the_core_to_judge(
    act: str, reason: str, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", act)
    _, finish = await collect(providers, target_at(host.base_url), chat_request())
    assert finish is not None
    assert finish.reason == reason


async def test_an_empty_200_is_invalid_output(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", {"body": "", "content_type": "text/event-stream"})
    assert (await failure_of(providers, target_at(host.base_url), chat_request())).kind == K.INVALID_OUTPUT


@pytest.mark.behaviour(7)
async def test_reasoning_and_tool_calls_are_content(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", "reasoning_only", "tool_call")
    deltas, _ = await collect(providers, target_at(host.base_url), chat_request())
    assert all(delta.reasoning for delta in deltas)
    deltas, finish = await collect(providers, target_at(host.base_url), chat_request())
    assert all(delta.tool_calls for delta in deltas)
    assert deltas[0].tool_calls[0].name
    assert finish is not None
    assert finish.reason == "tool_calls"


@pytest.mark.parametrize("act", ["stall_mid", "slow"])
async def test_closing_the_generator_closes_the_socket_at_once(
    act: str, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", act)
    async with aclosing(providers.stream(target_at(host.base_url), chat_request())) as events:
        assert isinstance(await anext(events), Delta)
    await asyncio.to_thread(host.wait_for_calls, 1, outcome="client_closed", timeout_s=2)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("act", ["hang", "hang_after_headers", "comments"])
async def test_a_cancelled_call_closes_its_socket_at_once(
    act: str, stream: bool, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", act)
    target, request = target_at(host.base_url), chat_request(stream=stream)
    call = collect(providers, target, request) if stream else providers.chat(target, request)
    task = asyncio.ensure_future(call)
    await asyncio.to_thread(host.wait_for_calls, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(host.wait_for_calls, 1, outcome="client_closed", timeout_s=2)


# What is sent -----------------------------------------------------------------------------------------------------


async def test_a_request_has_the_model_the_image_the_schema_the_params_and_the_key(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    request = chat_request(image=b"\xff\xd8 a page", json_schema=schema, schema_name="page", max_output_tokens=77)
    target = target_at(host.base_url, model="openai/org/name", params={"temperature": 0.1, "top_p": None})
    deltas, _ = await collect(providers, target, request)
    assert deltas
    [call] = host.calls()
    sent = call.request
    assert call.model == "org/name"
    assert call.authorization == f"Bearer {KEY}"
    assert sent["temperature"] == 0.1
    assert "top_p" not in sent
    assert sent["max_tokens"] == 77
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["response_format"]["json_schema"]["name"] == "page"
    assert sent["response_format"]["json_schema"]["schema"] == schema
    assert call.image_digests == [hashlib.sha256(b"\xff\xd8 a page").hexdigest()[:16]]


async def test_a_key_of_the_environment_is_never_sent_to_a_host_of_ones_own(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    host = upstream()
    await collect(providers, target_at(host.base_url, key="keyless"), chat_request())
    [call] = host.calls()
    assert "environment" not in str(call.headers)
    assert call.authorization in (None, "Bearer none")


# Whole answers and vectors ------------------------------------------------------------------------------------------


async def test_a_whole_answer(providers: Providers, target_at: TargetAt, upstream: UpstreamFactory) -> None:
    host = upstream()
    reply = await providers.chat(target_at(host.base_url), chat_request(stream=False))
    assert reply.text == PAGE.strip()
    assert reply.finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.tokens_in > 0
    [call] = host.calls()
    assert call.stream is False


async def test_a_whole_answer_that_is_cut_is_a_matter_of_the_connection(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", "cut")
    assert (await failure_of(providers, target_at(host.base_url), chat_request(stream=False))).kind == K.CONNECT


async def test_a_refusal_of_a_whole_answer_is_content_policy(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", "refused")
    assert (await failure_of(providers, target_at(host.base_url), chat_request(stream=False))).kind == K.CONTENT_POLICY


TEXTS = ("the tide gate", "opens at dawn", "and closes at night")


async def test_vectors_come_in_the_order_of_the_texts(
    providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream(dim=8)
    target, request = target_at(host.base_url), EmbedRequest(TEXTS, 8)
    straight = await providers.embed(target, request)
    host.behave("*", "shuffled")
    shuffled = await providers.embed(target, request)
    assert [list(vector) for vector in shuffled.vectors] == [list(vector) for vector in straight.vectors]
    assert [len(vector) for vector in straight.vectors] == [8, 8, 8]
    assert straight.usage is not None
    assert straight.usage.tokens_in > 0
    assert all(call.path.endswith("/embeddings") for call in host.calls())


@pytest.mark.parametrize("act", ["wrong_width", "wrong_count", "extra_vector", "nan", "login_page", "broken_json"])
async def test_vectors_that_are_not_those_asked_for_are_invalid_output(
    act: str, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream(dim=8)
    host.behave("*", act)
    with pytest.raises(UpstreamFailure) as caught:
        await providers.embed(target_at(host.base_url), EmbedRequest(TEXTS, 8))
    assert caught.value.kind == K.INVALID_OUTPUT


@pytest.mark.parametrize("act", ["rate_limit", "reset", "overflow", "unauthorized"])
async def test_a_refused_embedding_has_the_kind_of_any_other_call(
    act: str, providers: Providers, target_at: TargetAt, upstream: UpstreamFactory
) -> None:
    host = upstream(dim=8)
    host.behave("*", act)
    with pytest.raises(UpstreamFailure) as caught:
        await providers.embed(target_at(host.base_url), EmbedRequest(TEXTS, 8))
    assert (caught.value.kind, caught.value.status) == KINDS.get(act)
    assert len(host.calls()) == 1
