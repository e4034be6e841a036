"""A whole ingest in one process against real Postgres: real parse, real ledger, and models scripted at their port."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from pipeline.adapters.watch import ChainRoom
from pipeline.dispatch import DispatchPolicy, dispatch
from pipeline.documents.sniff import sniff
from pipeline.domain.call import Answer, Outcome, TryRecord
from pipeline.domain.document import Limits
from pipeline.domain.errors import ChainExhausted
from pipeline.domain.run import RunState
from pipeline.domain.space import EmbedSpace
from pipeline.domain.unit import MODEL_STAGES, Stage, UnitState, When
from pipeline.endings import SliceReport, UnitPolicy
from pipeline.enqueue import Enqueued, enqueue
from pipeline.failover.kinds import FailureKind
from pipeline.failover.records import CallContext
from pipeline.failover.upstream import ChatRequest, Reply
from pipeline.ingest import Ingest
from pipeline.recipe import Recipe, build_recipe
from pipeline.reconcile import wake_parked_runs
from pipeline.stages.ports import ReplyCheck
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.runs import make_due
from pipeline.store.schema import Run, Unit
from pipeline.store.session import Sessions
from pipeline.store.suspects import next_suspect
from pipeline.store.units import Claimed
from pipeline.store.window import Slice
from pipeline.store.workers import beat
from pipeline.work import Models, Workshop

DIM = 256


def exhausted(
    role: str, *, retry_at: float | None = None, kind: FailureKind = FailureKind.OVERLOADED
) -> ChainExhausted:
    """What a chain raises when its one target is busy (or, for kinds that the input causes, has rejected it)."""
    busy = kind not in (FailureKind.INVALID_OUTPUT, FailureKind.CONTENT_POLICY, FailureKind.INVALID_REQUEST)
    record = TryRecord("primary@there", 0, Outcome.FAILED, kind=kind.value, message="no", ttft_s=None if busy else 0.1)
    return ChainExhausted(role, (record,), (), retry_at, busy)


@dataclass
class ScriptedChat:
    """A chat role that answers from its request, unless its next act says otherwise."""

    role: str
    answer: Callable[[ChatRequest], str]
    acts: deque[Exception | None] = field(default_factory=deque)
    always: Exception | None = None
    degraded: bool = False
    calls: list[tuple[CallContext, str]] = field(default_factory=list)
    before: Callable[[], None] = lambda: None

    async def chat(self, request: ChatRequest, context: CallContext, check: ReplyCheck | None = None) -> Answer[Reply]:
        self.calls.append((context, request.input_digest))
        self.before()
        act = self.acts.popleft() if self.acts else self.always
        await asyncio.sleep(0)
        if act is not None:
            raise act
        reply = Reply(self.answer(request), "stop")
        assert check is None or check(reply) is None
        record = TryRecord("fallback" if self.degraded else "primary", int(self.degraded), Outcome.OK, ttft_s=0.01)
        return Answer(reply, record.target, record.position, self.degraded, (record,))


@dataclass
class ScriptedEmbedder:
    always: Exception | None = None
    calls: list[Sequence[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], context: CallContext) -> Answer[list[list[float]]]:
        self.calls.append(texts)
        if self.always is not None:
            raise self.always
        vectors = [[1.0 if i == len(text) % DIM else 0.0 for i in range(DIM)] for text in texts]
        return Answer(vectors, "embedder", 0, False, (TryRecord("embedder", 0, Outcome.OK, ttft_s=0.01),))


@dataclass
class ScriptedWatch:
    """How much each stage's chain would take."""

    rooms: dict[Stage, ChainRoom] = field(default_factory=dict)

    def room(
        self,
        stage: Stage,
        *,
        primary_only: bool = False,
        without: frozenset[str] = frozenset(),
        allowed: frozenset[str] | None = None,
        free_only: bool = False,
    ) -> ChainRoom:
        return self.rooms.get(stage, ChainRoom(1_000_000))


@dataclass
class Heard:
    """What ingest told its events."""

    units: list[tuple[str, int, str]] = field(default_factory=list)
    inside: list[BaseException] = field(default_factory=list)

    def unit_finished(self, unit: Claimed, outcome: str, detail: str) -> None:
        self.units.append((unit.stage.value, unit.ordinal, outcome))

    def run_moved(self, run_id: int, document_id: str, state: RunState, detail: str) -> None: ...

    def failed_inside(self, unit: Claimed, error: BaseException) -> None:
        self.inside.append(error)


def cues(request: ChatRequest) -> str:
    word = str(request.inputs["chunk"]).split()[0].strip("#").strip() or "nothing"
    return f'{{"context": "About {word!s}.", "keywords": ["{word}"], "questions": []}}'


class Harness:
    """Enqueue, then ``drive`` until nothing moves."""

    def __init__(self, sessions: Sessions, blobs: FileBlobs, *, slots: int = 4, slice_units: int = 8) -> None:
        self.sessions, self.blobs = sessions, blobs
        self.vlm = ScriptedChat("vlm", lambda r: f"# Seen {len(r.inputs['image'])}")
        self.formatter = ScriptedChat("vlm_formatter", lambda r: str(r.inputs["description"] or r.inputs["text"]))
        self.retriever = ScriptedChat("retrieval_llm", cues)
        self.embedder = ScriptedEmbedder()
        self.watch = ScriptedWatch()
        self.heard = Heard()
        self.stopping = threading.Event()
        self.policy = DispatchPolicy(slice_units=slice_units)
        self.unit = UnitPolicy(lease_s=30, max_lost=3, drain_s=0.1)
        self.sent: list[Slice] = []
        self.lost_broker = False
        self.budget_usd: float | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._cpu = ThreadPoolExecutor(2)
        self._slots = slots
        self.beat()

    def beat(self) -> None:
        """The workers' heartbeats, which a slow machine would let go stale in the middle of a test."""
        with self.sessions.begin() as session:
            for stage in ("parse", "describe", "format", "retrieve", "embed"):
                beat(
                    session,
                    stage,
                    role="worker",
                    host="here",
                    pid=1,
                    queues=[stage],
                    slots=self._slots,
                    cpu_slots=self._slots,
                )

    def close(self) -> None:
        self._cpu.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def recipe(self, *, on_page_failure: str = "fail", **whens: When) -> Recipe:
        wanted = {Stage.DESCRIBE: When.AUTO, Stage.FORMAT: When.ALWAYS, Stage.RETRIEVE: When.ALWAYS}
        return build_recipe(
            models={stage: {"model": "m", "params": {}} for stage in MODEL_STAGES},
            whens=wanted | {Stage(name): when for name, when in whens.items()},
            space=EmbedSpace("test/embedder", DIM),
            limits=Limits(),
            page_long_side_px=1540,
            max_tokens=12,
            overlap_tokens=0,
            on_page_failure=on_page_failure,
        )

    def enqueue(self, *paths: Path, recipe: Recipe | None = None, **options: Any) -> list[Enqueued]:
        result = enqueue(
            self.sessions,
            self.blobs,
            paths,
            recipe=recipe or self.recipe(),
            limits=Limits(),
            sniff=sniff,
            **options,
        )
        return result.documents

    def ingest(self, *, suspects: bool = False) -> Ingest:
        shop = Workshop(
            blobs=self.blobs,
            models=Models(self.vlm, self.formatter, self.retriever, self.embedder),
            limits=Limits(),
            count_tokens=lambda text: len(text.split()),
            worker="worker-1",
            allowed=lambda collection, stage: None,
            budget_usd=lambda collection: self.budget_usd,
        )
        return Ingest(
            sessions=self.sessions,
            shop=shop,
            chains=self.watch,
            events=self.heard,
            submit=self.submit,
            cpu=self._cpu,
            stopping=self.stopping,
            policy=self.unit,
            suspects=suspects,
        )

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def publish(self, slices: Sequence[Slice]) -> None:
        if self.lost_broker:
            msg = "the broker is away"
            raise ConnectionError(msg)
        self.sent.extend(slices)

    def dispatch(self) -> list[Slice]:
        """Hand out slices; returns those that are new."""
        before = len(self.sent)
        dispatch(self.sessions, self.publish, self.policy)
        return self.sent[before:]

    def next_suspect(self) -> Slice | None:
        """Take a unit that has lost a lease, as a quarantine does."""
        with self.sessions.begin() as session:
            return next_suspect(session, list(Stage))

    def quarantine(self, suspect: Slice) -> SliceReport:
        """Carry out a suspect."""
        return self.ingest(suspects=True).run_slice(suspect.run_id, suspect.stage, suspect.ordinals)

    def drive(self, most_rounds: int = 100) -> list[SliceReport]:
        """Dispatch and work until nothing is handed out any more."""
        reports: list[SliceReport] = []
        for _ in range(most_rounds):
            self.beat()
            slices, suspect = self.dispatch(), self.next_suspect()
            if not slices and suspect is None:
                return reports
            for piece in slices:
                reports.append(self.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals))  # noqa: PERF401
            if suspect is not None:
                reports.append(self.quarantine(suspect))
        msg = f"still moving after {most_rounds} rounds"
        raise AssertionError(msg)

    def run(self, run_id: int | None) -> Run:
        with self.sessions() as session:
            return session.get_one(Run, run_id)

    def units(self, run_id: int | None, stage: Stage | None = None) -> list[Unit]:
        query = select(Unit).where(Unit.run_id == run_id).order_by(Unit.id)
        with self.sessions() as session:
            found = list(session.scalars(query))
        return [unit for unit in found if stage is None or unit.stage == stage]

    def states(self, run_id: int | None, stage: Stage) -> list[UnitState]:
        return [UnitState(unit.state) for unit in self.units(run_id, stage)]

    def make_due(self, run_id: int) -> None:
        with self.sessions.begin() as session:
            make_due(session, [run_id])

    def wake(self) -> list[int]:
        return wake_parked_runs(self.sessions, self.watch, MODEL_STAGES, 1000)
