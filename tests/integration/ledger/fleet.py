"""The state machine's hands: actors that carry real use cases out, step by step, each step looked at."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import text

from pipeline.dispatch import DispatchPolicy, dispatch
from pipeline.domain.errors import RejectedInput, ServiceUnavailable, UsageError
from pipeline.domain.run import ACTIVE_RUN_STATES, ENDED_RUN_STATES, RunState
from pipeline.domain.unit import MODEL_STAGES, Stage, UnitState
from pipeline.endings import UnitPolicy
from pipeline.ingest import Ingest
from pipeline.reconcile import ReconcilePolicy, reconcile
from pipeline.store.parked import make_parked_due
from pipeline.store.session import make_sessions
from pipeline.store.suspects import next_suspect
from pipeline.store.units import Claimed
from pipeline.store.window import Slice
from pipeline.store.workers import beat
from pipeline.work import Done
from tests.integration.ledger.actors import Actor, Jobs, Killed, ModelWait, Order, Place, Stopping, Turns
from tests.integration.ledger.acts import FATAL, Injected, outcome
from tests.integration.ledger.harness import Heard, ScriptedWatch
from tests.integration.ledger.watcher import Rows, Watcher
from tests.integration.ledger.world import World

__all__ = ["UNIT", "Fleet", "Work"]

UNIT = UnitPolicy(lease_s=3600, hard_deadline_s=7200, max_lost=2, max_calls=3, drain_s=0)
_DISPATCH = DispatchPolicy(slice_units=2)
_REST_ROUNDS = 20
_TABLES = "batch, document, run, unit, page, chunk, embedding, attempt, blob, worker"

_TIME = {
    "leases": "update unit set lease_expires_at = now() - interval '1 s' where state = 'leased'",
    "one lease": "update unit set lease_expires_at = now() - interval '1 s'"
    " where id = (select min(id) from unit where state = 'leased')",
    "wakes": "update unit set dispatched_at = now() - interval '1 h' where dispatched_at is not null",
    "parks": "update unit set resume_at = now() - interval '1 s' where resume_at is not null",
    "patience": "update run set parked_since = now() - interval '2 days' where parked_since is not null",
}


_CLAIMED = text("select * from unit where state = 'leased' and leased_by = :worker order by ordinal")
# Claimed units whose result is there: nobody should be paid for it once more, but where a requeue wants just that.
_KNOWN = text(
    """
    select unit.id, unit.ordinal from unit join run on run.id = unit.run_id
    where unit.id = any(:ids)
      and (run.redo_from is null or array_position(:stages, run.redo_from) > array_position(:stages, unit.stage))
      and case unit.stage
            when 'embed' then exists (
                select from embedding
                where embedding.space_id = run.space_id and embedding.text_digest = unit.input_digest)
            else exists (
                select from unit other
                where other.collection_id = unit.collection_id and other.stage = unit.stage and other.state = 'done'
                  and other.input_digest = unit.input_digest and other.output is not null
                  and not (other.degraded and run.primary_only)) end
    """
)


_UNRECORDED = text(
    """
    select unit.id, unit.lost_leases, count(attempt.id) from unit
    left join attempt on attempt.unit_id = unit.id and attempt.outcome = 'lost'
    group by unit.id having unit.lost_leases <> count(attempt.id)
    """
)


@dataclass(eq=False)
class Work:
    """An actor, with what it is about.

    Attributes:
        piece: The slice that it works on, if any.
        units: The units that it has claimed, in the order of its jobs.
        path: The document that it enqueues or deletes, if any; ``content`` is what it enqueues.
        may_lose: Whether a child of its has died, which counts as a lost lease.
    """

    kind: str
    name: str
    actor: Actor
    piece: Slice | None = None
    units: list[Claimed] = field(default_factory=list)
    path: str | None = None
    content: bytes | None = None
    may_lose: bool = False


class Fleet:
    """Everybody who works on the ledger."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connection = world.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.plain = make_sessions(world.engine)
        self.turns = Turns(world.engine)
        self.jobs = Jobs(self.turns, world.loop.run_until_complete)
        self.jobs.started = self._claimed
        self.stopping = Stopping(self.turns)
        self.chains = ScriptedWatch()
        self.heard = Heard()
        self.watcher = Watcher(self.connection)
        self.works: list[Work] = []
        self.messages: list[Slice] = []
        self.unread: list[Slice] = []
        self.dead: list[str] = []
        self.injected: dict[int, set[str]] = {}
        self.gave_up = False
        self.dropped = 0
        self.contents: dict[str, bytes | None] = {}
        self.sound = True
        self._numbers = itertools.count(1)
        self._bytes_of: dict[int, str] = {}
        self.connection.execute(text(f"truncate {_TABLES} restart identity cascade"))

    # --- watching -----------------------------------------------------------------------------------------------

    @property
    def rows(self) -> Rows:
        return self.watcher.rows

    def look(self, by: str = "time", *, may_lose: bool = False) -> None:
        """Check everything; nothing more is asked of an example that has failed."""
        self.sound = False
        self.watcher.look(by, may_lose=may_lose)
        self._bytes_of |= {run.id: run.blob_digest for run in self.rows.runs.values()}
        unexpected = [error for error in self.heard.inside if not isinstance(error, Injected)]
        if unexpected:
            raise unexpected[0]
        self.sound = True

    # --- actors -------------------------------------------------------------------------------------------------

    def count(self, kind: str) -> int:
        return sum(work.kind == kind for work in self.works)

    def at(self, place: Place) -> list[Work]:
        return [work for work in self.works if work.actor.place is place]

    def start(self, kind: str, call: Callable[[], Any], *, name: str | None = None, **about: Any) -> Work:
        """Start a use case; it stands before its first transaction then."""
        name = name or f"{kind} {next(self._numbers)}"
        work = Work(kind, name, Actor(name, self.turns, call), **about)
        self.works.append(work)
        self._after(work)
        return work

    def step(self, work: Work, order: Order = Order.GO) -> None:
        work.actor.step(order)
        self._after(work)

    def answer(self, work: Work, wait: ModelWait, act: str = "ok", until: float | None = None) -> None:
        """End a job of a worker's.

        Args:
            act: What the model, or the job's process, does.
            until: When a busy chain says that it is back.
        """
        value = self._value(work, wait, act, until)
        work.may_lose |= act == "died"
        work.actor.answer(wait, value)
        self._after(work)

    def kill(self, work: Work) -> None:
        """SIGKILL: whatever it holds stays as it is."""
        while not work.actor.ended:
            if work.actor.place is Place.BEFORE_TRANSACTION:
                work.actor.step(Order.KILL)
            else:
                work.actor.answer(work.actor.waits[0], Killed())
        self.works.remove(work)
        self.dead.append(work.name)

    def go_on(self, work: Work, steps: int) -> Work:
        """Let an actor go on undisturbed for some transactions, or until it waits for a model or ends."""
        for _ in range(steps):
            if work.actor.place is Place.BEFORE_TRANSACTION:
                self.step(work)
        return work

    def run_out(self, work: Work) -> None:
        """Let an actor go on undisturbed to its end, with the answers that it waits for."""
        while not work.actor.ended:
            if work.actor.place is Place.BEFORE_TRANSACTION:
                self.step(work)
            else:
                self.answer(work, work.actor.waits[0])

    def _after(self, work: Work) -> None:
        self.look(work.name, may_lose=work.may_lose or work.kind == "reconciler")
        if not work.actor.ended:
            return
        self.works.remove(work)
        error = work.actor.error
        if isinstance(error, Killed):
            self.dead.append(work.name)
        if work.kind == "worker" and error is None:
            self.dropped += work.actor.value.counts["dropped"]
        if error is not None and not isinstance(error, Killed | ServiceUnavailable | UsageError | ConnectionError):
            self.sound = False
            raise error
        if work.path is not None and self.contents.get(work.path) is not None:
            self._check_contents(work)

    def _check_contents(self, work: Work) -> None:
        """What a document is made of is what was enqueued last."""
        if work.actor.error is not None:
            # It may have been committed all the same.
            self.contents[work.path or ""] = None
        elif work.content is not None:
            (document,) = [
                d for d in self.rows.documents.values() if d.source_uri == str(self.world.file(work.path or ""))
            ]
            self.sound = False
            assert document.blob_digest == hashlib.sha256(work.content).hexdigest(), work.actor.value
            self.sound = True

    # --- the fleet ----------------------------------------------------------------------------------------------

    def start_dispatch(self, taken: int | None = None) -> Work:
        """Hand slices out; ``taken``: how many the broker takes before it goes away."""
        with self.plain.begin() as session:
            for stage in ("parse", "describe", "format", "retrieve", "embed"):
                beat(session, stage, role="worker", host="here", pid=1, queues=[stage], slots=2, cpu_slots=2)
        return self.start("dispatcher", partial(dispatch, self.turns, partial(self._publish, taken), _DISPATCH))

    def start_reconcile(self) -> Work:
        policy = ReconcilePolicy(unit=UNIT)
        return self.start("reconciler", partial(reconcile, self.turns, self.world.blobs, self.chains, policy))

    def deliver(self, piece: Slice, *, suspects: bool = False) -> Work:
        """A worker gets a message, for the first time or once more; ``suspects``: the worker is a quarantine."""
        if piece in self.unread:
            self.unread.remove(piece)
        name = f"worker {next(self._numbers)}"
        ingest = Ingest(
            sessions=self.turns,
            shop=self.world.workshop(name),
            chains=self.chains,
            events=self.heard,
            submit=self.jobs.submit_coroutine,
            cpu=self.jobs,
            stopping=self.stopping,
            policy=UNIT,
            suspects=suspects,
        )
        call = partial(ingest.run_slice, piece.run_id, piece.stage, piece.ordinals)
        return self.start("worker", call, name=name, piece=piece)

    def next_suspect(self) -> Slice | None:
        """Take a unit that has lost a lease, as a quarantine does."""
        with self.plain.begin() as session:
            return next_suspect(session, list(Stage))

    def round(self) -> bool:
        """What is due is handed out and done, by workers that nothing happens to; False when nothing is due."""
        self.run_out(self.start_dispatch())
        busy = bool(self.unread)
        for piece in list(self.unread):
            self.run_out(self.deliver(piece))
        while (suspect := self.next_suspect()) is not None:
            busy = True
            self.run_out(self.deliver(suspect, suspects=True))
        return busy

    def pass_time(self, what: str) -> None:
        """Make leases, wakes, parks or patience end now."""
        self.gave_up |= what == "patience"
        self.connection.execute(text(_TIME[what]))

    def _publish(self, taken: int | None, slices: Sequence[Slice]) -> None:
        sent = list(slices if taken is None else slices[:taken])
        self.messages += sent
        self.unread += sent
        if taken is not None and taken < len(slices):
            msg = "the broker is away"
            raise ConnectionError(msg)

    def _claimed(self, actor: Actor) -> None:
        """An actor begins a job: what has it claimed, and is it paying for what is known?"""
        (work,) = (work for work in self.works if work.actor is actor)
        if work.units or work.piece is None:
            return
        rows = self.connection.execute(_CLAIMED, {"worker": work.name}).all()
        stage = work.piece.stage
        work.units = [
            Claimed(row.id, row.run_id, stage, row.ordinal, row.lease_token, row.lost_leases, row.calls) for row in rows
        ]
        assert work.units, f"{work.name} works on {work.piece} and holds nothing"
        asked = {"ids": [unit.id for unit in work.units], "stages": [stage.value for stage in Stage]}
        known = self.connection.execute(_KNOWN, asked).all()
        assert not known, f"{work.name} pays for {stage} {known}, whose results are there"

    def _units_of(self, work: Work, wait: ModelWait) -> list[Claimed]:
        assert work.piece is not None
        return work.units if work.piece.stage is Stage.EMBED else [work.units[wait.number]]

    # --- what comes of jobs -------------------------------------------------------------------------------------

    def _value(self, work: Work, wait: ModelWait, act: str, until: float | None) -> list[Done] | BaseException | None:
        assert work.piece is not None
        if act == "cancelled":
            return None
        for unit in self._units_of(work, wait):
            self.injected.setdefault(unit.id, set()).update(FATAL.get(act, ()))
        error = outcome(act, work.piece.stage, until)
        return error if error is not None else self._answer_of(work, wait, degraded=act == "degraded")

    def _answer_of(self, work: Work, wait: ModelWait, *, degraded: bool) -> list[Done] | BaseException:
        assert work.piece is not None
        run = self.rows.runs.get(work.piece.run_id)
        if work.piece.stage is Stage.PARSE:
            # The run may be gone by now; its bytes are what tells parses apart.
            digest = self._bytes_of[work.piece.run_id]
            return self.world.parse(digest, wait.work)
        for chat in self.world.chats:
            chat.degraded = degraded and run is not None and not run.primary_only
        try:
            return wait.work()
        except RejectedInput as error:
            # Its document was deleted meanwhile, with its bytes.
            return error
        finally:
            for chat in self.world.chats:
                chat.degraded = False

    # --- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.world.moves += self.watcher.moves
        self.world.dropped += self.dropped
        for work in list(self.works):
            self.kill(work)
        self.connection.close()

    def come_to_rest(self) -> None:
        """Let everybody finish, bring every model back, and go on for as long as anything moves."""
        for work in list(self.works):
            self.run_out(work)
        self.chains.rooms.clear()
        for _ in range(_REST_ROUNDS):
            while self.round():
                pass
            if not any(run.state in ACTIVE_RUN_STATES for run in self.rows.runs.values()):
                return
            for what in ("leases", "wakes", "parks"):
                self.pass_time(what)
            with self.plain.begin() as session:
                make_parked_due(session, MODEL_STAGES)
            self.run_out(self.start_reconcile())
        self.sound = False
        raise AssertionError([run for run in self.rows.runs.values() if run.state in ACTIVE_RUN_STATES])

    def check_end(self) -> None:
        """Each run ended as what happened to its units says, and each document shows what it should."""
        rows = self.rows
        for unit in rows.units.values():
            if unit.state == UnitState.FAILED:
                self._check_failure(unit)
        for run in rows.runs.values():
            assert run.state in ENDED_RUN_STATES
            if run.state == RunState.FAILED:
                kinds = {unit.failure_kind for unit in rows.units_of(run.id)}
                assert run.failure_kind in kinds, f"run {run.id} failed by {run.failure_kind}, its units by {kinds}"
        for document in rows.documents.values():
            newest = rows.runs_of(document.id)[-1]
            if newest.state in (RunState.DONE, RunState.EMPTY):
                assert newest.blob_digest == document.blob_digest
        for path, content in self.contents.items():
            self._check_shown(path, content)
        unrecorded = self.connection.execute(_UNRECORDED).all()
        assert not unrecorded, f"lost leases that no attempt tells of: {unrecorded}"

    def _check_failure(self, unit: Any) -> None:
        said = f"unit {unit.id} ({unit.stage} {unit.ordinal}) failed by {unit.failure_kind}"
        match unit.failure_kind:
            case "poison":
                assert unit.lost_leases == UNIT.max_lost, said
            case "chain_exhausted":
                assert self.gave_up, said
            case "max_calls":
                assert unit.calls >= UNIT.max_calls, said
            case kind:
                assert kind in self.injected.get(unit.id, ()), said

    def _check_shown(self, path: str, content: bytes | None) -> None:
        found = [one for one in self.rows.documents.values() if one.source_uri == str(self.world.file(path))]
        if content is None or not found:
            return
        digest = hashlib.sha256(content).hexdigest()
        newest = self.rows.runs_of(found[0].id)[-1]
        shown = self.rows.runs.get(found[0].live_run_id)
        if newest.state in (RunState.DONE, RunState.EMPTY):
            assert shown is not None, path
            assert shown.blob_digest == digest, f"{path} shows what it was before"
