"""An outage in simulated time: the real chain over targets that answer as told, with Postgres' clock moved along.

Statements say ``now()`` without a schema, so a function of that name in a schema that is searched first moves the
database's clock for the engine that searches it, and for nobody else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, event, text

from pipeline.adapters.vlm import FallbackVlm
from pipeline.adapters.watch import RegistryWatch
from pipeline.clock import LoopClock, wall_now_s
from pipeline.domain.call import Usage
from pipeline.domain.errors import UpstreamFailure
from pipeline.domain.unit import MODEL_STAGES, Stage
from pipeline.failover.call import Caller
from pipeline.failover.kinds import FailureKind
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.target import Chain, Price, Target
from pipeline.failover.upstream import ChatRequest, Delta, EmbedRequest, Event, Finish, Reply, Vectors
from pipeline.store.attempt_sink import PostgresAttemptSink
from pipeline.store.session import Sessions, make_engine
from pipeline.store.window import Slice
from tests.integration.ledger.harness import Harness
from tests.unit.failover.fakes import MemoryObserver

__all__ = ["Clock", "Outage", "Servers", "Writes", "simulated_engine"]

_MOVE = """
    create or replace function simulated.now() returns timestamptz stable language sql
    as $$ select pg_catalog.now() + make_interval(secs => {offset_s}) $$
"""

_TEXTS = (
    "The harbour office opens the northern sluice at half tide.",
    "Barges wait behind the weir until a lamp is shown.",
    "Nobody paints the old crane, which rusts beside the basin.",
    "Eels were counted there in spring, more than ever before.",
    "A storm took the southern beacon in the year of the flood.",
)


@dataclass
class Clock:
    """How far time has been moved on, for the registry and for Postgres alike."""

    engine: Engine
    offset_s: float = 0.0

    def now(self) -> float:
        return wall_now_s() + self.offset_s

    def advance(self, by_s: float) -> None:
        self.offset_s += by_s
        with self.engine.begin() as connection:
            connection.execute(text(_MOVE.format(offset_s=self.offset_s)))
            # The fleet lived on meanwhile.
            connection.execute(text("update worker set heartbeat_at = now()"))


@contextmanager
def simulated_engine(url: str) -> Iterator[Engine]:
    """An engine whose ``now()`` a ``Clock`` moves."""
    engine = make_engine(url, pool_size=20, application_name="simulated")

    @event.listens_for(engine, "connect")
    def search_simulated_first(connection: Connection, _record: object) -> None:
        connection.execute("set search_path = simulated, pg_catalog, public")  # type: ignore[call-overload]
        connection.commit()

    with engine.begin() as connection:
        connection.execute(text("drop schema if exists simulated cascade"))
        connection.execute(text("create schema simulated"))
    try:
        yield engine
    finally:
        with engine.begin() as connection:
            connection.execute(text("drop schema simulated cascade"))
        engine.dispose()


@dataclass
class Servers:
    """Model servers that answer or say 503, by target; they remember who called when, and how many at once.

    Attributes:
        up: The targets that answer.
        took_s: How long an answer takes.
        cost_usd: What an answer costs, by target.
        calls: Whom, when, and how many were under way with it.
        described: The inputs that were answered.
        peaks: At each call's start: how many were answered by then, and how many under way with it.
    """

    clock: Clock
    up: set[str] = field(default_factory=set)
    took_s: float = 0.0
    cost_usd: dict[str, float] = field(default_factory=dict)
    calls: list[tuple[str, float, int]] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    running: int = 0
    peaks: list[tuple[int, int]] = field(default_factory=list)

    async def stream(self, target: Target, request: ChatRequest) -> AsyncGenerator[Event, None]:
        self.running += 1
        self.calls.append((target.preset, self.clock.now(), self.running))
        self.peaks.append((len(self.described), self.running))
        try:
            if target.preset not in self.up:
                raise UpstreamFailure(FailureKind.OVERLOADED, "503 busy", status=503)
            await asyncio.sleep(self.took_s)
            self.described.append(request.input_digest)
            yield Delta(text=_TEXTS[len(self.described) % len(_TEXTS)])
            yield Finish("stop", Usage(10, 2, self.cost_usd.get(target.preset, 0.0)))
        finally:
            self.running -= 1

    async def chat(self, target: Target, request: ChatRequest) -> Reply:
        raise NotImplementedError

    async def embed(self, target: Target, request: EmbedRequest) -> Vectors:
        raise NotImplementedError


class Outage:
    """A harness whose vision chain is two real targets, over a registry on the simulated clock."""

    def __init__(self, harness: Harness, engine: Engine, sessions: Sessions, prices: Sequence[Price] = ()) -> None:
        self.clock = Clock(engine)
        self.clock.advance(0)
        self.servers = Servers(self.clock)
        self.harness = harness
        self.sessions = sessions
        images = frozenset({"text", "image"})
        targets = [
            Target(f"{name}@host", name, f"openai/{name}", modalities=images, price=price)
            for name, price in zip(("first", "second"), (*prices, Price(), Price()), strict=False)
        ]
        self.chain = Chain("vlm", tuple(targets))
        self.registry = MemoryRegistry(self.clock.now, lambda: 0.5)
        self._executor = ThreadPoolExecutor(4)
        sink = PostgresAttemptSink(sessions, self._executor)
        caller = Caller(self.registry, self.servers, sink, MemoryObserver(), LoopClock(), lambda: 0.5)
        idle = Chain("idle", (Target("idle@host", "idle", "openai/idle", price=Price(0, 0)),))
        chains = dict.fromkeys(MODEL_STAGES, idle) | {Stage.DESCRIBE: self.chain}
        harness.vlm = FallbackVlm(caller, self.chain)  # type: ignore[assignment]
        harness.watch = RegistryWatch(self.registry, chains, harness.submit)  # type: ignore[assignment]

    def close(self) -> None:
        self._executor.shutdown()

    @property
    def soonest(self) -> float | None:
        """Until when the vision chain is closed."""
        return self.harness.watch.room(Stage.DESCRIBE).until

    def carry_out(self, *slices: Slice) -> None:
        """What workers do with slices."""
        for piece in slices:
            self.harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)

    def settle(self) -> None:
        """What the beat and the workers would do until nothing moves."""
        while True:
            woken = self.harness.wake()
            if not self.harness.drive() and not woken:
                return


@dataclass
class Writes:
    """Counts the rows that statements write, by table, while it listens."""

    engine: Engine
    rows: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Writes:
        event.listen(self.engine, "after_cursor_execute", self._count)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(self.engine, "after_cursor_execute", self._count)

    def _count(self, _c: object, cursor: object, statement: str, *_: object) -> None:
        words = statement.lower().replace('"', "").split()
        for at, word in enumerate(words[:-2]):
            table = words[at + 1] if word == "update" and words[at + 2] == "set" else ""
            table = words[at + 2] if (word, words[at + 1]) in (("insert", "into"), ("delete", "from")) else table
            if table:
                with self._lock:
                    self.rows[table] = self.rows.get(table, 0) + max(0, getattr(cursor, "rowcount", 0))
