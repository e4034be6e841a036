"""Ingest: carry out one slice. Claim, work, and commit each unit by itself the moment it ends.

A message is only a wake-up: what may be claimed is decided by the rows. Transactions are short, and none spans a model
call; the leases are renewed here, by the thread that waits for the slice's jobs.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from pipeline.adapters.watch import ChainRoom
from pipeline.advance import reuse_known, settle, take_over_parse
from pipeline.domain.call import SkipReason
from pipeline.domain.errors import (
    ChainExhausted,
    ChildDied,
    DeadlineExceeded,
    Failure,
    PermitWaitExceeded,
    RejectedInput,
    ServiceUnavailable,
)
from pipeline.domain.run import ENDED_RUN_STATES, RunState
from pipeline.domain.unit import MODEL_STAGES, Stage
from pipeline.failover.call import rejecting_targets
from pipeline.failover.kinds import FailureKind
from pipeline.store.runs import lock_run, lock_running, make_due, note_progress
from pipeline.store.schema import Run
from pipeline.store.session import Sessions
from pipeline.store.units import (
    Claimed,
    Moment,
    add_rejections,
    claim_units,
    fail_unit,
    finish_unit,
    give_back,
    lose_lease,
    park_pending,
    park_unit,
    renew_leases,
    seconds_from_now,
)
from pipeline.work import Done, Job, Workshop, calls_with_content, work_of

__all__ = ["ChainWatch", "Events", "Ingest", "SliceReport", "UnitPolicy"]

_RETRY_WITHOUT_TIME_S = 30.0
"""When a chain is busy but says no time: the default cooldown."""


@dataclass(frozen=True, slots=True)
class UnitPolicy:
    """The config's ``unit``, in seconds and counts; ``drain_s`` is what running units get when the worker stops."""

    lease_s: float = 60.0
    hard_deadline_s: float = 3600.0
    max_lost: int = 3
    max_calls: int = 20
    drain_s: float = 8.0


class ChainWatch(Protocol):
    """Whether a stage's chain would take a call."""

    def room(self, stage: Stage, *, primary_only: bool = False, without: frozenset[str] = frozenset()) -> ChainRoom:
        """How much the targets, other than those of ``without``, would take now."""
        ...


class Events(Protocol):
    """Hears what happens to units and runs; it never raises."""

    def unit_finished(self, unit: Claimed, outcome: str, detail: str) -> None: ...

    def run_moved(self, run_id: int, document_id: str, state: RunState, detail: str) -> None: ...

    def failed_inside(self, unit: Claimed, error: BaseException) -> None: ...


@dataclass(slots=True)
class SliceReport:
    """What became of a slice.

    Attributes:
        details: A line for each unit that did not end well.
        rejecting: Targets that are of no use to the slice's parked units.
    """

    counts: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    rejecting: set[str] = field(default_factory=set)
    made_work: bool = False

    @property
    def ended_badly(self) -> bool:
        return bool(self.counts["failed"] or self.counts["parked"])

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items())) or "nothing to do"
        return f"{counts}: {'; '.join(self.details)}" if self.details else counts


@dataclass(frozen=True, slots=True)
class _Running:
    job: Job
    future: Future[list[Done]]


@dataclass(frozen=True, slots=True)
class Ingest:
    """The slice runner of one worker process; safe to use from several threads at once.

    Attributes:
        submit: Starts a coroutine on the process's loop.
        cpu: Runs work that blocks.
        stopping: Set when the process drains.
        on_work: Called when units became due, while the slice may still be at work: pages go on one by one.
    """

    sessions: Sessions
    shop: Workshop
    chains: ChainWatch
    events: Events
    submit: Callable[[Coroutine[Any, Any, list[Done]]], Future[list[Done]]]
    cpu: Executor
    stopping: threading.Event
    policy: UnitPolicy = field(default_factory=UnitPolicy)
    on_work: Callable[[], None] = lambda: None

    def run_slice(self, run_id: int, stage: Stage, ordinals: Sequence[int]) -> SliceReport:
        """Do what is still to be done of a slice.

        Raises:
            ServiceUnavailable: Postgres went away. Nothing counts as done that was not committed; the leases expire.
        """
        report = SliceReport()
        if self.stopping.is_set():
            return report
        if stage in MODEL_STAGES and self._park_if_closed(run_id, stage, ordinals, report):
            return report
        jobs = self._claim(run_id, stage, ordinals, report)
        if jobs:
            self._work(stage, jobs, report)
        if report.counts["parked"]:
            self._read_once_more(run_id, stage, frozenset(report.rejecting))
        return report

    # --- before -------------------------------------------------------------------------------------------------

    def _park_if_closed(self, run_id: int, stage: Stage, ordinals: Sequence[int], report: SliceReport) -> bool:
        """Park a slice whose whole chain is closed: no lease, no call, no attempt row."""
        with self.sessions() as session:
            run = session.get(Run, run_id)
            if run is None or run.state in ENDED_RUN_STATES:
                return True
            primary_only = run.primary_only
        chain = self.chains.room(stage, primary_only=primary_only)
        if chain.room:
            return False
        with self.sessions.begin() as session:
            run = lock_run(session, run_id)
            if run is None:
                return True
            reused = reuse_known(session, run, stage, ordinals)
            parked = park_pending(session, run_id, stage, ordinals, _moment(chain.until))
            state = settle(session, run)
            document_id = str(run.document_id)
        report.counts.update(parked=parked, reused=len(reused))
        report.made_work = bool(reused)
        if parked:
            report.details.append(f"every target of {stage.value} is cooling or disabled")
            self._moved(run_id, document_id, state, report.details[-1])
        return True

    def _claim(self, run_id: int, stage: Stage, ordinals: Sequence[int], report: SliceReport) -> list[Job]:
        with self.sessions.begin() as session:
            if not lock_running(session, run_id):
                return []
            units = claim_units(session, run_id, stage, ordinals, worker=self.shop.worker, lease_s=self.policy.lease_s)
        if not units:
            return []
        # Another document may have brought the same input in since these units were made.
        with self.sessions.begin() as session:
            run = lock_run(session, run_id)
            if run is None:
                return []
            if stage is Stage.PARSE:
                reused = {0} if take_over_parse(session, run) else set()
            else:
                reused = reuse_known(session, run, stage, [unit.ordinal for unit in units])
            state = settle(session, run) if reused else RunState(run.state)
            left = [unit for unit in units if unit.ordinal not in reused]
            document_id = str(run.document_id)
            jobs = work_of(stage, self.shop).load(session, run, left) if left else []
        if reused:
            report.counts["reused"] += len(reused)
            report.made_work = True
            self._moved(run_id, document_id, state, "reused known results")
        return jobs

    # --- during -------------------------------------------------------------------------------------------------

    def _work(self, stage: Stage, jobs: Sequence[Job], report: SliceReport) -> None:
        running = {number: _Running(job, self._start(job)) for number, job in enumerate(jobs)}
        ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number, one in running.items():
            one.future.add_done_callback(partial(_announce, ended, number))
        try:
            self._collect(stage, running, ended, report)
        except BaseException:
            for one in running.values():
                one.future.cancel()
            raise

    def _start(self, job: Job) -> Future[list[Done]]:
        if job.model is not None:
            return self.submit(_as_coroutine(job.model))
        if job.cpu is None:
            msg = "a job needs a way to run"
            raise RuntimeError(msg)
        return self.cpu.submit(job.cpu)

    def _collect(
        self, stage: Stage, running: dict[int, _Running], ended: queue.SimpleQueue[int], report: SliceReport
    ) -> None:
        renew_every_s = self.policy.lease_s / 3
        renew_at = time.monotonic() + renew_every_s
        drain_until: float | None = None
        while running:
            now = time.monotonic()
            if self.stopping.is_set():
                drain_until = now + self.policy.drain_s if drain_until is None else drain_until
                if now >= drain_until:
                    for one in running.values():
                        one.future.cancel()
            if now >= renew_at:
                self._renew(running)
                renew_at = now + renew_every_s
            try:
                # Half a second bounds how late a stop is noticed; an ended job is taken up at once.
                number = ended.get(timeout=max(0.01, min(renew_at - now, 0.5)))
            except queue.Empty:
                continue
            self._commit(stage, running.pop(number), report)
            if report.made_work:
                self.on_work()

    def _renew(self, running: dict[int, _Running]) -> None:
        units = [unit for one in running.values() for unit in one.job.units]
        with self.sessions.begin() as session:
            held = renew_leases(
                session, units, lease_s=self.policy.lease_s, hard_deadline_s=self.policy.hard_deadline_s
            )
        for one in running.values():
            if not any(unit.id in held for unit in one.job.units):
                # The run was cancelled or the lease taken away: nobody will take the answer.
                one.future.cancel()

    # --- after --------------------------------------------------------------------------------------------------

    def _commit(self, stage: Stage, one: _Running, report: SliceReport) -> None:
        units = one.job.units
        try:
            values = one.future.result()
        except (CancelledError, PermitWaitExceeded):
            with self.sessions.begin() as session:
                report.counts["given_back"] += give_back(session, units)
            report.made_work = True
        except ServiceUnavailable:
            with self.sessions.begin() as session:
                give_back(session, units)
            raise
        except Exception as error:
            for unit in units:
                self._ended_badly(unit, error, report)
        else:
            for unit, done in zip(units, values, strict=True):
                self._finish(stage, unit, done, report)

    def _ended_badly(self, unit: Claimed, error: Exception, report: SliceReport) -> None:
        match error:
            case ChainExhausted():
                self._exhausted(unit, error, report)
            case DeadlineExceeded():
                # Slow is busy: what was tried and left out is on the attempts; the unit is tried again later.
                self._exhausted(unit, ChainExhausted(error.role, error.tries, error.skipped, None, True), report)
            case RejectedInput():
                self._fail(unit, error.failure, 0, report)
            case ChildDied():
                self._lost(unit, error, report)
            case _:
                # A bug of ours ends its own unit, and nobody else's.
                self.events.failed_inside(unit, error)
                detail = f"{type(error).__name__} inside Tidegate; see the worker's log"
                self._fail(unit, Failure(FailureKind.INTERNAL.value, detail), 0, report)

    def _finish(self, stage: Stage, unit: Claimed, done: Done, report: SliceReport) -> None:
        try:
            with self.sessions.begin() as session:
                run = lock_run(session, unit.run_id)
                if run is None or not finish_unit(session, unit, done.result):
                    report.counts["dropped"] += 1
                    return
                work_of(stage, self.shop).store(session, run, unit, done)
                note_progress(session, run.id)
                state = settle(session, run)
                document_id = str(run.document_id)
        except RejectedInput as error:
            self._fail(unit, error.failure, done.result.calls, report)
            return
        report.counts["done"] += 1
        report.made_work = True
        self.events.unit_finished(unit, "done", done.result.answered_by or "")
        self._moved(unit.run_id, document_id, state, "")

    def _fail(self, unit: Claimed, failure: Failure, calls: int, report: SliceReport) -> None:
        with self.sessions.begin() as session:
            run = lock_run(session, unit.run_id)
            if run is None or not fail_unit(session, unit, failure, calls):
                report.counts["dropped"] += 1
                return
            note_progress(session, run.id)
            state = settle(session, run)
            document_id = str(run.document_id)
        report.counts["failed"] += 1
        report.made_work = True
        report.details.append(f"{unit.stage.value} {unit.ordinal} failed ({failure.kind}): {failure.detail}")
        self.events.unit_finished(unit, "failed", f"{failure.kind}: {failure.detail}")
        self._moved(unit.run_id, document_id, state, failure.kind)

    def _lost(self, unit: Claimed, error: ChildDied, report: SliceReport) -> None:
        with self.sessions.begin() as session:
            run = lock_run(session, unit.run_id)
            if run is None or not lose_lease(session, unit, self.policy.max_lost):
                report.counts["dropped"] += 1
                return
            state = settle(session, run)
            document_id = str(run.document_id)
        report.counts["lost"] += 1
        report.made_work = True
        report.details.append(f"{unit.stage.value} {unit.ordinal}: {error}")
        self.events.unit_finished(unit, "lost", str(error))
        self._moved(unit.run_id, document_id, state, "poison" if state is RunState.FAILED else "")

    def _exhausted(self, unit: Claimed, error: ChainExhausted, report: SliceReport) -> None:
        calls = calls_with_content(error.tries)
        if not error.retryable:
            self._fail(unit, _rejected_everywhere(error), calls, report)
            return
        if unit.calls + calls >= self.policy.max_calls:
            detail = f"{unit.calls + calls} calls returned content, none an answer"
            self._fail(unit, Failure("max_calls", detail), calls, report)
            return
        with self.sessions.begin() as session:
            run = lock_run(session, unit.run_id)
            if run is None or not park_unit(session, unit, _resume_at(error), calls):
                report.counts["dropped"] += 1
                return
            rejecting = rejecting_targets(error.tries)
            add_rejections(session, unit, rejecting)
            state = settle(session, run)
            document_id = str(run.document_id)
        report.counts["parked"] += 1
        report.rejecting.update(unit.rejected_by, rejecting)
        report.details.append(f"{unit.stage.value} {unit.ordinal} parked: {error}")
        self.events.unit_finished(unit, "parked", str(error))
        self._moved(unit.run_id, document_id, state, str(error))

    def _read_once_more(self, run_id: int, stage: Stage, rejecting: frozenset[str]) -> None:
        """After a park is committed, look again: a target that recovered in between woke nobody."""
        with self.sessions() as session:
            run = session.get(Run, run_id)
            if run is None or run.state != RunState.PARKED:
                return
            primary_only = run.primary_only
        if self.chains.room(stage, primary_only=primary_only, without=rejecting).room:
            with self.sessions.begin() as session:
                make_due(session, [run_id])

    def _moved(self, run_id: int, document_id: str, state: RunState, detail: str) -> None:
        if state is not RunState.RUNNING:
            self.events.run_moved(run_id, document_id, state, detail)


def _announce(ended: queue.SimpleQueue[int], number: int, _future: Future[list[Done]]) -> None:
    ended.put(number)


async def _as_coroutine(work: Callable[[], Any]) -> list[Done]:
    done: list[Done] = await work()
    return done


def _moment(epoch_s: float | None) -> datetime | None:
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC)


def _resume_at(error: ChainExhausted) -> Moment | None:
    """When to look again; None where only a person's act (enable, budget) brings a target back."""
    if error.retry_at is not None:
        return _moment(error.retry_at)
    by_hand = {SkipReason.DISABLED, SkipReason.OVER_BUDGET}
    if any(skip.reason in by_hand for skip in error.skipped):
        return None
    return seconds_from_now(_RETRY_WITHOUT_TIME_S)


def _rejected_everywhere(error: ChainExhausted) -> Failure:
    """The most telling failure: what the last target that was really asked said."""
    if error.tries:
        last = error.tries[-1]
        return Failure(last.kind or "unknown", f"{last.target}: {last.message or 'no message'}")
    reasons = "; ".join(f"{skip.target}: {skip.reason.value}" for skip in error.skipped)
    kind = "contract" if any(skip.reason is SkipReason.CONTRACT for skip in error.skipped) else "rejected"
    return Failure(kind, reasons or f"no target of {error.role} may take this input")
