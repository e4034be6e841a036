"""A Celery worker in the foreground of this process, with our own logging and our own way of ending."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from celery import Celery, signals
from celery.apps.worker import Worker
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.worker import state

from pipeline.observe.logging import get_logger
from worker.broker_link import losses_said_once
from worker.tasks import Tasks, register_tasks

__all__ = ["stop_working", "work"]


class _GuestWorker(Worker):
    """Leaves the signals, the loggers and the warnings to whoever runs it.

    Celery's second Ctrl-C takes running tasks for cancelled and hands their messages back, while threads, which
    nobody can end from outside, work on; and its SIGHUP starts another program in this one's place.
    """

    def install_platform_tweaks(self, worker: Any) -> None:
        """See the class."""

    def setup_logging(self, colorize: Any = None) -> Any:
        """See the class; true says that somebody else has done it."""
        return True


def work(app: Celery, tasks: Tasks, name: str, queues: Sequence[str], threads: int) -> None:
    """Consume queues until ``stop_working`` is called; slices then finish, or are given back, within the drain time.

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

    signals.worker_ready.connect(ready, weak=False)
    try:
        worker = _GuestWorker(
            app=app,
            hostname=name,
            queues=list(queues),
            pool="threads",
            concurrency=threads,
            quiet=True,
            # Workers know of each other from Postgres; mingling costs a second at each start.
            without_mingle=True,
            without_gossip=True,
        )
        with losses_said_once():
            worker.start()
    finally:
        signals.worker_ready.disconnect(ready)
    log.info("worker.stopped", name=name)
    if worker.exitcode:
        sys.exit(worker.exitcode)


def stop_working() -> None:
    """Have ``work`` return, now or as soon as it has begun; may be called by a signal's handler."""
    state.should_stop = 0  # type: ignore[assignment]
