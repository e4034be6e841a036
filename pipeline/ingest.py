"""Ingest: carry out one slice. Claim, work, and commit units the moment they end.

A message is only a wake-up: what may be claimed is decided by the rows. Transactions are short, and none spans a model
call; the leases are renewed here, by the thread that waits for the slice's jobs.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

from pipeline.adapters.watch import ChainRoom
from pipeline.advance import reuse_known, settle, take_over_parse
from pipeline.domain.errors import Draining, PermitWaitExceeded, ServiceUnavailable, TidegateError
from pipeline.domain.run import RunState
from pipeline.domain.unit import MODEL_STAGES, Stage, UnitState
from pipeline.endings import Endings, Events, SliceReport, UnitPolicy, moment
from pipeline.halving import Halving
from pipeline.store.parked import park_pending
from pipeline.store.patience import Patience
from pipeline.store.runs import asker, lock_run, lock_running, make_due, unit_states
from pipeline.store.session import Session, Sessions, transact
from pipeline.store.units import Claimed, claim_units, renew_leases, still_held
from pipeline.work import Done, Job, Workshop, work_of

__all__ = ["ChainWatch", "Ingest"]

_PUT_OFF_S = 15.0
"""How long units wait that a service kept from being done: a full disk would be written to at every look otherwise."""
_RENEW_AGAIN_S = 1.0
"""After a renewal that failed: the lease may be running out while Postgres comes back."""


class ChainWatch(Protocol):
    """Whether a stage's chain would take a call."""

    def room(
        self,
        stage: Stage,
        *,
        primary_only: bool = False,
        without: frozenset[str] = frozenset(),
        allowed: frozenset[str] | None = None,
        free_only: bool = False,
    ) -> ChainRoom:
        """How much the targets that are allowed, other than those of ``without``, would take now."""
        ...


@dataclass(frozen=True, slots=True)
class _Running:
    job: Job
    future: Future[list[Done]]

    def cancel(self) -> None:
        """Nobody waits for it any more; it ends soon, in a ``CancelledError`` if it had not ended already."""
        self.job.stop.set()
        self.future.cancel()


@dataclass(slots=True)
class _Floor:
    """The jobs of a slice that are under way, by number; ``ended`` holds the numbers of those that no longer run."""

    start: Callable[[Job], Future[list[Done]]]
    running: dict[int, _Running] = field(default_factory=dict)
    ended: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    begun: int = 0

    def begin(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            one = self.running[self.begun] = _Running(job, self.start(job))
            one.future.add_done_callback(partial(_announce, self.ended, self.begun))
            self.begun += 1


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What is to be done of a claim, and how many of its units were done already."""

    jobs: list[Job]
    reused: int
    state: RunState
    document_id: str


@dataclass(frozen=True, slots=True)
class _Asks:
    """Which targets a run would ask: what ``ChainWatch.room`` is narrowed by."""

    primary_only: bool
    allowed: frozenset[str] | None
    free_only: bool


@dataclass(slots=True)
class _Leases:
    """When a slice's leases are renewed next; ``renew`` returns whether that went well."""

    renew: Callable[[], bool]
    every_s: float
    due_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.due_at = time.monotonic() + self.every_s

    def renew_if_due(self) -> None:
        if (now := time.monotonic()) >= self.due_at:
            self.due_at = now + (self.every_s if self.renew() else min(self.every_s, _RENEW_AGAIN_S))


@dataclass(frozen=True, slots=True)
class Ingest:
    """The slice runner of one worker process; safe to use from several threads at once.

    Attributes:
        submit: Starts a coroutine on the process's loop.
        cpu: Runs work that blocks.
        stopping: Set when the process drains.
        patience: Waits for Postgres; it knows of ``stopping`` too.
        on_work: Called when units became due, while the slice may still be at work: pages go on one by one.
        suspects: Whether this is a quarantine, which claims only units that have lost a lease; nobody else claims them.
    """

    sessions: Sessions
    shop: Workshop
    chains: ChainWatch
    events: Events
    submit: Callable[[Coroutine[Any, Any, list[Done]]], Future[list[Done]]]
    cpu: Executor
    stopping: threading.Event
    policy: UnitPolicy = field(default_factory=UnitPolicy)
    patience: Patience = field(default_factory=Patience)
    on_work: Callable[[], None] = lambda: None
    suspects: bool = False

    def run_slice(self, run_id: int, stage: Stage, ordinals: Sequence[int]) -> SliceReport:
        """Do what is still to be done of a slice.

        Raises:
            ServiceUnavailable: A service stayed away for too long. Nothing counts as done that was not committed; units
                that could not be given back keep their leases until they expire.
        """
        report = SliceReport()
        if self.stopping.is_set():
            return report
        if stage in MODEL_STAGES and self._park_if_closed(run_id, stage, ordinals, report):
            return report
        endings = Endings(self.sessions, self.shop, self.events, self.policy, report, self.patience)
        jobs = self._claim(run_id, stage, ordinals, endings)
        if jobs:
            self._work(jobs, endings)
        if report.counts["parked"]:
            self._read_once_more(run_id, stage, frozenset(report.rejecting))
        return report

    # --- before -------------------------------------------------------------------------------------------------

    def _park_if_closed(self, run_id: int, stage: Stage, ordinals: Sequence[int], report: SliceReport) -> bool:
        """Park a slice whose whole chain is closed: no lease, no call, no attempt row."""
        asks = self.patience.outlast(lambda: self._asks(run_id, stage))
        if asks is None:
            return True
        chain = self._room(stage, asks)
        if chain.room:
            return False

        def park(session: Session) -> tuple[int, set[int], RunState, str] | None:
            run = lock_run(session, run_id)
            if run is None:
                return None
            reused = reuse_known(session, run, stage)
            parked = park_pending(session, run_id, stage, ordinals, moment(chain.until))
            return parked, reused, settle(session, run), str(run.document_id)

        found = self.patience.outlast(lambda: transact(self.sessions, park))
        if found is None:
            return True
        parked, reused, state, document_id = found
        report.counts.update(parked=parked, reused=len(reused))
        report.made_work = bool(reused)
        if parked:
            within = ", or over the collection's budget" if asks.free_only else ""
            report.details.append(f"every target of {stage.value} is cooling or disabled{within}")
            self._moved(run_id, document_id, state, report.details[-1])
        return True

    def _asks(self, run_id: int, stage: Stage) -> _Asks | None:
        """None when the run has ended."""
        with self.sessions() as session:
            who = asker(session, run_id)
            if who is None:
                return None
            free_only = not self.shop.within_budget(session, who.collection)
        return _Asks(who.primary_only, self.shop.allowed(who.collection, stage), free_only)

    def _room(self, stage: Stage, asks: _Asks, without: frozenset[str] = frozenset()) -> ChainRoom:
        return self.chains.room(
            stage,
            primary_only=asks.primary_only,
            without=without,
            allowed=asks.allowed,
            free_only=asks.free_only,
        )

    def _claim(self, run_id: int, stage: Stage, ordinals: Sequence[int], endings: Endings) -> list[Job]:
        # Ours before it is written: a claim whose COMMIT went through unheard is found again by its token.
        token = uuid4()

        def claim(session: Session) -> list[Claimed]:
            if not lock_running(session, run_id):
                return []
            return claim_units(
                session,
                run_id,
                stage,
                ordinals,
                token=token,
                worker=self.shop.worker,
                lease_s=self.policy.lease_s,
                suspects=self.suspects,
            )

        units = self.patience.outlast(lambda: transact(self.sessions, claim))
        if not units:
            return []
        try:
            loaded = self.patience.outlast(lambda: transact(self.sessions, partial(self._load, run_id, stage, units)))
        except TidegateError:
            raise
        except Exception as error:
            # A bug of ours: without this the leases would expire, and be counted as deaths of a worker.
            for unit in units:
                endings.failed(unit, error)
            return []
        if loaded is None:
            return []
        if loaded.reused:
            endings.report.counts["reused"] += loaded.reused
            endings.report.made_work = True
            self._moved(run_id, loaded.document_id, loaded.state, "reused known results")
        return loaded.jobs

    def _load(self, run_id: int, stage: Stage, units: Sequence[Claimed], session: Session) -> _Loaded | None:
        """Read what claimed units need, but for those whose results another document has brought in meanwhile."""
        run = lock_run(session, run_id)
        if run is None or run.state != RunState.RUNNING:
            return None
        if stage is Stage.PARSE:
            reused = {0} if take_over_parse(session, run) else set()
        else:
            reused = reuse_known(session, run, stage, [unit.ordinal for unit in units], held=True)
        state = settle(session, run) if reused else RunState(run.state)
        # Asked anew, for this may be the second time: what ended in a COMMIT that we did not hear of is not ours.
        held = still_held(session, units)
        left = [unit for unit in units if unit.id in held]
        jobs = work_of(stage, self.shop).load(session, run, left) if left else []
        return _Loaded(jobs, len(reused), state, str(run.document_id))

    # --- during -------------------------------------------------------------------------------------------------

    def _work(self, jobs: Sequence[Job], endings: Endings) -> None:
        floor = _Floor(self._start)
        halving = Halving(partial(self._takes_nothing, jobs[0].units[0]))
        leases = _Leases(partial(self._renew, floor.running, halving), self.policy.lease_s / 3)
        try:
            floor.begin(jobs)
            self._collect(floor, halving, replace(endings, meanwhile=leases.renew_if_due), leases)
        except BaseException:
            for one in floor.running.values():
                one.cancel()
            raise

    def _takes_nothing(self, unit: Claimed) -> bool:
        """Whether a unit's stage has failed units in its run, and none that are done."""

        def look(session: Session) -> bool:
            units = unit_states(session, unit.run_id)
            return units.has({UnitState.FAILED}, [unit.stage]) and not units.has({UnitState.DONE}, [unit.stage])

        return self.patience.outlast(lambda: transact(self.sessions, look))

    def _start(self, job: Job) -> Future[list[Done]]:
        if job.model is not None:
            return self.submit(_as_coroutine(job.model))
        if job.cpu is None:
            msg = "a job needs a way to run"
            raise RuntimeError(msg)
        return self.cpu.submit(job.cpu)

    def _collect(self, floor: _Floor, halving: Halving, endings: Endings, leases: _Leases) -> None:
        running = floor.running
        drain_until: float | None = None
        away: ServiceUnavailable | None = None
        while running:
            now = time.monotonic()
            if self.stopping.is_set():
                drain_until = self._drained(running.values(), drain_until, now)
            leases.renew_if_due()
            try:
                # Half a second bounds how late a stop is noticed; an ended job is taken up at once.
                number = floor.ended.get(timeout=max(0.01, min(leases.due_at - now, 0.5)))
            except queue.Empty:
                continue
            # Those that have ended by now share a transaction: none of them is paid for before it is stored.
            numbers = [number, *_waiting(floor.ended)]
            away = self._commit([running[number] for number in numbers], halving, endings) or away
            for number in numbers:
                del running[number]
            if not running:
                floor.begin(self._halved(halving, endings))
            if endings.report.made_work:
                self.on_work()
        if away is not None:
            raise away

    def _drained(self, running: Iterable[_Running], until: float | None, now: float) -> float:
        """End what has not begun, and after ``until`` what has; returns that time, which is set the first time."""
        if until is None:
            until = now + self.policy.drain_s
            _give_up_waiting(running)
        if now >= until:
            for one in running:
                one.cancel()
        return until

    def _halved(self, halving: Halving, endings: Endings) -> list[Job]:
        """Smaller jobs instead of the slice's refused ones; the units of those that are given up end."""
        jobs, given_up = halving.next_jobs()
        for one in given_up:
            for unit in one.job.units:
                endings.failed(unit, one.error, asked_with=len(one.job.units) - 1)
        return jobs

    def _renew(self, running: dict[int, _Running], halving: Halving) -> bool:
        """Hold the leases for longer; False when Postgres is away, in which case nobody can take them either."""
        units = [unit for one in running.values() for unit in one.job.units] + halving.waiting
        try:
            with self.sessions.begin() as session:
                held = renew_leases(
                    session, units, lease_s=self.policy.lease_s, hard_deadline_s=self.policy.hard_deadline_s
                )
        except ServiceUnavailable:
            return False
        for one in running.values():
            if not any(unit.id in held for unit in one.job.units):
                # The run was cancelled or the lease taken away: nobody will take the answer.
                one.cancel()
        return True

    # --- after --------------------------------------------------------------------------------------------------

    def _commit(self, ones: Sequence[_Running], halving: Halving, endings: Endings) -> ServiceUnavailable | None:
        """End the units of jobs; returns the error when a service was away that one of them needs."""
        # What was answered comes first: it was paid for.
        answered = [one for one in ones if not one.future.cancelled() and one.future.exception() is None]
        done = [pair for one in answered for pair in halving.hears(one.job, one.future.result())]
        if done:
            endings.done(done)
        away: ServiceUnavailable | None = None
        for one in ones:
            if one not in answered:
                away = self._without_answer(one, halving, endings) or away
        return away

    def _without_answer(self, one: _Running, halving: Halving, endings: Endings) -> ServiceUnavailable | None:
        units = one.job.units
        error = CancelledError() if one.future.cancelled() else one.future.exception()
        match error:
            case CancelledError() | PermitWaitExceeded() | Draining():
                endings.given_back(units)
                endings.report.made_work = True
            case ServiceUnavailable():
                # Not handed out again at once, or a service that is away would be asked as fast as we can.
                endings.given_back(units, error.fact, after_s=_PUT_OFF_S)
                return error
            case Exception():
                if halving.takes(one.job, error):
                    return None
                for unit in units:
                    endings.failed(unit, error)
            case None:
                msg = "a job with an answer is done"
                raise RuntimeError(msg)
            case _:
                raise error
        return None

    def _read_once_more(self, run_id: int, stage: Stage, rejecting: frozenset[str]) -> None:
        """After a park is committed, look again: a target that recovered in between woke nobody."""
        asks = self.patience.outlast(lambda: self._asks(run_id, stage))
        if asks is None:
            return
        if self._room(stage, asks, rejecting).room:
            with self.sessions.begin() as session:
                make_due(session, [run_id])

    def _moved(self, run_id: int, document_id: str, state: RunState, detail: str) -> None:
        if state is not RunState.RUNNING:
            self.events.run_moved(run_id, document_id, state, detail)


def _waiting(ended: queue.SimpleQueue[int]) -> Iterator[int]:
    """What is in the queue now."""
    with suppress(queue.Empty):
        while True:
            yield ended.get_nowait()


def _give_up_waiting(running: Iterable[_Running]) -> None:
    """What waits for a thread and has not begun ends now; calls that wait for a permit see to it themselves."""
    for one in running:
        if one.job.cpu is not None:
            one.future.cancel()


def _announce(ended: queue.SimpleQueue[int], number: int, _future: Future[list[Done]]) -> None:
    ended.put(number)


async def _as_coroutine(work: Callable[[], Any]) -> list[Done]:
    done: list[Done] = await work()
    return done
