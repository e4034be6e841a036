"""The processes that ``tidegate worker``, ``beat`` and ``flower`` run in the foreground, each until it is told to end.

Connections to Postgres, stated together: a worker 12 and its quarantine 4 more, a beat 4, Flower 1, a supervisor 2, a
command 3. A stack of five workers with all the rest holds 87, and the embedded server allows 200; another server needs
``max_connections`` above 16 for each worker process.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client.registry import Collector

from pipeline.domain.errors import UsageError
from pipeline.domain.unit import QUEUES, Queue
from pipeline.observe.logging import get_logger
from pipeline.observe.metrics import Metrics, serve_metrics
from pipeline.settings import Settings
from worker.bootstrap import open_container
from worker.heartbeat import Identity, heartbeats
from worker.signals import stop_on_signals

__all__ = [
    "DEFAULT_THREADS",
    "metrics_served",
    "parse_queues",
    "process_identity",
    "run_beat",
    "run_flower",
    "run_worker",
]

DEFAULT_THREADS = 32
WORKER_CONNECTIONS = 12
BEAT_CONNECTIONS = 4
FLOWER_CONNECTIONS = 1


def parse_queues(names: Sequence[str] | None) -> tuple[Queue, ...]:
    """The queues of ``--queues``; all of them when none is named.

    Raises:
        UsageError: A name is no queue's.
    """
    if not names:
        return QUEUES
    known = {queue.value for queue in QUEUES}
    if strange := [name for name in names if name not in known]:
        raise UsageError(f"{strange[0]!r} is no queue", f"there are: {', '.join(known_in_order())}")
    return tuple(queue for queue in QUEUES if queue.value in names)


def known_in_order() -> list[str]:
    """The queues' names, in a document's order."""
    return [queue.value for queue in QUEUES]


def run_worker(settings: Settings, queues: Sequence[str] | None = None, threads: int = DEFAULT_THREADS) -> None:
    """Take slices from queues until SIGTERM or SIGINT; then finish or give back what runs, and return.

    Raises:
        UsageError: A queue's name or the number of threads is off.
        ConfigError: The configuration can't be used.
        ServiceUnavailable: Postgres is away at the start. A broker that is away is waited for.
    """
    # Imported here: a beat needs no providers, and a command none of this.
    from worker.celery_worker import stop_working, work
    from worker.events import EventLog
    from worker.ingester import cpu_slots, make_ingester
    from worker.passes import PassEvents
    from worker.quarantine import Quarantine

    chosen = parse_queues(queues)
    if threads < 1:
        raise UsageError(f"--threads is {threads}", "give at least 1")
    label = chosen[0].value if len(chosen) == 1 else "all" if len(chosen) == len(QUEUES) else "mixed"
    cpu = cpu_slots(threads) if Queue.PARSE in chosen else 0
    identity = process_identity(label, "worker", [queue.value for queue in chosen], threads, cpu)
    metrics, stopping = Metrics(), threading.Event()

    def stop() -> None:
        # A second signal changes nothing; who can't wait sends SIGKILL, and the leases expire.
        stopping.set()
        stop_working()

    with (
        stop_on_signals(stop),
        open_container(
            settings, connections=WORKER_CONNECTIONS, name=f"tidegate {label}", missing_keys="refuse"
        ) as container,
    ):
        container.configure_logging()
        events = EventLog(metrics)
        ingester = make_ingester(container, events, identity.name, threads, stopping, chosen)
        quarantine = Quarantine(
            container.sessions,
            chosen,
            container.unit_policy,
            stopping,
            on_work=ingester.dispatcher.wake,
            on_taken_back=events.leases_lost,
            tell=PassEvents(container.app, f"quarantine.{identity.name}").tell,
        )
        try:
            with (
                metrics_served(settings, metrics),
                ingester.dispatcher.running(),
                quarantine.running(),
                heartbeats(
                    container.sessions,
                    identity,
                    metrics,
                    on_fleet=lambda size: setattr(ingester.calls.fleet, "size", size),
                    is_draining=stopping.is_set,
                ),
            ):
                work(container.app, ingester.tasks, identity.name, identity.queues, threads)
        finally:
            stopping.set()
            ingester.close()


def run_beat(settings: Settings) -> None:
    """Reconcile and dispatch until SIGTERM or SIGINT.

    Raises:
        ConfigError: The configuration can't be used.
        ServiceUnavailable: Postgres is away at the start.
    """
    from concurrent.futures import ThreadPoolExecutor

    from pipeline.adapters.watch import RegistryWatch
    from pipeline.deliveries import Deliveries
    from worker.broker import BrokerContents
    from worker.calls import Fleet, make_registry
    from worker.census import CensusCollector
    from worker.events import EventLog
    from worker.loop import LoopThread
    from worker.passes import PassEvents
    from worker.reconciler import Beat

    identity = process_identity("beat", "beat")
    metrics, stopping, loop = Metrics(), threading.Event(), LoopThread()
    with (
        stop_on_signals(stopping),
        open_container(settings, connections=BEAT_CONNECTIONS, name="tidegate beat") as container,
        ThreadPoolExecutor(1, thread_name_prefix="tidegate-switches") as executor,
    ):
        container.configure_logging()
        registry = make_registry(container, executor, Fleet())
        watch = RegistryWatch(registry, container.stage_chains, loop.submit)
        shown = PassEvents(container.app, identity.name)
        broker = BrokerContents(container.addresses.redis_url, f"{container.key_prefix}:")
        beat = Beat(
            container.sessions,
            container.blobs,
            watch,
            container.reconcile_policy,
            container.dispatch,
            EventLog(metrics),
            shown.tell,
            Deliveries(container.sessions, broker, time.monotonic),
        )
        targets = container.chains.targets
        census = CensusCollector(container.sessions, lambda: loop.submit(registry.statuses(targets)).result())
        try:
            with (
                metrics_served(settings, metrics, census),
                heartbeats(
                    container.sessions,
                    identity,
                    metrics,
                    on_fleet=lambda _: shown.heartbeat(),
                    is_well=beat.is_well,
                ),
            ):
                get_logger("beat").info("beat.started", name=identity.name)
                beat.run(container.config.dispatch.period_s, stopping)
                shown.heartbeat(online=False)
        finally:
            loop.close(registry.aclose())
            broker.close()


def run_flower(settings: Settings, port: int | None = None, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve Flower until SIGTERM or SIGINT.

    Args:
        port: ``TIDEGATE_FLOWER_PORT`` unless given.
        on_ready: Told the address once it answers.

    Raises:
        ServiceUnavailable: Postgres is away at the start, or the port is taken.
    """
    from worker.flower import make_flower, serve_flower

    identity, metrics = process_identity("flower", "flower"), Metrics()
    with open_container(settings, connections=FLOWER_CONNECTIONS, name="tidegate flower") as container:
        container.configure_logging()
        flower = make_flower(container.app, settings, port or settings.flower_port)

        def ready(found: int) -> None:
            url = f"http://{settings.flower_address}:{found}"
            get_logger("flower").info("flower.started", url=url)
            if on_ready is not None:
                on_ready(url)

        with (
            heartbeats(container.sessions, identity, metrics),
            stop_on_signals(lambda: flower.io_loop.add_callback(flower.io_loop.stop)),
        ):
            serve_flower(flower, ready)


def process_identity(label: str, role: str, queues: Sequence[str] = (), slots: int = 0, cpu_slots: int = 0) -> Identity:
    """A process's name is its stage's, made unique by its number: two workers of a stage may share a host."""
    host, pid = socket.gethostname(), os.getpid()
    return Identity(f"{label}-{pid}@{host}", role, host, pid, tuple(queues), slots, cpu_slots)


@contextmanager
def metrics_served(settings: Settings, metrics: Metrics, collector: Collector | None = None) -> Iterator[None]:
    """Serve a process's metrics while the block runs, where the settings ask for it; a port that is taken is said."""
    log = get_logger("metrics")
    with serve_metrics(metrics, settings.metrics_port, collector=collector) as port:
        if port is not None:
            log.info("metrics.served", port=port)
        elif settings.metrics_port is not None:
            log.warning("metrics.not_served", port=settings.metrics_port)
        yield
