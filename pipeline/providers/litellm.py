"""The default lane: litellm, for every provider that does not speak OpenAI's API.

Imported at first use and never from a command's path: the import takes 5 s and 200 MB. A process that will use it
loads it ahead (``load``), or its first call would be timed out for the import. Every retry, timer and log of litellm is
off, and its transport refuses redirects, so that no key leaves for another host.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from pydantic import SecretStr

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest, EmbedRequest, Event, Finish, Reply, Vectors
from pipeline.providers.litellm_errors import ended_early, failure_of_exception
from pipeline.providers.payload import (
    OPENAI_BASE_URL,
    ChunkReader,
    chat_messages,
    chat_options,
    read_reply,
    read_token_counts,
    read_vectors,
    with_params,
)
from pipeline.providers.prices import usage_of
from pipeline.providers.redact import Redactor, redactor_of
from pipeline.providers.sessions import KEEPALIVE_S, LoopSessions

__all__ = ["LitellmUpstream", "load_litellm"]

# The core's timers end a call; this is only the number that litellm insists on.
_NEVER_S = 86_400.0
# They take their credentials from the surroundings, and would take a placeholder for a key.
_AMBIENT = frozenset({"bedrock", "sagemaker", "vertex_ai", "vertex_ai_beta"})
_NO_KEY = "none"
_HTTP = "litellm.llms.custom_httpx"


def load_litellm() -> Any:
    """Import litellm, tamed; returns the module. Blocks for seconds the first time.

    litellm reads its switches from the environment while it is imported, and offers no other way: that is why this
    module writes to the environment.
    """
    if "litellm" not in sys.modules:
        environ = os.environ  # noqa: TID251
        environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import fetches a file from the network
        environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"  # same
        environ["LITELLM_MODE"] = "PRODUCTION"  # else it loads a .env of the working folder into the environment
    litellm: Any = importlib.import_module("litellm")
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.redact_messages_in_exceptions = True
    litellm.disable_streaming_logging = True
    litellm.num_retries = 0
    litellm.DEFAULT_MAX_RETRIES = 0  # embeddings take it for a max_retries of 0
    litellm.http2 = False  # has a transport of its own, which follows redirects
    # A row of dashes is no loop; the core judges repetition, and as the answer's fault.
    litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize
    handler: Any = importlib.import_module(f"{_HTTP}.http_handler")
    handler.AIOHTTP_KEEPALIVE_TIMEOUT = KEEPALIVE_S
    from pipeline.providers.litellm_transport import guard  # it imports httpx

    guard(importlib.import_module(f"{_HTTP}.aiohttp_transport").LiteLLMAiohttpTransport)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # its error logs hold requests
    return litellm


class LitellmUpstream:
    """Calls any provider through litellm.

    Args:
        secrets: Keys by target key. A target without one, at a ``base_url`` of its own, is called with a placeholder:
            litellm would send there what it finds in the environment.
        now: Seconds since the epoch, for dates in ``Retry-After``.
        on_dropped: Told a target's key and a param that it can't take, once each.
    """

    def __init__(
        self,
        secrets: Mapping[str, SecretStr],
        now: Callable[[], float],
        on_dropped: Callable[[str, str], None],
    ) -> None:
        self._secrets = secrets
        self._now = now
        self._on_dropped = on_dropped
        self._told: set[tuple[str, str]] = set()
        self._sessions = LoopSessions()
        self._litellm: Any = None

    async def load(self) -> Any:
        """Import litellm without blocking the loop; returns the module."""
        if self._litellm is None:
            self._litellm = await asyncio.to_thread(load_litellm)
        return self._litellm

    async def stream(self, target: Target, request: ChatRequest) -> AsyncGenerator[Event, None]:
        """Yield the answer as it comes; see ``Upstream.stream``."""
        redactor = self._redactor(target, request)
        reader = ChunkReader()
        litellm = await self.load()
        arguments = self._chat_arguments(litellm, target, request)
        try:
            wrapper = await litellm.acompletion(**arguments)
        except Exception as error:  # whatever litellm lets out, none of it may leave this package
            raise failure_of_exception(error, redactor, now=self._now()) from None
        try:
            while (chunk := await self._next_chunk(wrapper, reader, redactor)) is not None:
                delta = reader.read(chunk)
                if delta is not None:
                    yield delta
        finally:
            await wrapper.aclose()
        # Where the upstream gave no reason, litellm writes "stop".
        received = getattr(wrapper, "received_finish_reason", None) or getattr(
            wrapper, "intermittent_finish_reason", None
        )
        if received is None and not reader.saw_content:
            raise UpstreamFailure(FailureKind.INVALID_OUTPUT, "the stream held no answer", 200)
        if received is not None and reader.finish_reason is not None:
            yield Finish(reader.finish_reason, usage_of(target, reader.token_counts))

    async def chat(self, target: Target, request: ChatRequest) -> Reply:
        """The whole answer; see ``Upstream.chat``."""
        document = await self._whole(target, request)
        reply = read_reply(document)
        usage = usage_of(target, read_token_counts(document.get("usage")))
        return Reply(reply.text, reply.finish_reason, usage, reply.reasoning, reply.tool_calls)

    async def embed(self, target: Target, request: EmbedRequest) -> Vectors:
        """The texts' vectors; see ``Upstream.embed``."""
        document = await self._whole(target, request)
        vectors = read_vectors(document, len(request.texts), request.dim)
        return Vectors(vectors, usage_of(target, read_token_counts(document.get("usage"))))

    async def close(self) -> None:
        """Close the running loop's connections, and forget the clients that litellm keeps on them."""
        await self._sessions.close()
        litellm = sys.modules.get("litellm")
        if litellm is not None:
            await importlib.import_module(f"{_HTTP}.async_client_cleanup").close_litellm_async_clients()
            litellm.in_memory_llm_clients_cache.flush_cache()
            # The session only: a closed client would be of no use to the process's next loop.
            await litellm.module_level_aclient.client._transport.aclose()
            await importlib.import_module("litellm.litellm_core_utils.logging_worker").GLOBAL_LOGGING_WORKER.stop()

    async def _next_chunk(self, wrapper: Any, reader: ChunkReader, redactor: Redactor) -> dict[str, Any] | None:
        try:
            chunk = await anext(wrapper, None)
            return None if chunk is None else chunk.model_dump()
        except Exception as error:  # as above
            if ended_early(error) and reader.saw_content:
                return None
            raise failure_of_exception(error, redactor, now=self._now(), after_content=reader.saw_content) from None

    async def _whole(self, target: Target, request: ChatRequest | EmbedRequest) -> dict[str, Any]:
        litellm = await self.load()
        if isinstance(request, EmbedRequest):
            call, arguments = litellm.aembedding, self._embed_arguments(litellm, target, request)
        else:
            call, arguments = litellm.acompletion, self._chat_arguments(litellm, target, request)
        try:
            document: dict[str, Any] = (await call(**arguments)).model_dump()
        except Exception as error:  # as above
            raise failure_of_exception(error, self._redactor(target, request), now=self._now()) from None
        return document

    def _chat_arguments(self, litellm: Any, target: Target, request: ChatRequest) -> dict[str, Any]:
        arguments = with_params(chat_options(request), target.params)
        self._tell_dropped(litellm, target, arguments, "chat_completion")
        return (
            arguments
            | self._common(target)
            | {
                "messages": chat_messages(request.messages),
                "stream": request.stream,
            }
        )

    def _embed_arguments(self, litellm: Any, target: Target, request: EmbedRequest) -> dict[str, Any]:
        arguments = with_params({}, target.params)
        self._tell_dropped(litellm, target, arguments, "embeddings")
        return arguments | self._common(target) | {"input": list(request.texts)}

    def _common(self, target: Target) -> dict[str, Any]:
        common: dict[str, Any] = {
            "model": target.model,
            "num_retries": 0,
            "max_retries": 0,
            "timeout": _NEVER_S,
            "drop_params": True,
            "no-log": True,
            "shared_session": self._sessions.get(),
        }
        base_url = target.base_url or (OPENAI_BASE_URL if target.provider == "openai" else None)
        if base_url is not None:
            common["api_base"] = base_url
        secret = self._secrets.get(target.key)
        if secret is not None:
            common["api_key"] = secret.get_secret_value().strip()
        elif base_url is not None and target.provider not in _AMBIENT:
            common["api_key"] = _NO_KEY
        return common

    def _tell_dropped(self, litellm: Any, target: Target, arguments: Mapping[str, Any], kind: str) -> None:
        """Say what litellm will leave out because the provider has no such param."""
        provider, _, model = target.model.partition("/")
        try:
            supported = litellm.get_supported_openai_params(
                model=model, custom_llm_provider=provider, request_type=kind
            )
        except Exception:  # an unknown provider: the call itself says so, and better
            return
        standard = litellm.OPENAI_CHAT_COMPLETION_PARAMS
        dropped = {name for name in arguments if name in standard and name not in _TRANSLATED} - set(supported or ())
        for name in sorted(dropped if supported is not None else ()):
            if (target.key, name) not in self._told:
                self._told.add((target.key, name))
                self._on_dropped(target.key, name)

    def _redactor(self, target: Target, request: ChatRequest | EmbedRequest) -> Redactor:
        return redactor_of(target, request, self._secrets.get(target.key))


# litellm carries these out itself where the provider has none.
_TRANSLATED = frozenset({"stream", "stream_options", "max_tokens", "extra_headers", "extra_body"})
