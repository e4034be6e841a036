"""What carries out slices in a worker process, put together: loop, models, executors, and the tasks' use cases."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipeline.adapters.embedder import FallbackEmbedder
from pipeline.adapters.llm import FallbackLlm
from pipeline.adapters.vlm import FallbackVlm
from pipeline.adapters.watch import RegistryWatch
from pipeline.domain.space import Space
from pipeline.domain.unit import MODEL_STAGES, QUEUES, Queue, Stage, queue_of
from pipeline.ingest import Ingest
from pipeline.providers.local import count_tokens
from pipeline.reconcile import wake_parked_runs
from pipeline.store.parked import make_waiting_due
from pipeline.store.patience import Patience
from pipeline.store.session import transact
from pipeline.work import Models, Workshop
from worker.bootstrap import ROLE_OF_STAGE, Container
from worker.calls import Calls, make_calls
from worker.dispatcher import Dispatcher
from worker.events import EventLog
from worker.loop import LoopThread
from worker.tasks import Tasks

__all__ = ["Ingester", "cpu_slots", "make_ingester"]


@dataclass(frozen=True, slots=True)
class Ingester:
    """A worker process's insides; ``close`` ends them."""

    calls: Calls
    dispatcher: Dispatcher
    tasks: Tasks
    loop: LoopThread
    cpu: ThreadPoolExecutor

    def close(self) -> None:
        """End what runs, close connections and local models."""
        self.loop.close(self.calls.close())
        self.cpu.shutdown(wait=True, cancel_futures=True)


def cpu_slots(threads: int) -> int:
    """Slices of parse that a process of ``threads`` carries out at once: they burn CPU, not patience."""
    return max(1, min(threads, os.cpu_count() or 1))


def make_ingester(
    container: Container,
    events: EventLog,
    worker: str,
    threads: int,
    stopping: threading.Event,
    queues: Sequence[Queue] = QUEUES,
    *,
    suspects: bool = False,
) -> Ingester:
    """Put a worker's insides together.

    Args:
        worker: This process's name, as leases and attempts show it.
        threads: Slices at once.
        stopping: Set when the process drains.
        queues: Those that it takes slices from.
        suspects: Whether this is a quarantine.
    """
    loop = LoopThread()
    calls = make_calls(container, events, stopping.is_set)
    roles = [role for stage, role in ROLE_OF_STAGE.items() if queue_of(stage) in queues]
    loop.submit(calls.prepare(roles)).result()
    watch = RegistryWatch(calls.registry, container.stage_chains, loop.submit)
    cpu = ThreadPoolExecutor(cpu_slots(threads), thread_name_prefix="tidegate-cpu")
    if Queue.EMBED in queues:
        container.remember_embedder()
    most_units = container.reconcile_policy.most_units

    def wake_parked(stage: Stage) -> None:
        if stage in MODEL_STAGES:
            resumed = wake_parked_runs(container.sessions, watch, [stage], most_units)
            events.runs_resumed(resumed, f"{stage.value} answers again")

    def make_due(stages: Collection[Stage]) -> None:
        transact(container.sessions, lambda session: make_waiting_due(session, stages))

    dispatcher = Dispatcher(lambda: events.slices_handed_out(container.dispatch()), wake_parked, make_due)
    events.on_recovered = lambda target: dispatcher.recovered(container.stages_of(target))
    ingest = Ingest(
        sessions=container.sessions,
        shop=_workshop(container, calls, loop, worker),
        chains=watch,
        events=events,
        submit=loop.submit,
        cpu=cpu,
        stopping=stopping,
        policy=container.unit_policy,
        patience=Patience(
            limit_s=container.unit_policy.hard_deadline_s,
            stopping=stopping,
            drain_s=container.unit_policy.drain_s,
            on_wait=events.postgres_awaited,
        ),
        on_work=dispatcher.wake,
        suspects=suspects,
    )
    return Ingester(calls, dispatcher, Tasks(ingest, dispatcher, stopping), loop, cpu)


def _workshop(container: Container, calls: Calls, loop: LoopThread, worker: str) -> Workshop:
    chains = container.stage_chains
    embedders = _Embedders(container, calls, loop)
    return Workshop(
        blobs=container.blobs,
        models=Models(
            vlm=FallbackVlm(calls.caller, chains[Stage.DESCRIBE]),
            formatter=FallbackLlm(calls.caller, chains[Stage.FORMAT]),
            retriever=FallbackLlm(calls.caller, chains[Stage.RETRIEVE]),
            embedder=embedders.configured,
        ),
        limits=container.config.limits.to_domain(),
        count_tokens=count_tokens,
        worker=worker,
        allowed=container.allowed,
        budget_usd=container.budget_usd,
        embedder_of=embedders.of,
    )


class _Embedders:
    """Who embeds: a run goes into the space that it was made for, whatever the configuration has named since."""

    def __init__(self, container: Container, calls: Calls, loop: LoopThread) -> None:
        self.configured = calls.embedder()
        self._container = container
        self._calls = calls
        self._loop = loop
        self._others: dict[int, FallbackEmbedder | None] = {}

    def of(self, space: Space) -> FallbackEmbedder | None:
        own = self._container.space
        if (space.model, space.dim) == (own.model, own.dim):
            return self.configured
        if space.id not in self._others:
            chain = self._container.embedder_chain(space)
            if chain is not None:
                self._loop.submit(self._calls.providers.prepare(chain.targets)).result()
            self._others[space.id] = self._calls.embedder_of(space)
        return self._others[space.id]
