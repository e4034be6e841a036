"""Ingest: carry out one slice. Claim, work, and commit each unit by itself the moment it ends.

A message is only a wake-up: what may be claimed is decided by the rows. Transactions are short, and none spans a model
call; the leases are renewed here, by the thread that waits for the slice's jobs.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from pipeline.adapters.watch import ChainRoom
from pipeline.advance import reuse_known, settle, take_over_parse
from pipeline.domain.errors import PermitWaitExceeded, ServiceUnavailable
from pipeline.domain.run import ENDED_RUN_STATES, RunState
from pipeline.domain.unit import MODEL_STAGES, Stage
from pipeline.endings import Endings, Events, SliceReport, UnitPolicy, moment
from pipeline.store.parked import park_pending
from pipeline.store.runs import lock_run, lock_running, make_due
from pipeline.store.schema import Run
from pipeline.store.session import Sessions
from pipeline.store.units import claim_units, give_back, renew_leases
from pipeline.work import Done, Job, Workshop, work_of

__all__ = ["ChainWatch", "Ingest"]


class ChainWatch(Protocol):
    """Whether a stage's chain would take a call."""

    def room(self, stage: Stage, *, primary_only: bool = False, without: frozenset[str] = frozenset()) -> ChainRoom:
        """How much the targets, other than those of ``without``, would take now."""
        ...


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
            self._work(jobs, Endings(self.sessions, self.shop, self.events, self.policy, report))
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
            reused = reuse_known(session, run, stage)
            parked = park_pending(session, run_id, stage, ordinals, moment(chain.until))
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
            if run is None or run.state != RunState.RUNNING:
                return []
            if stage is Stage.PARSE:
                reused = {0} if take_over_parse(session, run) else set()
            else:
                reused = reuse_known(session, run, stage, held=[unit.ordinal for unit in units])
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

    def _work(self, jobs: Sequence[Job], endings: Endings) -> None:
        running = {number: _Running(job, self._start(job)) for number, job in enumerate(jobs)}
        ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number, one in running.items():
            one.future.add_done_callback(partial(_announce, ended, number))
        try:
            self._collect(running, ended, endings)
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

    def _collect(self, running: dict[int, _Running], ended: queue.SimpleQueue[int], endings: Endings) -> None:
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
            self._commit(running.pop(number), endings)
            if endings.report.made_work:
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

    def _commit(self, one: _Running, endings: Endings) -> None:
        units, report = one.job.units, endings.report
        try:
            values = one.future.result()
        except (CancelledError, PermitWaitExceeded, ServiceUnavailable) as error:
            with self.sessions.begin() as session:
                report.counts["given_back"] += give_back(session, units)
            report.made_work = True
            if isinstance(error, ServiceUnavailable):
                raise
        except Exception as error:
            for unit in units:
                endings.failed(unit, error)
        else:
            for unit, done in zip(units, values, strict=True):
                endings.done(unit, done)

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
