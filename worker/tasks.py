"""The tasks: ids in, one slice carried out, and an honest end.

A slice of which something failed or was parked ends with a typed error, so that Flower does not show it as a plain
success; what has to happen next is in Postgres already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event

from celery import Celery
from celery.exceptions import Reject

from pipeline.domain.errors import ServiceUnavailable, TidegateError
from pipeline.domain.unit import Stage
from pipeline.ingest import Ingest
from pipeline.observe.logging import get_logger
from worker.app import task_name
from worker.dispatcher import Dispatcher

__all__ = ["SliceFailed", "SliceParked", "Tasks", "register_tasks", "slice_error"]


class SliceFailed(TidegateError):
    """Units of a slice failed for good; the text says which and why."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        return self.outcome


class SliceParked(SliceFailed):
    """Units of a slice wait for a target to come back; they go on by themselves."""


def slice_error(counts: Mapping[str, int], text: str) -> SliceFailed | None:
    """The error that a slice ends with; None when all of it ended well."""
    if counts.get("failed"):
        return SliceFailed(text)
    return SliceParked(text) if counts.get("parked") else None


@dataclass(frozen=True, slots=True)
class Tasks:
    """What the tasks of a worker process do.

    Attributes:
        dispatcher: Hands out what the slices make due.
        stopping: Set when the process drains.
    """

    ingest: Ingest
    dispatcher: Dispatcher
    stopping: Event

    def carry_out(self, run_id: int, stage: str, ordinals: Sequence[int]) -> str:
        """Do one slice.

        Raises:
            SliceFailed: Units failed.
            SliceParked: Units were parked.
            ServiceUnavailable: A service is away or full; what was not done is handed out again.
            Reject: This process is about to end; the message goes back for another.
        """
        if self.stopping.is_set():
            reason = "this worker is about to end"
            raise Reject(reason, requeue=True)
        try:
            report = self.ingest.run_slice(run_id, Stage(stage), ordinals)
        except ServiceUnavailable as away:
            # Nothing of it is on any row: units wait without a mark, and Celery keeps expected errors to itself.
            get_logger("worker").warning("slice.put_off", run=run_id, stage=stage, units=ordinals, error=away.fact)
            raise
        if report.made_work:
            self.dispatcher.wake(Stage(stage) if report.counts["done"] else None)
        error = slice_error(report.counts, str(report))
        if error is not None:
            raise error
        return str(report)


def register_tasks(app: Celery, tasks: Tasks) -> None:
    """Give the app a task for each stage."""

    def carry_out(run_id: int, stage: str, ordinals: list[int]) -> str:
        return tasks.carry_out(run_id, stage, ordinals)

    for stage in Stage:
        app.task(name=task_name(stage), throws=(SliceFailed, ServiceUnavailable))(carry_out)
