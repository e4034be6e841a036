"""The core's seams, played: an upstream with scripts, a sink and an observer that remember."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.domain.call import Skip, TryRecord, Usage
from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.call import Caller
from pipeline.failover.kinds import FailureKind
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.records import AttemptSink, AttemptStart, CallContext, Switch
from pipeline.failover.registry import CooldownRegistry
from pipeline.failover.target import Target
from pipeline.failover.upstream import (
    ChatRequest,
    Delta,
    EmbedRequest,
    Event,
    Finish,
    Message,
    Reply,
    TextPart,
    Vectors,
)

CONTEXT = CallContext("call-1")


def target(name: str, **settings: Any) -> Target:
    return Target(key=f"{name}@host", preset=name, model=f"openai/{name}", **settings)


def chat_request(**settings: Any) -> ChatRequest:
    return ChatRequest("describe", (Message("user", (TextPart("what is on it?"),)),), **settings)


def fail(kind: FailureKind | str, message: str = "", **more: Any) -> UpstreamFailure:
    return UpstreamFailure(kind, message or f"it was {kind}", **more)


# A script is what an upstream does in one call: pause (seconds), say (an event or a text), fail (an exception).
Step = float | int | str | Event | BaseException
Script = Sequence[Step]

GOOD: Script = ("Hello", " world", Finish("stop", Usage(10, 2, 0.01)))


@dataclass
class FakeUpstream:
    """Plays each target's scripts in turn, the last one again and again; remembers who was called when."""

    scripts: dict[str, list[Any]] = field(default_factory=dict)
    calls: list[tuple[str, float]] = field(default_factory=list)
    closed: list[tuple[str, float]] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    most: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    on_call: Callable[[str], None] | None = None

    @property
    def called(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _next(self, target: Target) -> Any:
        name = target.preset
        self.calls.append((name, asyncio.get_running_loop().time()))
        if self.on_call is not None:
            self.on_call(name)
        scripts = self.scripts.get(name, [GOOD])
        return scripts.pop(0) if len(scripts) > 1 else scripts[0]

    async def stream(self, target: Target, request: ChatRequest) -> AsyncGenerator[Event, None]:
        script = self._next(target)
        name = target.preset
        self.running[name] += 1
        self.most[name] = max(self.most[name], self.running[name])
        try:
            for step in script:
                event = await _play(step)
                if event is not None:
                    yield event
        finally:
            self.running[name] -= 1
            self.closed.append((name, asyncio.get_running_loop().time()))

    async def chat(self, target: Target, request: ChatRequest) -> Reply:
        text, finish = "", Finish("stop")
        async for event in self.stream(target, request):
            if isinstance(event, Delta):
                text += event.text
            else:
                finish = event
        return Reply(text, finish.reason, finish.usage)

    async def embed(self, target: Target, request: EmbedRequest) -> Vectors:
        script = self._next(target)
        answer: Vectors | None = None
        for step in script:
            if isinstance(step, Vectors):
                answer = step
            else:
                await _play(step)
        assert answer is not None
        return answer


async def _play(step: Step) -> Event | None:
    if isinstance(step, BaseException):
        raise step
    if isinstance(step, str):
        return Delta(text=step)
    if isinstance(step, float | int):
        await asyncio.sleep(step)
        return None
    return step


@dataclass
class MemorySink:
    starts: list[AttemptStart] = field(default_factory=list)
    ends: dict[int, TryRecord] = field(default_factory=dict)
    exhaustions: list[tuple[str, int, tuple[Skip, ...]]] = field(default_factory=list)
    before_begin: Callable[[], Awaitable[None]] | None = None

    async def begin(self, start: AttemptStart) -> int:
        if self.before_begin is not None:
            await self.before_begin()
        self.starts.append(start)
        return len(self.starts)

    async def end(self, attempt_id: int, record: TryRecord) -> None:
        assert attempt_id not in self.ends, "an attempt ended twice"
        self.ends[attempt_id] = record

    async def exhausted(self, context: CallContext, role: str, position: int, skipped: tuple[Skip, ...]) -> None:
        self.exhaustions.append((role, position, skipped))

    @property
    def outcomes(self) -> list[tuple[str, str | None]]:
        return [(record.target.partition("@")[0], record.kind) for record in self.ends.values()]


@dataclass
class MemoryObserver:
    tries: list[TryRecord] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    cooldowns: list[tuple[str, str, float]] = field(default_factory=list)
    recoveries: list[str] = field(default_factory=list)

    def tried(self, context: CallContext, role: str, record: TryRecord) -> None:
        self.tries.append(record)

    def switched(self, switch: Switch) -> None:
        self.switches.append(switch)

    def cooled(self, target: str, kind: str, until: float) -> None:
        self.cooldowns.append((target, kind, until))

    def recovered(self, target: str) -> None:
        self.recoveries.append(target)


class LoopTime:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


@dataclass
class World:
    """A caller with everything around it; made inside a running (virtual) loop."""

    upstream: FakeUpstream = field(default_factory=FakeUpstream)
    sink: MemorySink = field(default_factory=MemorySink)
    observer: MemoryObserver = field(default_factory=MemoryObserver)
    spread: float = 0.5
    draining: Callable[[], bool] = lambda: False
    registry: CooldownRegistry = field(init=False)
    caller: Caller = field(init=False)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.use(MemoryRegistry(now=lambda: 1000.0 + loop.time(), rng=lambda: self.spread))

    def use(self, registry: CooldownRegistry, sink: AttemptSink | None = None) -> None:
        self.registry = registry
        self.caller = Caller(
            registry,
            self.upstream,
            sink or self.sink,
            self.observer,
            LoopTime(),
            rng=lambda: self.spread,
            draining=lambda: self.draining(),
        )

    async def in_flight(self, *targets: Target) -> int:
        return sum(status.in_flight for status in await self.registry.statuses(targets))
