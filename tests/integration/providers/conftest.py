"""Both lanes against the fake upstream, through the router that the worker uses."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.target import Target
from pipeline.failover.upstream import (
    ChatRequest,
    Delta,
    EmbedRequest,
    Finish,
    ImagePart,
    Message,
    Reply,
    TextPart,
    Upstream,
    Vectors,
)
from pipeline.providers import Providers
from tests.upstream.fixtures import upstream, upstream_process

__all__ = ["upstream", "upstream_process"]

NOW = 1_800_000_000.0
KEY = "sk-test-0123456789abcdef"
PAGE = "The tide gate opens at dawn and closes when the moon is high. " * 4


class NoLocal:
    """In place of the local models: these tests have no local target."""

    def stream(self, target: Target, request: ChatRequest) -> Any:
        raise AssertionError

    async def chat(self, target: Target, request: ChatRequest) -> Reply:
        raise AssertionError

    async def embed(self, target: Target, request: EmbedRequest) -> Vectors:
        raise AssertionError


@pytest.fixture(params=["fast", "litellm"])
def lane(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dropped() -> list[tuple[str, str]]:
    return []


class KeyForAll(dict[str, SecretStr]):
    def get(self, key: object, default: Any = None) -> Any:
        return None if key == "keyless" else SecretStr(KEY)


@pytest.fixture
async def providers(dropped: list[tuple[str, str]]) -> AsyncIterator[Providers]:
    made = Providers(
        KeyForAll(), local=NoLocal(), now=lambda: NOW, on_dropped=lambda key, name: dropped.append((key, name))
    )
    yield made
    await made.close()


@pytest.fixture
def target_at(lane: str) -> Callable[..., Target]:
    def make(base_url: str, **changes: Any) -> Target:
        return replace(Target("m@fake", "test", "openai/m", base_url, lane), **changes)

    return make


def chat_request(text: str = PAGE, image: bytes | None = None, **changes: Any) -> ChatRequest:
    parts: tuple[TextPart | ImagePart, ...] = (TextPart(f"Write down the page.\n<text>{text}</text>"),)
    if image is not None:
        parts += (ImagePart(image),)
    messages = (Message("system", (TextPart("You transcribe."),)), Message("user", parts))
    return replace(ChatRequest("describe", messages), **changes)


async def collect(providers: Upstream, target: Target, request: ChatRequest) -> tuple[list[Delta], Finish | None]:
    deltas: list[Delta] = []
    finish: Finish | None = None
    async for event in providers.stream(target, request):
        if isinstance(event, Finish):
            assert finish is None, "two finishes"
            finish = event
        else:
            assert finish is None, "content after the finish"
            deltas.append(event)
    return deltas, finish


async def failure_of(providers: Upstream, target: Target, request: ChatRequest) -> UpstreamFailure:
    call = collect(providers, target, request) if request.stream else providers.chat(target, request)
    with pytest.raises(UpstreamFailure) as caught:
        await call
    return caught.value
