"""The ways of making one model call that are compared, from nothing but a socket to the whole failover core.

Each asks the server of ``benchmarks.sse_server`` for a text and returns it, so that no way can win by reading less.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp
import orjson

__all__ = ["LANES", "Lane", "Places"]

_RNG = random.Random(7)  # noqa: S311  (jitter of cooldowns that never come)
_PROMPT = "Describe the page below in Markdown: headings, paragraphs, tables, figures. " * 8


@dataclass(frozen=True, slots=True)
class Places:
    """Where the servers are."""

    upstream_url: str
    redis_url: str = ""
    database_url: str = field(default="", repr=False)


class Lane(ABC):
    """One way of making a call."""

    about = ""
    reads = 0
    """Reads of the socket, where the lane can count them: tells whether a paced stream came piece by piece."""

    def __init__(self, places: Places) -> None:
        self.places = places

    @abstractmethod
    async def open(self) -> None:
        """Make the clients; nothing of this is measured."""

    @abstractmethod
    async def call(self, wish: str, *, stream: bool) -> str:
        """One call; returns the answer's text."""

    async def close(self) -> None:  # noqa: B027  (not every lane has something to close)
        """Close the clients."""


def _prompt(wish: str) -> str:
    return f"{_PROMPT}\n{wish}"


class RawLane(Lane):
    """The limit: aiohttp, the least that reads the stream right, and orjson."""

    about = "aiohttp, minimal SSE reader"

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._url = f"{self.places.upstream_url}/chat/completions"

    async def call(self, wish: str, *, stream: bool) -> str:
        body = {"model": "bench", "messages": [{"role": "user", "content": _prompt(wish)}], "stream": stream}
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._url, data=orjson.dumps(body), headers=headers) as response:
            if not stream:
                text: str = orjson.loads(await response.read())["choices"][0]["message"]["content"]
                return text
            return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> str:
        parts: list[str] = []
        rest = b""
        async for piece in response.content.iter_any():
            self.reads += 1
            events = (rest + piece).split(b"\n\n")
            rest = events.pop()
            for event in events:
                data = event[6:]
                if data == b"[DONE]":
                    continue
                choices = orjson.loads(data)["choices"]
                if choices and (text := choices[0]["delta"].get("content")):
                    parts.append(text)
        return "".join(parts)

    async def close(self) -> None:
        await self._session.close()


class _TidegateLane(Lane):
    """One of Tidegate's lanes, without the core or (with a sink) under all of it."""

    lane = "fast"
    sink: str | None = None

    async def open(self) -> None:
        from pipeline.clock import wall_now_s
        from pipeline.failover.target import Chain, Target
        from pipeline.providers.base import Providers
        from pipeline.providers.local import LocalUpstream

        self._numbers = count()
        self._providers = Providers({}, LocalUpstream(), wall_now_s, lambda *_: None)
        targets = [
            Target(
                key=f"{name}@bench",
                preset=name,
                model="openai/bench",
                base_url=self.places.upstream_url,
                lane=self.lane,
                max_parallel=64,
            )
            for name in ("primary", "fallback")
        ]
        await self._providers.prepare(targets)
        self._chain = Chain("vlm", tuple(targets))
        if self.sink is not None:
            await self._open_core()

    async def _open_core(self) -> None:
        from pipeline.clock import LoopClock, wall_now_s
        from pipeline.failover.call import Caller
        from pipeline.failover.memory import MemoryRegistry
        from pipeline.observe.metrics import Metrics
        from pipeline.registry.fallback import FallbackRegistry
        from pipeline.registry.redis import RedisRegistry, connect_to
        from worker.events import EventLog

        self._registry = FallbackRegistry(
            RedisRegistry(
                connect_to(self.places.redis_url, _REGISTRY_TIMEOUT_S),
                f"bench:{type(self).__name__}",
                rng=_RNG.random,
                timeout_s=_REGISTRY_TIMEOUT_S,
                switches=_nobody_is_off,
            ),
            MemoryRegistry(wall_now_s, _RNG.random),
            monotonic=time.monotonic,
            on_degraded=_fail,
            on_restored=lambda: None,
        )
        self._caller = Caller(
            self._registry, self._providers, self._open_sink(), EventLog(Metrics()), LoopClock(), _RNG.random
        )

    def _open_sink(self) -> Any:
        if self.sink == "memory":
            return _MemorySink()
        from pipeline.store.attempt_sink import PostgresAttemptSink
        from pipeline.store.session import make_engine, make_sessions
        from worker.calls import SINK_THREADS

        self._engine = make_engine(self.places.database_url, pool_size=SINK_THREADS, application_name="benchmark")
        self._executor = ThreadPoolExecutor(SINK_THREADS)
        return PostgresAttemptSink(make_sessions(self._engine), self._executor)

    async def call(self, wish: str, *, stream: bool) -> str:
        from pipeline.failover.records import CallContext
        from pipeline.failover.upstream import ChatRequest, Message, TextPart

        message = Message("user", (TextPart(_prompt(wish)),))
        request = ChatRequest("describe", (message,), stream=stream, input_digest="bench")
        if self.sink is None:
            return await self._call_lane(request)
        context = CallContext(f"bench-{next(self._numbers)}", stage="describe", worker="bench")
        answer = await self._caller.chat(self._chain, request, context)
        return answer.value.text

    async def _call_lane(self, request: Any) -> str:
        from pipeline.failover.upstream import Delta

        target = self._chain.primary
        if not request.stream:
            return (await self._providers.chat(target, request)).text
        events = self._providers.stream(target, request)
        return "".join([event.text async for event in events if isinstance(event, Delta)])

    async def close(self) -> None:
        await self._providers.close()
        if self.sink is not None:
            await self._registry.aclose()
        if self.sink == "postgres":
            self._executor.shutdown()
            self._engine.dispose()


class FastLane(_TidegateLane):
    about = "the fast lane alone"


class FastCoreLane(_TidegateLane):
    about = "the fast lane, failover core, Redis registry, attempts in memory"
    sink = "memory"


class FastCorePostgresLane(_TidegateLane):
    about = "the same, attempts in Postgres"
    sink = "postgres"


class LitellmLane(_TidegateLane):
    about = "Tidegate's litellm lane alone"
    lane = "litellm"


class LitellmCoreLane(_TidegateLane):
    about = "the litellm lane, failover core, Redis registry, attempts in memory"
    lane = "litellm"
    sink = "memory"


class BareLitellmLane(Lane):
    """litellm as its manual shows it."""

    about = "litellm.acompletion"

    async def open(self) -> None:
        from pipeline.providers.litellm import load_litellm

        self._complete: Callable[..., Any] = load_litellm().acompletion
        self._options: Mapping[str, Any] = {
            "model": "openai/bench",
            "api_base": self.places.upstream_url,
            "api_key": "none",
        }

    async def call(self, wish: str, *, stream: bool) -> str:
        messages = [{"role": "user", "content": _prompt(wish)}]
        answer = await self._complete(messages=messages, stream=stream, **self._options)
        if not stream:
            text: str = answer.choices[0].message.content
            return text
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])


class RouterLane(BareLitellmLane):
    """litellm's own failover, in its cheapest form: nothing is shared with other processes."""

    about = "litellm.Router with fallbacks, its state in memory"

    async def open(self) -> None:
        from pipeline.providers.litellm import load_litellm

        parameters = {"model": "openai/bench", "api_base": self.places.upstream_url, "api_key": "none"}
        router = load_litellm().Router(
            model_list=[
                {"model_name": name, "litellm_params": parameters, "model_info": {"id": name}}
                for name in ("primary", "fallback")
            ],
            fallbacks=[{"primary": ["fallback"]}],
            num_retries=0,
            allowed_fails=0,
            cooldown_time=30,
        )
        self._complete = router.acompletion
        self._options = {"model": "primary"}


class _MemorySink:
    """Attempts that nothing keeps: the core's own cost, without the database's."""

    def __init__(self) -> None:
        self._numbers = count(1)

    async def begin(self, _start: Any) -> int:
        return next(self._numbers)

    async def end(self, attempt_id: int, record: Any) -> None:
        """Nothing is kept."""

    async def exhausted(self, *_: Any) -> None:
        """Nothing is kept."""


# On a busy machine the usual 0.25 s may pass; a call that went on without Redis would not be what is measured.
_REGISTRY_TIMEOUT_S = 5.0


async def _nobody_is_off() -> tuple[str, ...]:
    return ()


def _fail(reason: str) -> None:
    msg = f"the registry went on without Redis, so this is no measurement: {reason}"
    raise RuntimeError(msg)


LANES: Mapping[str, type[Lane]] = {
    "raw": RawLane,
    "fast": FastLane,
    "fast+core": FastCoreLane,
    "fast+core+pg": FastCorePostgresLane,
    "litellm-lane": LitellmLane,
    "litellm-lane+core": LitellmCoreLane,
    "litellm": BareLitellmLane,
    "router": RouterLane,
}
