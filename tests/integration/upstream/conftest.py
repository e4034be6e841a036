"""What the tests of the fake share: its fixtures, and a plain aiohttp client that keeps what it read."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from tests.upstream import FakeUpstream, Upstream
from tests.upstream.fixtures import upstream, upstream_process

__all__ = ["upstream", "upstream_process"]

MESSAGES = [{"role": "user", "content": "Say it.\n<text>\n" + "The tide gate opens at dawn. " * 8 + "\n</text>"}]


@dataclass
class Got:
    """One response, as far as it came. `error` is what the client raised, `events` the data of the SSE events."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: Exception | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        lines = self.body.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(e) for e in self.events if e != "[DONE]"]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [c["choices"][0]["delta"] for c in self.chunks if c.get("choices")]

    @property
    def text(self) -> str:
        return "".join(d.get("content") or "" for d in self.deltas)

    @property
    def finish_reasons(self) -> list[str]:
        return [
            c["choices"][0]["finish_reason"]
            for c in self.chunks
            if c.get("choices") and c["choices"][0]["finish_reason"]
        ]


class Client:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def post(
        self, host: Upstream, path: str, body: Any, *, give_up_s: float = 5.0, headers: dict[str, str] | None = None
    ) -> Got:
        """POST and read until the end, an error or `give_up_s`, then close the socket."""
        got = Got()
        try:
            async with asyncio.timeout(give_up_s):
                async with self.session.post(
                    host.base_url + path, json=body, headers=headers, allow_redirects=False
                ) as response:
                    got.status, got.headers = response.status, dict(response.headers)
                    async for data in response.content.iter_any():
                        got.body += data
        except (TimeoutError, aiohttp.ClientError, ConnectionError) as e:
            got.error = e
        return got

    async def chat(self, host: Upstream, *, stream: bool = True, give_up_s: float = 5.0, **body: Any) -> Got:
        full = {"model": "m", "messages": MESSAGES, "stream": stream} | body
        return await self.post(host, "/chat/completions", full, give_up_s=give_up_s)

    async def embed(self, host: Upstream, *texts: str, **body: Any) -> Got:
        return await self.post(host, "/embeddings", {"model": "m", "input": list(texts)} | body)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield Client(session)


@pytest.fixture
def host() -> Iterator[FakeUpstream]:
    with FakeUpstream(dim=64) as fake:
        yield fake
