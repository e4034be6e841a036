"""A process's row in the fleet: written every few seconds, taken away at a clean end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.clock import wall_now_s
from pipeline.domain.errors import ServiceUnavailable
from pipeline.observe.logging import get_logger
from pipeline.observe.metrics import Metrics
from pipeline.store.fleet import fresh_workers
from pipeline.store.reader import reader_of
from pipeline.store.session import Sessions
from pipeline.store.workers import beat, forget_worker

__all__ = ["HEARTBEAT_S", "Identity", "heartbeats"]

HEARTBEAT_S = 5.0
_LOOK_S = 0.2
"""Between two looks whether the process drains: a fraction of the shortest grace period that anybody gives."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is.

    Attributes:
        name: Unique; leases, attempts and Flower show it.
        role: ``worker``, ``quarantine``, ``beat`` or ``flower``.
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


@dataclass(slots=True)
class _Heart:
    """See ``heartbeats``."""

    sessions: Sessions
    identity: Identity
    metrics: Metrics
    on_fleet: Callable[[int], None]
    is_well: Callable[[], bool]
    is_draining: Callable[[], bool]
    _trouble: str = ""

    def beat(self) -> None:
        identity = self.identity
        with self.sessions.begin() as session:
            beat(
                session,
                identity.name,
                role=identity.role,
                host=identity.host,
                pid=identity.pid,
                queues=identity.queues,
                slots=identity.slots,
                cpu_slots=identity.cpu_slots,
                draining=self.is_draining(),
            )
            fleet = sum(worker.role == identity.role for worker in fresh_workers(reader_of(session)))
        self.on_fleet(fleet)
        self.metrics.last_heartbeat.labels(identity.role).set(wall_now_s())

    def keep(self, ended: threading.Event) -> None:
        """Beat until ``ended``; each trouble is logged once for as long as it lasts."""
        while not self._wait(ended):
            try:
                if self.is_well():
                    self.beat()
                    self._trouble = ""
                else:
                    self._say("heartbeat.withheld", "its work hangs")
            except ServiceUnavailable as error:
                self._say("heartbeat.missed", error.fact)
            except Exception:
                # A bug here must not make a working process look dead for ever.
                get_logger("heartbeat").exception("heartbeat.failed")

    def _wait(self, ended: threading.Event) -> bool:
        """True at the end; False when a beat is due, which the first moment of a drain is too."""
        was_draining, due = self.is_draining(), time.monotonic() + HEARTBEAT_S
        while time.monotonic() < due and self.is_draining() is was_draining:
            if ended.wait(_LOOK_S):
                return True
        return False

    def _say(self, event: str, error: str) -> None:
        if self._trouble != event:
            get_logger("heartbeat").warning(event, name=self.identity.name, error=error)
        self._trouble = event


@contextmanager
def heartbeats(
    sessions: Sessions,
    identity: Identity,
    metrics: Metrics,
    *,
    on_fleet: Callable[[int], None] = lambda _: None,
    is_well: Callable[[], bool] = lambda: True,
    is_draining: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Keep a process's row fresh while the block runs; the first beat is written before it.

    Args:
        on_fleet: Told how many processes of this role there are, at each beat.
        is_well: Whether the process does its work; while it hangs, its row is left to grow old.
        is_draining: Whether it was told to end; that is written at once.

    Raises:
        ServiceUnavailable: Postgres is away at the start. Later it is only logged, once an outage.
    """
    heart, ended = _Heart(sessions, identity, metrics, on_fleet, is_well, is_draining), threading.Event()
    heart.beat()
    thread = threading.Thread(target=heart.keep, args=(ended,), name="tidegate-heartbeat", daemon=True)
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
            get_logger("heartbeat").warning("heartbeat.not_removed", name=identity.name)
