"""What only the fast lane does: the socket's finer points, byte by byte."""

import asyncio
from contextlib import aclosing

import pytest

from pipeline.domain.call import Usage
from pipeline.failover.kinds import FailureKind
from pipeline.failover.target import Price, Target
from pipeline.failover.upstream import Delta, EmbedRequest, Finish
from pipeline.providers import Providers
from tests.integration.providers.conftest import KEY, PAGE, chat_request, collect, failure_of
from tests.integration.providers.raw_host import END, HEAD, chunk, raw_host
from tests.upstream.fixtures import UpstreamFactory

K = FailureKind

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"gate"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"
ANSWER = (HEAD, chunk(TEXT), chunk(STOP), chunk(USAGE), chunk(DONE), END)


def fast(base_url: str) -> Target:
    return Target("m@fake", "test", "openai/m", base_url, price=Price(1_000_000, 1_000_000))


async def test_answers_that_were_read_to_their_end_share_a_connection(providers: Providers) -> None:
    async with raw_host(*ANSWER) as host:
        for _ in range(3):
            deltas, finish = await collect(providers, fast(host.base_url), chat_request())
            assert deltas == [Delta("gate")]
            assert finish == Finish("stop", Usage(3, 1, 4.0))
        assert (len(host.requests), host.connections) == (3, 1)


async def test_a_consumer_that_leaves_at_the_finish_keeps_the_connection_too(providers: Providers) -> None:
    async with raw_host(*ANSWER) as host:
        for _ in range(2):
            async with aclosing(providers.stream(fast(host.base_url), chat_request())) as events:
                async for event in events:
                    if isinstance(event, Finish):
                        break
        assert (len(host.requests), host.connections) == (2, 1)


async def test_an_answer_that_was_left_halfway_does_not(providers: Providers) -> None:
    async with raw_host(HEAD, chunk(TEXT)) as host:
        async with aclosing(providers.stream(fast(host.base_url), chat_request())) as events:
            await anext(events)
        await asyncio.wait_for(host.closed.wait(), 2)
        host.pieces = list(ANSWER)
        await collect(providers, fast(host.base_url), chat_request())
        assert host.connections == 2


@pytest.mark.parametrize("act", [{"newline": "\r"}, {"newline": "\r", "split_bytes": 1}], ids=str)
async def test_line_ends_of_cr_alone_are_read(
    act: dict[str, object], providers: Providers, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.behave("*", act)
    deltas, finish = await collect(providers, fast(host.base_url), chat_request(PAGE))
    assert "".join(delta.text for delta in deltas) == PAGE.strip()
    assert finish is not None


async def test_a_server_that_holds_the_end_back_does_not_spoil_a_complete_answer(providers: Providers) -> None:
    async with raw_host(HEAD, chunk(TEXT), chunk(STOP)) as host:
        async with asyncio.timeout(5):
            deltas, finish = await collect(providers, fast(host.base_url), chat_request())
        assert deltas == [Delta("gate")]
        assert finish == Finish("stop")


async def test_a_cut_after_the_finish_reason_does_not_either(providers: Providers) -> None:
    async with raw_host(HEAD, chunk(TEXT), chunk(STOP), hang_up=True) as host:
        deltas, finish = await collect(providers, fast(host.base_url), chat_request())
        assert (deltas, finish) == ([Delta("gate")], Finish("stop"))


async def test_an_error_whose_body_never_comes_is_known_by_its_status(providers: Providers) -> None:
    async with raw_host(b"HTTP/1.1 503 Busy\r\nRetry-After: 9\r\nContent-Length: 1000\r\n\r\n{") as host:
        async with asyncio.timeout(5):
            found = await failure_of(providers, fast(host.base_url), chat_request())
        assert (found.kind, found.status, found.retry_after_s) == (K.OVERLOADED, 503, 9.0)
        await asyncio.wait_for(host.closed.wait(), 2)


async def test_an_event_cut_in_its_middle_leaves_a_stream_without_an_end(providers: Providers) -> None:
    async with raw_host(HEAD, chunk(TEXT), chunk(STOP[:40]), END) as host:
        assert await collect(providers, fast(host.base_url), chat_request()) == ([Delta("gate")], None)


async def test_a_last_event_without_its_blank_line_counts(providers: Providers) -> None:
    async with raw_host(HEAD, chunk(TEXT), chunk(STOP.rstrip()), END) as host:
        assert await collect(providers, fast(host.base_url), chat_request()) == ([Delta("gate")], Finish("stop"))


async def test_a_server_that_does_not_stream_is_taken_at_its_whole_answer(providers: Providers) -> None:
    answer = b'{"choices":[{"message":{"content":"gate"},"finish_reason":"stop"}]'
    body = answer + b',"usage":{"prompt_tokens":2,"completion_tokens":1}}'
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with raw_host(head, body) as host:
        got = await collect(providers, fast(host.base_url), chat_request())
        assert got == ([Delta("gate")], Finish("stop", Usage(2, 1, 3.0)))


async def test_a_finish_reason_that_says_failed_is_a_failure(providers: Providers) -> None:
    async with raw_host(HEAD, chunk(TEXT), chunk(STOP.replace(b'"stop"', b'"error"')), END) as host:
        assert (await failure_of(providers, fast(host.base_url), chat_request())).kind == K.SERVER_ERROR


async def test_an_error_event_by_name_is_one_whatever_it_holds(providers: Providers) -> None:
    event = b'event: error\ndata: {"message": "at capacity", "code": 503}\n\n'
    async with raw_host(HEAD, chunk(event), END) as host:
        found = await failure_of(providers, fast(host.base_url), chat_request())
        assert (found.kind, found.status) == (K.OVERLOADED, 503)


@pytest.mark.parametrize("first", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/2 nonsense\r\n\r\n"])
async def test_what_does_not_speak_http_is_connect(first: bytes, providers: Providers) -> None:
    async with raw_host(first) as host:
        assert (await failure_of(providers, fast(host.base_url), chat_request())).kind == K.CONNECT


async def test_the_request_on_the_wire(providers: Providers) -> None:
    async with raw_host(*ANSWER) as host:
        await collect(providers, fast(f"{host.base_url}/?api-version=7"), chat_request())
        [request] = host.requests
        head, _, body = request.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/chat/completions?api-version=7 HTTP/1.1")
        assert f"Authorization: Bearer {KEY}".encode() in head
        assert b"Accept-Encoding: identity" in head
        assert b'"model":"m"' in body


async def test_another_providers_key_does_not_go_to_openai_for_want_of_a_url(providers: Providers) -> None:
    found = await failure_of(providers, Target("k", "test", "mistral/large", lane="fast"), chat_request())
    assert found.kind == K.NOT_FOUND
    assert "base_url" in found.message


async def test_user_and_password_of_the_url_serve_where_there_is_no_key(providers: Providers) -> None:
    async with raw_host(*ANSWER) as host:
        url = host.base_url.replace("http://", "http://user:pass@")
        await collect(providers, Target("keyless", "test", "openai/m", url), chat_request())
        assert b"Authorization: Basic dXNlcjpwYXNz" in host.requests[0]


async def test_extra_headers_and_body_are_laid_over(providers: Providers) -> None:
    params = {"extra_headers": {"X-Org": "tide"}, "extra_body": {"top_k": 5}}
    async with raw_host(*ANSWER) as host:
        await collect(providers, Target("m@fake", "test", "openai/m", host.base_url, params=params), chat_request())
        assert b"X-Org: tide" in host.requests[0]
        assert b'"top_k":5' in host.requests[0]
        assert b"extra" not in host.requests[0]


async def test_base64_vectors_are_asked_for_and_read(providers: Providers, upstream: UpstreamFactory) -> None:
    host = upstream(dim=8)
    request = EmbedRequest(("the tide gate", "opens"), 8)
    floats = await providers.embed(fast(host.base_url), request)
    packed = Target("m@fake", "test", "openai/m", host.base_url, params={"encoding_format": "base64"})
    vectors = (await providers.embed(packed, request)).vectors
    assert host.calls()[1].request["encoding_format"] == "base64"
    for one, other in zip(floats.vectors, vectors, strict=True):
        assert list(one) == pytest.approx(list(other), abs=1e-6)
