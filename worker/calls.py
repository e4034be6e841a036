"""What calls models: the registry, the providers and the failover core, put together for one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from secrets import SystemRandom

from pipeline.adapters.embedder import FallbackEmbedder
from pipeline.clock import LoopClock, wall_now_s
from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.space import Space
from pipeline.failover.call import Caller
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.records import Observer
from pipeline.failover.target import Chain
from pipeline.observe.logging import get_logger
from pipeline.providers.base import Providers
from pipeline.providers.local import LocalUpstream
from pipeline.registry.fallback import FallbackRegistry
from pipeline.registry.redis import RedisRegistry, connect_to
from pipeline.store.attempt_sink import PostgresAttemptSink
from pipeline.store.references import PostgresReference
from pipeline.store.session import Sessions
from pipeline.store.switches import disabled_targets
from worker.bootstrap import Container

__all__ = ["Calls", "Fleet", "make_calls", "make_registry"]

SINK_THREADS = 4
"""Threads that write attempts; each holds a Postgres connection for a millisecond or two at a time."""


class Fleet:
    """How many processes share the targets, as last heard of; the heartbeat keeps it."""

    def __init__(self) -> None:
        self.size = 1

    def __call__(self) -> int:
        return max(1, self.size)


@dataclass(frozen=True, slots=True)
class Calls:
    """The pieces that a process calls models with. They belong to the loop that first uses them.

    Attributes:
        executor: Writes attempts and reads switches, for the loop never touches Postgres.
        fleet: Its ``size`` decides this process's share of ``max_parallel`` while Redis is away.
    """

    caller: Caller
    registry: FallbackRegistry
    providers: Providers
    sink: PostgresAttemptSink
    executor: Executor
    fleet: Fleet
    container: Container

    async def prepare(self, roles: Iterable[str]) -> None:
        """Load what calls for these roles will need; it takes seconds that must not count as a target's silence."""
        targets = [target for role in roles for target in self.container.chains.chain(role).targets]
        await self.providers.prepare(targets)

    def embedder(self, *, interactive: bool = False) -> FallbackEmbedder:
        """The embedding role of the configured space."""
        chain: Chain = self.container.chains.chain("embedder", interactive=interactive)
        space = self.container.space
        return self._embedder(chain, space.model, space.dim, interactive=interactive)

    def embedder_of(self, space: Space, *, interactive: bool = False) -> FallbackEmbedder | None:
        """The embedding role of any space; None when nobody knows how its model is asked."""
        chain = self.container.embedder_chain(space)
        if chain is None:
            return None
        if interactive != chain.policy.interactive:
            chain = replace(chain, policy=replace(chain.policy, interactive=interactive))
        return self._embedder(chain, space.model, space.dim, interactive=interactive)

    def _embedder(self, chain: Chain, model: str, dim: int, *, interactive: bool) -> FallbackEmbedder:
        # Somebody who waits at a terminal is told; a worker has an answer in its hands.
        reference = PostgresReference(self.container.sessions, self.executor, model, dim, patient=not interactive)
        return FallbackEmbedder(self.caller, chain, dim, reference)

    async def close(self) -> None:
        """Close connections and local models, on their loop."""
        closing = (self.providers.close(), self.registry.aclose(), self.sink.aclose())
        await asyncio.gather(*closing, return_exceptions=True)
        self.executor.shutdown(wait=False)


def make_registry(container: Container, executor: Executor, fleet: Fleet) -> FallbackRegistry:
    """The fleet's registry on Redis, with this process's memory behind it."""
    log = get_logger("registry")
    rng = SystemRandom().random
    redis = RedisRegistry(
        connect_to(container.addresses.redis_url, container.config.registry.timeout_s),
        container.key_prefix,
        rng=rng,
        timeout_s=container.config.registry.timeout_s,
        switches=_Switches(container.sessions, executor),
    )
    return FallbackRegistry(
        redis,
        MemoryRegistry(wall_now_s, rng, fleet),
        monotonic=time.monotonic,
        on_degraded=lambda reason: log.warning("registry.degraded", reason=reason),
        on_restored=lambda: log.info("registry.restored"),
        switches=_Switches(container.sessions, executor),
    )


def make_calls(container: Container, observer: Observer, draining: Callable[[], bool] = lambda: False) -> Calls:
    """Put the pieces together; nothing connects or loads before the first call.

    Args:
        draining: See ``Caller``.
    """
    log = get_logger("providers")
    executor = ThreadPoolExecutor(SINK_THREADS, thread_name_prefix="tidegate-sink")
    fleet = Fleet()
    registry = make_registry(container, executor, fleet)
    providers = Providers(
        container.secrets,
        LocalUpstream(),
        wall_now_s,
        lambda target, param: log.warning("param.dropped", target=target, param=param),
    )
    sink = PostgresAttemptSink(container.sessions, executor)
    caller = Caller(
        registry,
        providers,
        sink,
        observer,
        LoopClock(),
        SystemRandom().random,
        draining,
    )
    return Calls(caller, registry, providers, sink, executor, fleet, container)


class _Switches:
    """Reads the kill switches; while Postgres is away, those that were last read."""

    def __init__(self, sessions: Sessions, executor: Executor) -> None:
        self._sessions = sessions
        self._executor = executor
        self._last: Collection[str] = ()

    async def __call__(self) -> Collection[str]:
        try:
            self._last = await asyncio.get_running_loop().run_in_executor(self._executor, self._read)
        except ServiceUnavailable:
            get_logger("registry").warning("switches.not_read")
        return self._last

    def _read(self) -> Collection[str]:
        with self._sessions() as session:
            return disabled_targets(session)
