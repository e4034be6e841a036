"""A Celery worker in the foreground of this process, with our own logging and our own way of ending."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from celery import Celery, signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning

from pipeline.observe.logging import get_logger
from worker.tasks import Tasks, register_tasks

__all__ = ["work"]


def work(app: Celery, tasks: Tasks, name: str, queues: Sequence[str], threads: int) -> None:
    """Consume queues until SIGTERM or SIGINT.

    The first signal stops consuming and sets ``tasks.stopping``: slices then finish, or are given back, within the
    drain time. Threads can't be killed, so a second signal has to come from outside as SIGKILL.

    Args:
        name: The node's name, unique in the fleet.
        threads: Slices at once.
    """
    log = get_logger("worker")
    register_tasks(app, tasks)
    # Celery warns of root for the sake of pickled messages; ours are JSON, and hostile files are read by children.
    warnings.simplefilter("ignore", SecurityWarning)
    # It advises to cancel what runs when the broker is lost; our work does not depend on the broker.
    warnings.simplefilter("ignore", CPendingDeprecationWarning)

    def ready(**_: Any) -> None:
        log.info("worker.started", name=name, queues=list(queues), threads=threads)

    def ending(**_: Any) -> None:
        tasks.stopping.set()

    # A receiver of this signal keeps Celery's hands off the loggers.
    signals.setup_logging.connect(_leave_logging, weak=False)
    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(ending, weak=False)
    try:
        worker = app.Worker(
            hostname=name,
            queues=list(queues),
            pool="threads",
            concurrency=threads,
            quiet=True,
            # Workers know of each other from Postgres; mingling costs a second at each start.
            without_mingle=True,
            without_gossip=True,
        )
        worker.start()
    finally:
        for signal, receiver in (
            (signals.setup_logging, _leave_logging),
            (signals.worker_ready, ready),
            (signals.worker_shutting_down, ending),
        ):
            signal.disconnect(receiver)
    log.info("worker.stopped", name=name)
    if worker.exitcode:
        sys.exit(worker.exitcode)


def _leave_logging(**_: Any) -> None:
    """See ``work``."""
