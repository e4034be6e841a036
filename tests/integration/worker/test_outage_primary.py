from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from worker.outage.primary import RETRY_AFTER_S, Primary
from worker.outage.script import Mode, Script

_BODY = {
    "model": "big-text",
    "messages": [{"role": "user", "content": "<text_layer>\nThe seal was greased.\n</text_layer>"}],
}


@asynccontextmanager
async def _serving(mode: Mode) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    runner = web.AppRunner(Primary(Script.of(last=mode)).app(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield session, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _calls(session: aiohttp.ClientSession, url: str) -> list[dict[str, Any]]:
    async with session.get(f"{url}/outage/calls") as response:
        calls: list[dict[str, Any]] = (await response.json())["calls"]
        return calls


async def test_healthy_it_answers_whole_and_streamed() -> None:
    async with _serving(Mode.HEALTHY) as (session, url):
        async with session.post(f"{url}/v1/chat/completions", json=_BODY) as response:
            whole = await response.json()
        async with session.post(f"{url}/v1/chat/completions", json={**_BODY, "stream": True}) as response:
            streamed = await response.text()
        assert whole["choices"][0]["message"]["content"] == "The seal was greased."
        assert streamed.count('"content"') > 1
        assert streamed.endswith("data: [DONE]\n\n")
        assert [call["outcome"] for call in await _calls(session, url)] == ["answered", "answered"]


async def test_busy_it_says_so_in_both_ways_and_when_to_come_back() -> None:
    async with _serving(Mode.BUSY) as (session, url):
        seen = []
        for _ in range(3):
            async with session.post(f"{url}/v1/chat/completions", json=_BODY) as response:
                seen.append((response.status, response.headers["Retry-After"]))
        assert seen == [(429, str(RETRY_AFTER_S)), (503, str(RETRY_AFTER_S)), (429, str(RETRY_AFTER_S))]
        assert [call["outcome"] for call in await _calls(session, url)] == ["refused"] * 3


async def test_hanging_it_says_nothing_and_logs_who_left() -> None:
    async with _serving(Mode.HANGING) as (session, url):
        timeout = aiohttp.ClientTimeout(total=0.2)
        with pytest.raises(TimeoutError):
            await session.post(f"{url}/v1/chat/completions", json=_BODY, timeout=timeout)
        async with asyncio.timeout(5):
            while (await _calls(session, url))[0]["outcome"] == "open":  # noqa: ASYNC110 - it is another's event
                await asyncio.sleep(0.01)
        assert [call["outcome"] for call in await _calls(session, url)] == ["dropped"]
