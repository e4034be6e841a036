"""Which provider calls a target."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

from pydantic import SecretStr

from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest, EmbedRequest, Event, Reply, Upstream, Vectors
from pipeline.providers.litellm import LitellmUpstream
from pipeline.providers.openai import OpenAiUpstream

__all__ = ["Providers", "lane_of"]

# Servers that speak OpenAI's API and nothing else that matters here.
_COMPATIBLE = frozenset({"openai", "hosted_vllm", "llamafile", "lm_studio"})


def lane_of(target: Target) -> str:
    """``local``, ``fast`` or ``litellm``.

    ``lane: fast`` and ``lane: litellm`` are taken at their word. ``auto`` takes the fast lane for what is known to
    speak OpenAI's API: ``openai/…``, with a ``base_url`` or without (OpenAI itself); ``hosted_vllm/…``,
    ``llamafile/…`` and ``lm_studio/…`` with a ``base_url``; ``ollama/…`` and ``ollama_chat/…`` whose ``base_url`` ends
    in ``/v1``. Everything else goes through litellm, which translates.
    """
    if target.is_local:
        return "local"
    if target.lane != "auto":
        return target.lane
    if target.provider == "openai" or (target.provider in _COMPATIBLE and target.base_url):
        return "fast"
    if target.provider in {"ollama", "ollama_chat"} and (target.base_url or "").rstrip("/").endswith("/v1"):
        return "fast"
    return "litellm"


class Providers:
    """Every provider behind one port: each call goes to the target's lane.

    Args:
        secrets: Keys by target key.
        local: Calls the ``local/…`` targets.
        now: Seconds since the epoch, for dates in ``Retry-After``.
        on_dropped: Told a target's key and a param that it can't take, once each.
    """

    def __init__(
        self,
        secrets: Mapping[str, SecretStr],
        local: Upstream,
        now: Callable[[], float],
        on_dropped: Callable[[str, str], None],
    ) -> None:
        self._local = local
        self._fast = OpenAiUpstream(secrets, now)
        self._litellm = LitellmUpstream(secrets, now, on_dropped)
        self._lanes: Mapping[str, Upstream] = {"local": local, "fast": self._fast, "litellm": self._litellm}

    async def prepare(self, targets: Iterable[Target]) -> None:
        """Load what calls to ``targets`` will need and what takes seconds, so that no call is timed out for it."""
        if any(lane_of(target) == "litellm" for target in targets):
            await self._litellm.load()

    def stream(self, target: Target, request: ChatRequest) -> AsyncGenerator[Event, None]:
        """See ``Upstream.stream``."""
        return self._lanes[lane_of(target)].stream(target, request)

    async def chat(self, target: Target, request: ChatRequest) -> Reply:
        """See ``Upstream.chat``."""
        return await self._lanes[lane_of(target)].chat(target, request)

    async def embed(self, target: Target, request: EmbedRequest) -> Vectors:
        """See ``Upstream.embed``."""
        return await self._lanes[lane_of(target)].embed(target, request)

    async def close(self) -> None:
        """Close every lane's connections on the running loop, and the local provider."""
        await self._fast.close()
        await self._litellm.close()
        close = getattr(self._local, "close", None)
        if close is not None:
            await close()
