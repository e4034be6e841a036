"""Hands out what a worker's slices make due, in a thread of its own: no slice waits, and many wakes are one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.unit import Stage
from pipeline.observe.logging import get_logger

__all__ = ["Dispatcher"]

_SPACING_S = 0.1
"""Between two passes: under load one pass then serves the units of a tenth of a second."""
_RETRY_S = 2.0
"""After a pass that could not say who is back: nobody else will, and what is parked would wait for its own time."""


class Dispatcher:
    """Dispatches when woken.

    What it misses (a broker or a Postgres that is away) the beat does later, but for what waits for a target that is
    back before its time: that is tried again.

    Args:
        dispatch: Fills the window.
        wake_parked: Lets the parked units of a stage go on, as many as its chain takes.
        make_due: Has the parked units of stages looked at now, whatever they wait for.
    """

    def __init__(
        self,
        dispatch: Callable[[], int],
        wake_parked: Callable[[Stage], None],
        make_due: Callable[[Collection[Stage]], None],
    ) -> None:
        self._dispatch = dispatch
        self._wake_parked = wake_parked
        self._make_due = make_due
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._answered: set[Stage] = set()
        self._recovered: set[Stage] = set()
        self._failing = False

    def wake(self, answered: Stage | None = None) -> None:
        """Have a pass made soon.

        Args:
            answered: A stage whose chain has just answered: what is parked there may go on.
        """
        with self._lock:
            if answered is not None:
                self._answered.add(answered)
        self._woken.set()

    def recovered(self, stages: Collection[Stage]) -> None:
        """A target of these stages is back before its time: what is parked there need not wait for that."""
        with self._lock:
            self._recovered.update(stages)
        self._woken.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve wakes while the block runs; the last ones are served before it is left."""
        thread = threading.Thread(target=self._serve, name="tidegate-dispatch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            self._woken.set()
            thread.join()

    def _serve(self) -> None:
        while True:
            self._woken.wait(_RETRY_S if self._recovered else None)
            ending = self._closing.is_set()
            self._woken.clear()
            self._pass()
            if ending:
                return
            self._closing.wait(_SPACING_S)

    def _pass(self) -> None:
        log = get_logger("worker")
        with self._lock:
            answered, self._answered = self._answered, set()
            recovered, self._recovered = self._recovered, set()
        try:
            if recovered:
                self._tell(recovered)
            for stage in sorted(answered | recovered):
                self._wake_parked(stage)
            self._dispatch()
        except ServiceUnavailable as error:
            if not self._failing:
                log.warning("dispatch.failed", error=error.fact)
            self._failing = True
        except Exception:
            # A bug here must not leave the process working and handing nothing out.
            log.exception("dispatch.failed")
        else:
            self._failing = False

    def _tell(self, recovered: Collection[Stage]) -> None:
        try:
            self._make_due(recovered)
        except ServiceUnavailable:
            with self._lock:
                self._recovered.update(recovered)
            raise
