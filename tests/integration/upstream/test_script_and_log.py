"""Which call gets which act, what the log holds, and the control API of a host in another process."""

import asyncio
import socket
import time

import pytest
from pydantic import ValidationError

from tests.integration.upstream.conftest import MESSAGES, Client
from tests.upstream import FakeUpstream, Upstream
from tests.upstream.fixtures import ProcessFactory, UpstreamFactory


async def statuses(client: Client, host: Upstream, n: int, model: str = "m") -> list[int | None]:
    return [(await client.chat(host, model=model, stream=False)).status for _ in range(n)]


async def test_a_sequence_is_spent_once(host: FakeUpstream, client: Client) -> None:
    host.behave("m", 503, 503, "ok", 500)
    assert await statuses(client, host, 6) == [503, 503, 200, 500, 200, 200]


async def test_an_act_lasts_until_cleared_or_for_so_many_calls(host: FakeUpstream, client: Client) -> None:
    host.behave("m", 503)
    host.behave("other", 500)
    host.behave("m", 429, calls=2)
    assert await statuses(client, host, 4) == [429, 429, 503, 503]
    host.clear("m")
    assert await statuses(client, host, 1) == [200]
    assert await statuses(client, host, 1, "other") == [500]
    host.clear()
    assert await statuses(client, host, 1, "other") == [200]


async def test_a_cycle_goes_round(host: FakeUpstream, client: Client) -> None:
    host.behave("m", 503, "ok", cycle=True)
    assert await statuses(client, host, 5) == [503, 200, 503, 200, 503]


async def test_a_window_of_time(host: FakeUpstream, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 10.0, 20.0, 40.0])
    monkeypatch.setattr("tests.upstream.script.monotonic", lambda: next(times))
    host.behave("m", 503, from_s=15, seconds=20)
    assert await statuses(client, host, 3) == [200, 503, 200]


async def test_conditions(host: FakeUpstream, client: Client) -> None:
    host.behave("gpt-*", 500)
    host.behave("*", 501, path="*/embeddings")
    host.behave("*", 502, stream=True)
    host.behave("*", "overflow", input_tokens_above=1000)
    host.behave("*", 418, prompt_contains="page 7")
    host.behave("*", 401, authorization="Bearer old-*")
    assert await statuses(client, host, 1, "gpt-5") == [500]
    assert await statuses(client, host, 1) == [200]
    assert (await client.embed(host, "text")).status == 501
    assert (await client.chat(host)).status == 502
    long = [{"role": "user", "content": "x" * 5000}]
    assert (await client.chat(host, messages=long)).json["error"]["code"] == "context_length_exceeded"
    about = [{"role": "user", "content": "see page 7"}]
    assert (await client.chat(host, messages=about)).status == 418
    body = {"model": "m", "messages": MESSAGES}
    for key, status in [("old-1", 401), ("new-1", 200)]:
        headers = {"Authorization": f"Bearer {key}"}
        assert (await client.post(host, "/chat/completions", body, headers=headers)).status == status


def test_a_misspelt_behaviour_is_refused(host: FakeUpstream) -> None:
    with pytest.raises(ValidationError, match="no act is named 'stal'"):
        host.behave("m", "stal")
    with pytest.raises(ValidationError, match="stall_afer"):
        host.behave("m", {"stall_afer": 1})
    with pytest.raises(ValidationError, match="for_calls"):
        host.behave("m", 503, for_calls=1)


async def test_the_log_of_a_call(host: FakeUpstream, client: Client) -> None:
    before = time.time()
    body = {"model": "m", "messages": MESSAGES, "stream": True, "temperature": 0}
    await client.post(host, "/chat/completions", body, headers={"Authorization": "Bearer sk-1"})
    await client.post(host, "/chat/completions", body | {"model": "n"})
    first, second = host.calls()
    assert (first.n, first.model, first.path, first.stream) == (1, "m", "/v1/chat/completions", True)
    assert (first.status, first.outcome, first.act, first.in_flight_at_start) == (200, "ok", "ok", 1)
    assert (first.authorization, second.authorization) == ("Bearer sk-1", None)
    assert first.first_byte_at is not None
    assert first.first_content_at is not None
    assert first.ended_at is not None
    assert before <= first.received_at <= first.first_byte_at <= first.first_content_at <= first.ended_at <= time.time()
    assert first.chunks > 3
    assert first.input_tokens > 40
    assert first.body_digest != second.body_digest
    assert first.prompt_digest == second.prompt_digest
    assert first.request["temperature"] == 0
    assert [c.n for c in host.calls("n")] == [2]
    assert host.calls(path="/embeddings") == []
    host.reset()
    assert host.calls() == []
    assert host.peak_in_flight() == 0


def test_waiting_for_calls_that_do_not_come_says_what_came(host: FakeUpstream) -> None:
    with pytest.raises(TimeoutError, match="0 of 1 calls matched"):
        host.wait_for_calls(1, timeout_s=0.05)


def test_many_hosts_end_without_a_trace(upstream: UpstreamFactory) -> None:
    hosts = [upstream() for _ in range(20)]
    assert len({h.port for h in hosts}) == 20
    port = hosts[0].port
    hosts[0].stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    hosts[0].stop()
    with pytest.raises(OSError, match="in use"):
        FakeUpstream(port=hosts[1].port).start()


def test_stopping_does_not_wait_for_calls_under_way(upstream: UpstreamFactory) -> None:
    host = upstream()
    host.behave("*", "hang")
    with socket.create_connection(("127.0.0.1", host.port)) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        host.wait_for_calls(1)
        host.stop()
    assert host.calls()[0].outcome == "dropped"


async def test_a_host_in_another_process_is_driven_by_the_control_api(
    upstream_process: ProcessFactory, client: Client
) -> None:
    host = await asyncio.to_thread(upstream_process, dim=16)
    assert len((await client.embed(host, "x")).json["data"][0]["embedding"]) == 16
    host.behave("m", 503, {"as": "rate_limit", "headers": {"Retry-After": "7"}}, "ok")
    assert (await client.chat(host)).status == 503
    assert (await client.chat(host)).headers["Retry-After"] == "7"
    host.clear("m")
    host.behave("m", "stall")
    assert (await client.chat(host, give_up_s=0.2)).text == ""
    [stalled] = await asyncio.to_thread(host.wait_for_calls, 1, "m", outcome="client_closed")
    assert stalled.duration_s < 1
    assert [c.status for c in host.calls(path="/chat/completions")] == [503, 429, 200]
    assert host.peak_in_flight("m") == 1
    host.refuse()
    assert (await client.chat(host)).status is None
    host.reset()
    assert host.calls() == []
    assert (await client.chat(host)).finish_reasons == ["stop"]


async def test_the_control_api_on_the_host_s_own_port(host: FakeUpstream, client: Client) -> None:
    control = host.control_url
    async with client.session.post(
        control, json=[{"model": "m", "do": [503, "ok"]}, {"do": "stall", "model": "n"}]
    ) as r:
        assert [rule["model"] for rule in (await r.json())["rules"]] == ["m", "n"]
    assert await statuses(client, host, 2) == [503, 200]
    async with client.session.get(control) as r:
        assert [rule["used"] for rule in (await r.json())["rules"]] == [2, 0]
    async with client.session.get(f"{control}/calls", params={"outcome": "ok", "at_least": 1, "timeout_s": 1}) as r:
        assert [c["n"] for c in await r.json()] == [2]
    async with client.session.post(control, json={"model": "m", "do": "nonsense"}) as r:
        assert r.status == 400
        assert "no act is named 'nonsense'" in (await r.json())["error"]
    async with client.session.delete(control, params={"model": "n"}) as r:
        assert [rule["model"] for rule in (await r.json())["rules"]] == ["m"]
    async with client.session.post(control, json={"do": "refuse", "seconds": 0.1}) as r:
        assert (await r.json())["listening"] is False
    assert (await client.chat(host)).status is None
    await asyncio.sleep(0.2)
    async with client.session.get(f"{control}/peak") as r:
        assert r.status == 200
