"""Each way to misbehave, seen by a plain aiohttp client."""

import asyncio
import json
import math
import re
import time
from typing import Any

import aiohttp
import pytest

from tests.integration.upstream.conftest import Client
from tests.upstream import NAMED, Act, Call, FakeUpstream, dead_port, redirect
from tests.upstream.fixtures import UpstreamFactory


async def only_call(host: FakeUpstream) -> Call:
    [call] = await asyncio.to_thread(host.wait_for_calls, 1, ended=True)
    return call


STATUSES = sorted(name for name, act in NAMED.items() if act.get("status", 200) >= 400)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", STATUSES)
async def test_named_statuses(host: FakeUpstream, client: Client, name: str, stream: bool) -> None:
    host.behave("m", name)
    got = await client.chat(host, stream=stream)
    assert got.status == NAMED[name]["status"]
    assert got.json["error"]["code"] == NAMED[name].get("code")
    call = await only_call(host)
    assert (call.outcome, call.status, call.act) == ("status", got.status, name)


async def test_a_status_with_headers_body_and_code(host: FakeUpstream, client: Client) -> None:
    host.behave(
        "m",
        {"status": 429, "headers": {"Retry-After": "1.5", "retry-after-ms": "1500"}, "code": "slow_down"},
        Act(status=418, body="short and stout", content_type="text/plain"),
        {"as": "rate_limit", "headers": {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}},
    )
    got = await client.chat(host)
    assert (got.headers["Retry-After"], got.headers["retry-after-ms"]) == ("1.5", "1500")
    assert got.json["error"]["code"] == "slow_down"
    got = await client.chat(host)
    assert (got.status, got.body) == (418, b"short and stout")
    assert (await client.chat(host)).headers["Retry-After"].startswith("Wed, 21 Oct")


async def test_a_redirect_leads_to_the_other_host(upstream: UpstreamFactory, client: Client) -> None:
    first, other = upstream(), upstream()
    first.behave("m", redirect(f"{other.base_url}/chat/completions"))
    got = await client.chat(first)
    assert (got.status, got.headers["Location"]) == (307, f"{other.base_url}/chat/completions")
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"Authorization": "Bearer sk-secret"}
    async with client.session.post(first.base_url + "/chat/completions", json=body, headers=headers) as response:
        assert response.status == 200
    assert first.calls()[1].authorization == "Bearer sk-secret"
    assert other.calls()[0].authorization is None


async def test_a_login_page_with_status_200(host: FakeUpstream, client: Client) -> None:
    host.behave("m", "login_page")
    got = await client.chat(host)
    assert (got.status, got.headers["Content-Type"]) == (200, "text/html")
    assert got.body.startswith(b"<!doctype html>")
    assert (await only_call(host)).outcome == "body"


async def test_a_dead_port_refuses() -> None:
    ports = {dead_port() for _ in range(3)}
    assert len(ports) == 3
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_refuse_drops_calls_under_way_and_listen_brings_the_port_back(host: FakeUpstream, client: Client) -> None:
    host.behave("m", "stall")
    under_way = asyncio.create_task(client.chat(host))
    await asyncio.to_thread(host.wait_for_calls, 1, ended=False)
    port = host.port
    host.refuse()
    assert isinstance((await under_way).error, aiohttp.ClientError)
    assert isinstance((await client.chat(host)).error, aiohttp.ClientConnectorError)
    assert [c.outcome for c in host.calls()] == ["dropped"]
    host.listen()
    host.clear()
    assert (await client.chat(host)).finish_reasons == ["stop"]
    assert host.port == port


async def test_refuse_for_a_time(host: FakeUpstream, client: Client) -> None:
    host.refuse(seconds=0.2)
    assert isinstance((await client.chat(host)).error, aiohttp.ClientConnectorError)
    await asyncio.sleep(0.3)
    assert (await client.chat(host)).status == 200


@pytest.mark.parametrize(
    ("name", "error"), [("reset", aiohttp.ClientOSError), ("close", aiohttp.ServerDisconnectedError)]
)
async def test_closed_before_headers(host: FakeUpstream, client: Client, name: str, error: type[Exception]) -> None:
    host.behave("m", name)
    got = await client.chat(host)
    assert got.status is None
    assert isinstance(got.error, error)
    assert (await only_call(host)).outcome == "reset"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("name", "status"), [("hang", None), ("hang_after_headers", 200)])
async def test_silence_around_the_headers(
    host: FakeUpstream, client: Client, name: str, status: int | None, stream: bool
) -> None:
    host.behave("m", name)
    got = await client.chat(host, stream=stream, give_up_s=0.1)
    assert (got.status, got.body) == (status, b"")
    call = await only_call(host)
    assert call.outcome == "client_closed"
    assert 0.08 < call.duration_s < 2
    assert call.first_content_at is None


async def test_the_moment_the_client_closes_is_noticed(host: FakeUpstream, client: Client) -> None:
    host.behave("m", {"first_content_s": 10})
    got = await client.chat(host, give_up_s=0.1)
    closed = time.time()
    assert isinstance(got.error, TimeoutError)
    call = await only_call(host)
    assert call.ended_at == pytest.approx(closed, abs=0.5)
    assert host.in_flight("m") == 0


async def test_a_stall_before_content_sends_the_role_chunk_only(host: FakeUpstream, client: Client) -> None:
    host.behave("m", "stall")
    got = await client.chat(host, give_up_s=0.1)
    assert got.deltas == [{"role": "assistant", "content": ""}]
    assert (await only_call(host)).chunks == 0


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        ("comment", ": keep-alive"),
        ("role", '"role":"assistant"'),
        ("empty", '"delta":{}'),
        ("metadata", '"choices":[]'),
        ("newline", "\n\n\n\n"),
    ],
)
async def test_keepalives_carry_no_content(host: FakeUpstream, client: Client, kind: str, mark: str) -> None:
    host.behave("m", {"stall_after": 0, "keepalive": kind, "keepalive_s": 0.02})
    got = await client.chat(host, give_up_s=0.5)
    assert got.body.decode().count(mark) >= 2
    assert got.text == ""
    assert (await only_call(host)).outcome == "client_closed"


@pytest.mark.parametrize("name", ["comments", "role_only", "empty_chunks"])
async def test_named_keepalives_never_come_to_content(host: FakeUpstream, client: Client, name: str) -> None:
    host.behave("m", name)
    got = await client.chat(host, give_up_s=0.25)
    assert isinstance(got.error, TimeoutError)
    assert got.text == ""


async def test_keepalives_then_an_answer(host: FakeUpstream, client: Client) -> None:
    host.behave("m", {"first_content_s": 0.2, "keepalive": "comment", "keepalive_s": 0.05, "role_chunks": 3})
    got = await client.chat(host)
    assert got.body.count(b": keep-alive") >= 3
    assert sum("role" in d for d in got.deltas) == 3
    assert got.finish_reasons == ["stop"]


async def test_a_stall_after_content_for_ever_or_for_a_time(host: FakeUpstream, client: Client) -> None:
    host.behave("m", {"stall_after": 2, "chunk_chars": 5}, {"stall_after": 2, "stall_s": 0.1})
    got = await client.chat(host, give_up_s=0.1)
    assert len(got.text) == 10
    assert (await asyncio.to_thread(host.wait_for_calls, 1, ended=True))[0].chunks == 2
    started = time.monotonic()
    assert (await client.chat(host)).finish_reasons == ["stop"]
    assert time.monotonic() - started > 0.09


@pytest.mark.parametrize("name", ["cut", "cut_rst"])
@pytest.mark.parametrize("stream", [True, False])
async def test_cut_in_the_middle(host: FakeUpstream, client: Client, name: str, stream: bool) -> None:
    host.behave("m", name)
    got = await client.chat(host, stream=stream)
    assert isinstance(got.error, aiohttp.ClientError)
    assert got.status == 200
    assert got.body
    assert (await only_call(host)).outcome == "cut"
    if stream:
        assert len(got.text) == 3 * 24
        assert got.finish_reasons == []


async def test_a_cut_set_later_than_the_last_chunk_comes_before_the_finish(host: FakeUpstream, client: Client) -> None:
    host.behave("m", {"cut_after": 1000})
    got = await client.chat(host)
    assert isinstance(got.error, aiohttp.ClientError)
    assert got.finish_reasons == []


async def test_a_proper_end_without_finish_reason(host: FakeUpstream, client: Client) -> None:
    host.behave("m", "eof")
    got = await client.chat(host)
    assert got.error is None
    assert len(got.text) == 3 * 24
    assert got.finish_reasons == []
    assert "[DONE]" not in got.events
    assert (await only_call(host)).outcome == "eof"
    got = await client.chat(host, stream=False)
    assert got.error is None
    with pytest.raises(json.JSONDecodeError):
        json.loads(got.body)


@pytest.mark.parametrize(("name", "chunks"), [("error_in_stream", 0), ("error_mid", 3)])
async def test_an_error_event_ends_the_stream(host: FakeUpstream, client: Client, name: str, chunks: int) -> None:
    host.behave("m", name)
    got = await client.chat(host)
    assert got.error is None
    assert "role" in got.deltas[0]
    assert len(got.text) == chunks * 24
    assert "message" in got.chunks[-1]["error"]
    assert (await only_call(host)).outcome == "stream_error"
    assert "error" in (await client.chat(host, stream=False)).json


async def test_slow_tokens_are_apart(host: FakeUpstream, client: Client) -> None:
    host.behave("m", {"gap_s": 0.05, "text": "abcd", "chunk_chars": 1})
    started = time.monotonic()
    assert (await client.chat(host)).text == "abcd"
    assert time.monotonic() - started >= 0.15


async def test_a_delay_before_headers(host: FakeUpstream, client: Client) -> None:
    host.behave("m", {"delay_s": 0.1}, {"delay_s": 0.01, "status": 500})
    await client.chat(host)
    call = await only_call(host)
    assert call.first_byte_at is not None
    assert call.first_byte_at - call.received_at > 0.09
    assert (await client.chat(host)).status == 500


@pytest.mark.parametrize(
    ("name", "finish"),
    [("empty", "stop"), ("truncated", "length"), ("filtered", "content_filter"), ("refused", "stop")],
)
async def test_answers_that_are_none(host: FakeUpstream, client: Client, name: str, finish: str) -> None:
    usual = (await client.chat(host)).text
    host.behave("m", name)
    got = await client.chat(host)
    assert got.finish_reasons == [finish]
    assert got.text == (usual[: len(usual) // 2] if name == "truncated" else "")
    whole = (await client.chat(host, stream=False)).json["choices"][0]
    assert (whole["finish_reason"], whole["message"]["content"]) == (finish, got.text)
    assert ("refusal" in whole["message"]) == (name == "refused")


async def test_a_tool_call_only_answer(host: FakeUpstream, client: Client) -> None:
    host.behave("m", "tool_call")
    got = await client.chat(host)
    assert got.text == ""
    assert got.finish_reasons == ["tool_calls"]
    calls = [d["tool_calls"][0]["function"] for d in got.deltas if "tool_calls" in d]
    assert calls[0]["name"] == "lookup"
    json.loads("".join(c["arguments"] for c in calls))
    message = (await client.chat(host, stream=False)).json["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"]["name"] == "lookup"


async def test_reasoning_comes_before_the_answer(host: FakeUpstream, client: Client) -> None:
    host.behave("m", "reasoning", {"as": "reasoning_only", "reasoning_field": "reasoning"})
    got = await client.chat(host)
    thought = [i for i, d in enumerate(got.deltas) if "reasoning_content" in d]
    said = [i for i, d in enumerate(got.deltas) if d.get("content")]
    assert 0 < thought[0] <= thought[-1] < said[0]
    got = await client.chat(host)
    assert got.text == ""
    assert any("reasoning" in d for d in got.deltas)


async def test_a_repetition_goes_on_until_the_client_leaves(host: FakeUpstream, client: Client) -> None:
    host.behave("m", "repeat")
    got = await client.chat(host, give_up_s=0.15)
    assert isinstance(got.error, TimeoutError)
    assert got.body.count(b"again and again") > 10
    assert (await only_call(host)).outcome == "client_closed"


async def test_one_line_of_megabytes(host: FakeUpstream, client: Client) -> None:
    host.behave("m", "long_line")
    got = await client.chat(host)
    assert max(map(len, got.events)) > 4_000_000
    assert got.finish_reasons == ["stop"]


@pytest.mark.parametrize("stream", [True, False])
async def test_broken_json(host: FakeUpstream, client: Client, stream: bool) -> None:
    host.behave("m", "broken_json")
    got = await client.chat(host, stream=stream)
    assert (got.status, got.error) == (200, None)
    with pytest.raises(json.JSONDecodeError):
        _ = got.chunks if stream else got.json


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
async def test_line_ends_and_pieces(host: FakeUpstream, client: Client, newline: str) -> None:
    text = "Ein Übergang\u2028mit 漢字 und \u0085 darin"
    host.behave("m", {"text": text, "newline": newline, "split_bytes": 3, "done": False})
    got = await client.chat(host)
    assert got.text == text
    assert "[DONE]" not in got.events
    assert (newline * 2).encode() in got.body


async def test_wrong_vectors(host: FakeUpstream, client: Client) -> None:
    texts = ["one fish", "two fish", "red fish"]
    right = [d["embedding"] for d in (await client.embed(host, *texts)).json["data"]]
    host.behave("m", "wrong_width", "wrong_count", "extra_vector", "shuffled", "nan", "drift", "broken_json", "cut")
    assert {len(d["embedding"]) for d in (await client.embed(host, *texts)).json["data"]} == {7}
    assert len((await client.embed(host, *texts)).json["data"]) == 2
    assert len((await client.embed(host, *texts)).json["data"]) == 4
    shuffled = (await client.embed(host, *texts)).json["data"]
    assert [d["index"] for d in shuffled] == [2, 1, 0]
    assert [d["embedding"] for d in sorted(shuffled, key=lambda d: d["index"])] == right
    nan = await client.embed(host, *texts)
    assert b"NaN" in nan.body
    assert math.isnan(nan.json["data"][0]["embedding"][0])
    drifted = (await client.embed(host, *texts)).json["data"][0]["embedding"]
    assert sum(x * y for x, y in zip(drifted, right[0], strict=True)) < 0.9
    with pytest.raises(json.JSONDecodeError):
        _ = (await client.embed(host, *texts)).json
    assert isinstance((await client.embed(host, *texts)).error, aiohttp.ClientError)
    assert (await client.embed(host, *texts)).json["data"][0]["embedding"] == right[0]


async def test_busy_above_n_in_flight(host: FakeUpstream, client: Client) -> None:
    host.behave("m", {"delay_s": 0.15})
    host.behave("m", "overloaded", in_flight_above=3)
    got = await asyncio.gather(*(client.chat(host) for _ in range(8)))
    assert sorted(g.status or 0 for g in got) == [200] * 3 + [503] * 5
    assert host.peak_in_flight("m") >= 4
    assert (await client.chat(host)).status == 200
    served = host.calls("m", outcome="ok")
    assert len(served) == 4
    assert max(c.in_flight_at_start for c in served) == 3


async def test_an_answer_function_that_fails_is_a_crash_in_the_log(
    host: FakeUpstream, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Any) -> str:
        raise RuntimeError("a test's own mistake")

    host.answer("m", broken)
    assert (await client.chat(host)).status == 500
    assert (await only_call(host)).outcome == "crashed"
    assert re.search("a test's own mistake", caplog.text)
