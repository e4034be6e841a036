"""The failover core over a real lane and real HTTP; the registry is a process's own, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline.domain.call import Answer
from pipeline.failover.call import Caller
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.records import CallContext
from pipeline.failover.registry import TargetStatus
from pipeline.failover.target import CallPolicy, Chain, Target
from pipeline.failover.upstream import Reply
from pipeline.providers import Providers
from tests.integration.providers.conftest import NOW, chat_request
from tests.unit.failover.fakes import LoopTime, MemoryObserver, MemorySink

__all__ = ["Core"]


@dataclass
class Core:
    """A chain over real targets, and what was recorded of its calls."""

    providers: Providers
    targets: tuple[Target, ...]
    policy: CallPolicy = field(default_factory=CallPolicy)
    sink: MemorySink = field(default_factory=MemorySink)
    observer: MemoryObserver = field(default_factory=MemoryObserver)

    def __post_init__(self) -> None:
        self.registry = MemoryRegistry(now=lambda: NOW, rng=lambda: 0.5)
        self.chain = Chain("vlm", self.targets, self.policy)
        self.caller = Caller(self.registry, self.providers, self.sink, self.observer, LoopTime(), rng=lambda: 0.5)

    async def ask(
        self, text: str = "a page", check: Callable[[Reply], str | None] | None = None, **request: Any
    ) -> Answer[Reply]:
        """One call; ``text`` is the input."""
        await self.providers.prepare(self.targets)
        asked = chat_request(text, input_digest=text, **request)
        return await self.caller.chat(self.chain, asked, CallContext("call"), check=check)

    async def status(self) -> TargetStatus:
        """The first target's."""
        return (await self.registry.statuses(self.targets))[0]

    async def cooldown_s(self) -> float | None:
        """How long the first target cools; None when it does not."""
        until = (await self.status()).until
        return None if until is None else until - NOW

    @property
    def kinds(self) -> list[str | None]:
        """How the tries ended, in order."""
        return [record.kind for record in self.sink.ends.values()]
