"""Waiting for runs to end, with a live picture of how far they are."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pipeline.domain.run import RunState
from pipeline.domain.unit import Queue, queue_of
from pipeline.store.fleet import FleetRow, fresh_workers
from pipeline.store.progress import Progress, read_progress
from pipeline.store.reader import reader_of
from pipeline.store.session import Sessions
from worker.cli.bars import bar
from worker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Ending", "Waited", "wait_for_runs"]

_POLL_S = 0.25
_SLOW_POLL_S = 2.0
_MANY_RUNS = 1000
_PARKED_S = 3.0
"""When every run that is left has been parked for this long, nothing moves any more."""
_NO_WORKER_S = 10.0
_RESTARTED_S = 30.0
"""Beside other workers one that is missing may be on its way back."""
_SAY_EVERY_S = 5.0


class Ending(Enum):
    """Why the waiting ended."""

    ENDED = "ended"
    PARKED = "parked"
    NO_WORKER = "no_worker"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Waited:
    """What was last seen of the runs.

    Attributes:
        has_worker: Whether any worker was there for what is to be done next.
        unattended: The queues that wait for a worker, where there is none for any of them.
    """

    progress: Progress
    ending: Ending
    unattended: tuple[Queue, ...] = ()

    @property
    def has_worker(self) -> bool:
        return not self.unattended


def wait_for_runs(terminal: Terminal, sessions: Sessions, run_ids: Sequence[int], timeout_s: float | None) -> Waited:
    """Wait until all runs have ended, or nothing moves any more.

    Args:
        timeout_s: The longest to wait; None for as long as something moves.

    Raises:
        ServiceUnavailable: Postgres is away.
    """
    began = time.monotonic()
    pause = threading.Event()
    parked, idle = _Since(), _Since()
    with _display(terminal) as show:
        while True:
            with sessions() as session:
                progress = read_progress(session, run_ids)
                workers = [worker for worker in fresh_workers(reader_of(session)) if worker.role == "worker"]
            unattended = _unattended(progress, workers)
            if progress.runs:
                show(progress)
            left = [run for run in progress.runs.values() if not run.ended]
            now = time.monotonic()
            waits = bool(left) and all(run.state is RunState.PARKED and not run.due for run in left)
            if not left:
                return Waited(progress, Ending.ENDED, unattended)
            if parked.lasted(waits, now) >= _PARKED_S:
                return Waited(progress, Ending.PARKED, unattended)
            if idle.lasted(bool(unattended), now) >= (_RESTARTED_S if workers else _NO_WORKER_S):
                return Waited(progress, Ending.NO_WORKER, unattended)
            if timeout_s is not None and now - began >= timeout_s:
                return Waited(progress, Ending.TIMEOUT, unattended)
            poll_s = _POLL_S if len(run_ids) < _MANY_RUNS else _SLOW_POLL_S
            pause.wait(poll_s if timeout_s is None else max(0.0, min(poll_s, began + timeout_s - now)))


def _unattended(progress: Progress, workers: Sequence[FleetRow]) -> tuple[Queue, ...]:
    """The queues of all that could be done now, if nobody takes from any of them."""
    taken = {queue for worker in workers for queue in worker.queues}
    stages = [
        stage for stage, units in progress.stages.items() if units.total > units.done + units.failed + units.parked
    ]
    # A run that was not handed out yet begins with it.
    wanted = {queue_of(stage) for stage in stages} or {Queue.PARSE}
    waits = tuple(queue for queue in Queue if queue in wanted)
    if not stages and taken:
        return ()
    return () if any(queue.value in taken for queue in waits) else waits


class _Since:
    """For how long a condition has held."""

    def __init__(self) -> None:
        self._since: float | None = None

    def lasted(self, holds: bool, now: float) -> float:
        if not holds:
            self._since = None
            return 0.0
        if self._since is None:
            self._since = now
        return now - self._since


class _Show(Protocol):
    def __call__(self, progress: Progress) -> None: ...


@contextmanager
def _display(terminal: Terminal) -> Iterator[_Show]:
    """Bars on a terminal; elsewhere a line on stderr now and then."""
    if terminal.is_watched:
        from rich.live import Live

        with Live(console=terminal.console, refresh_per_second=8, transient=True) as live:
            yield lambda progress: live.update(_picture(progress))
        return
    said = _Said()
    yield said
    said.finish()


class _Said:
    def __init__(self) -> None:
        self._last = ""
        self._last_at = float("-inf")
        self._pending = ""

    def __call__(self, progress: Progress) -> None:
        self._pending = _summary(progress)
        if self._pending != self._last and time.monotonic() - self._last_at >= _SAY_EVERY_S:
            self.finish()

    def finish(self) -> None:
        if self._pending and self._pending != self._last:
            sys.stderr.write(self._pending + "\n")
            sys.stderr.flush()
            self._last, self._last_at = self._pending, time.monotonic()


def _picture(progress: Progress) -> Text:
    from rich.text import Text

    lines = []
    for stage, units in progress.stages.items():
        ended = units.done + units.failed
        notes = [f"{count} {what}" for count, what in ((units.parked, "parked"), (units.failed, "failed")) if count]
        tail = f"  {', '.join(notes)}" if notes else ""
        lines.append(f"{stage.value:<9} {bar(ended, units.total)} {units.done}/{units.total}{tail}")
    return Text("\n".join([*lines, _summary(progress)]))


def _summary(progress: Progress) -> str:
    counted = [
        (RunState.DONE, "done"),
        (RunState.EMPTY, "empty"),
        (RunState.FAILED, "failed"),
        (RunState.CANCELLED, "cancelled"),
        (RunState.RUNNING, "running"),
        (RunState.PARKED, "parked"),
        (RunState.QUEUED, "queued"),
    ]
    parts = [f"{count} {word}" for state, word in counted if (count := progress.count(state))]
    documents = "document" if len(progress.runs) == 1 else "documents"
    return f"{len(progress.runs)} {documents}: {' · '.join(parts)}"
