"""The tasks: ids in, one slice carried out, and an honest end.

A slice of which something failed or was parked ends with a typed error, so that Flower does not show it as a plain
success; what has to happen next is in Postgres already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from celery import Celery
from celery.exceptions import Reject

from pipeline.domain.errors import ServiceUnavailable, TidegateError
from pipeline.domain.unit import Stage
from pipeline.ingest import Ingest, SliceReport
from pipeline.observe.logging import get_logger
from worker.app import task_name

__all__ = ["SliceFailed", "SliceParked", "Tasks", "register_tasks"]


class SliceFailed(TidegateError):
    """Units of a slice failed for good; the text says which and why."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        return self.outcome


class SliceParked(SliceFailed):
    """Units of a slice wait for a target to come back; they go on by themselves."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """What the tasks of a worker process do.

    Attributes:
        wake: Called with a stage whose chain has just answered: lets parked work go on; True when there was some.
        dispatch: Hands out what the slice made due.
        stopping: Set when the process drains.
    """

    ingest: Ingest
    wake: Callable[[Stage], bool]
    dispatch: Callable[[], int]
    stopping: Event

    def carry_out(self, run_id: int, stage: str, ordinals: Sequence[int]) -> str:
        """Do one slice.

        Raises:
            SliceFailed: Units failed.
            SliceParked: Units were parked.
            ServiceUnavailable: Postgres is away.
            Reject: This process is about to end; the message goes back for another.
        """
        if self.stopping.is_set():
            reason = "this worker is about to end"
            raise Reject(reason, requeue=True)
        report = self.ingest.run_slice(run_id, Stage(stage), ordinals)
        self._hand_out(Stage(stage), report)
        if report.counts["failed"]:
            raise SliceFailed(str(report))
        if report.counts["parked"]:
            raise SliceParked(str(report))
        return str(report)

    def _hand_out(self, stage: Stage, report: SliceReport) -> None:
        try:
            woken = bool(report.counts["done"]) and self.wake(stage)
            if report.made_work or woken:
                self.dispatch()
        except ServiceUnavailable as error:
            # The slice is done and committed; the beat hands out what it made due.
            get_logger("worker").warning("dispatch.failed", error=error.fact)


def register_tasks(app: Celery, tasks: Tasks) -> None:
    """Give the app a task for each stage."""

    def carry_out(run_id: int, stage: str, ordinals: list[int]) -> str:
        return tasks.carry_out(run_id, stage, ordinals)

    for stage in Stage:
        app.task(name=task_name(stage), throws=(SliceFailed, ServiceUnavailable))(carry_out)
