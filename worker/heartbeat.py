"""A process's row in the fleet: written every few seconds, taken away at a clean end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.clock import wall_now_s
from pipeline.domain.errors import ServiceUnavailable
from pipeline.observe.logging import get_logger
from pipeline.observe.metrics import Metrics
from pipeline.store.session import Sessions
from pipeline.store.workers import beat, forget_worker, fresh_workers

__all__ = ["HEARTBEAT_S", "Identity", "heartbeats"]

HEARTBEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is.

    Attributes:
        name: Unique; leases, attempts and Flower show it.
        role: ``worker``, ``beat``, ``flower`` or ``api``.
        slots: Slices at once.
        cpu_slots: Of these, slices of CPU stages.
    """

    name: str
    role: str
    host: str
    pid: int
    queues: Sequence[str] = ()
    slots: int = 0
    cpu_slots: int = 0


@contextmanager
def heartbeats(
    sessions: Sessions,
    identity: Identity,
    metrics: Metrics,
    *,
    on_fleet: Callable[[int], None] | None = None,
) -> Iterator[None]:
    """Keep a process's row fresh while the block runs; the first beat is written before it.

    Args:
        on_fleet: Told how many workers there are, at each beat.

    Raises:
        ServiceUnavailable: Postgres is away at the start. Later it is only logged, once an outage.
    """
    log = get_logger("heartbeat")
    ended = threading.Event()

    def once() -> None:
        with sessions.begin() as session:
            beat(
                session,
                identity.name,
                role=identity.role,
                host=identity.host,
                pid=identity.pid,
                queues=identity.queues,
                slots=identity.slots,
                cpu_slots=identity.cpu_slots,
            )
            if on_fleet is not None:
                on_fleet(sum(worker.role == identity.role for worker in fresh_workers(session)))
        metrics.last_heartbeat.labels(identity.role).set(wall_now_s())

    def keep() -> None:
        missed = False
        while not ended.wait(HEARTBEAT_S):
            try:
                once()
            except ServiceUnavailable as error:
                if not missed:
                    log.warning("heartbeat.missed", error=error.fact)
                missed = True
            except Exception:
                # A bug here must not make a working process look dead for ever.
                log.exception("heartbeat.failed")
            else:
                missed = False

    once()
    thread = threading.Thread(target=keep, name="tidegate-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        try:
            with sessions.begin() as session:
                forget_worker(session, identity.name)
        except ServiceUnavailable:
            log.warning("heartbeat.not_removed")
