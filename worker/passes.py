"""Shows the beat's passes in Flower, as the tasks that they would be if they went through the broker."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from celery import Celery
from celery.events.dispatcher import EventDispatcher
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from pipeline.observe.logging import get_logger

__all__ = ["PassEvents", "PassReport"]

_AWAY = (KombuError, RedisError, OSError)
_HEARTBEAT_S = 5


@dataclass(frozen=True, slots=True)
class PassReport:
    """One pass of a job.

    Attributes:
        name: The task's name.
        pass_id: The task's id.
        outcome: What was done.
        error: Why it was not done.
    """

    name: str
    pass_id: str
    outcome: str
    error: Exception | None
    runtime_s: float


class PassEvents:
    """Sends task and heartbeat events for a process that is no Celery worker. Losing one loses a view, no work."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self._app = app
        self._hostname = hostname
        self._lock = threading.Lock()

    def tell(self, report: PassReport) -> None:
        """Show one pass."""
        ending = (
            ("task-succeeded", {"result": report.outcome, "runtime": report.runtime_s})
            if report.error is None
            else ("task-failed", {"exception": repr(report.error), "traceback": ""})
        )
        named = {"name": report.name, "args": report.outcome, "kwargs": "{}", "retries": 0, "eta": None}
        self._send(("task-received", named), ("task-started", {}), ending, uuid=report.pass_id)

    def heartbeat(self, *, online: bool = True) -> None:
        """Show the process itself."""
        alive = {"freq": _HEARTBEAT_S, "sw_ident": "tidegate", "sw_ver": "", "sw_sys": "", "active": 0, "processed": 0}
        self._send(("worker-heartbeat" if online else "worker-offline", alive))

    def _send(self, *events: tuple[str, dict[str, Any]], **common: Any) -> None:
        try:
            with self._lock, self._app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1)
                dispatcher = EventDispatcher(
                    connection, hostname=self._hostname, app=self._app, buffer_while_offline=False
                )
                with dispatcher:
                    for kind, fields in events:
                        dispatcher.send(kind, **common, **fields)
        except _AWAY as error:
            get_logger("beat").debug("event.lost", error=str(error) or type(error).__name__)
