"""Keeps a worker's quarantine: one child process that works on suspects, one at a time, and may die of them.

A suspect goes from Postgres to the child without the broker: it waits in no queue, occupies no task thread, and
neither fills the window nor is kept out by it. The child is started for the first suspect, kept for the next ones, and
ended when there have been none for a while (docs/decisions/0013-quarantine.md).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pipeline.domain.errors import ServiceUnavailable, TidegateError
from pipeline.domain.unit import Queue, Stage, queue_of
from pipeline.endings import UnitPolicy
from pipeline.observe.logging import get_logger
from pipeline.reconcile import TakenBack, take_back
from pipeline.store.losses import holds_leases
from pipeline.store.session import Sessions
from pipeline.store.suspects import any_suspect, next_suspect
from pipeline.store.window import Slice, unmark_dispatched
from worker.app import task_name
from worker.passes import PassReport
from worker.publish import slice_id, slice_text
from worker.quarantine_link import Gone, Link
from worker.tasks import slice_error

__all__ = ["Quarantine", "child_program"]

_PERIOD_S = 1.0
"""Between two looks for suspects while there are none."""

_START_S = 120.0
"""What a child may take to load its models; where that fails, the next try comes after ``_AGAIN_S``."""
_AGAIN_S = 10.0
_HEAR_S = 0.2
_GRACE_S = 8.0
"""What a child may take to end, beyond the time that a drain has: its own hard end comes before that."""


def child_program(queues: Sequence[Queue]) -> list[str]:
    """The child's command; ``-P``, or a folder named ``worker`` where the user stands would be taken for ours."""
    return [sys.executable, "-P", "-m", "worker.quarantine_child", *(queue.value for queue in queues)]


class Quarantine:
    """Hands suspects to a child, in a thread of its own.

    Args:
        sessions: Where suspects are found and taken back.
        queues: Those that the worker serves.
        policy: How long leases last, and how many may be lost.
        stopping: Set when the worker drains.
        on_work: Told when units became due, with the stage whose chain has answered.
        on_taken_back: Told of the units whose child died.
        tell: Shows a slice to Flower.
        argv: The child's program.
        idle_s: How long a child is kept without work.
    """

    def __init__(
        self,
        sessions: Sessions,
        queues: Sequence[Queue],
        policy: UnitPolicy,
        stopping: threading.Event,
        *,
        on_work: Callable[[Stage | None], None],
        on_taken_back: Callable[[TakenBack], None],
        tell: Callable[[PassReport], None],
        argv: Sequence[str] | None = None,
        idle_s: float = 60.0,
    ) -> None:
        self._sessions = sessions
        self._stages = [stage for stage in Stage if queue_of(stage) in queues]
        self._policy = policy
        self._stopping = stopping
        self._on_work = on_work
        self._on_taken_back = on_taken_back
        self._tell = tell
        self._argv = child_program(queues) if argv is None else list(argv)
        self._idle_s = idle_s
        self._log = get_logger("quarantine")
        self._child: _Child | None = None
        self._not_before = 0.0
        self._used_at = 0.0
        # Children that are gone and whose units could not be taken back yet: (child, slice, whether that counts).
        self._owed: list[tuple[str, Slice, bool]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve suspects while the block runs; the child has ended when it is left."""
        thread = threading.Thread(target=self._serve, name="tidegate-quarantine", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _serve(self) -> None:
        failing = False
        while not self._stopping.is_set():
            worked = False
            try:
                worked = self._step()
                failing = False
            except ServiceUnavailable as error:
                if not failing:
                    self._log.warning("quarantine.failed", error=error.fact)
                failing = True
            except Exception:
                # A bug here must not leave suspects waiting for ever.
                self._log.exception("quarantine.failed")
            if not worked:
                self._stopping.wait(_PERIOD_S)
        self._end_child()
        try:
            self._settle_debts()
        except ServiceUnavailable as error:
            # Their leases expire.
            self._log.warning("quarantine.failed", error=error.fact)

    def _step(self) -> bool:
        """Start the child, or have it work on one suspect; False when there was nothing to do."""
        self._settle_debts()
        if self._child is not None and self._child.link.ended:
            self._end_child()
        if self._child is None:
            return self._is_wanted() and self._start_child()
        with self._sessions.begin() as session:
            suspect = next_suspect(session, self._stages)
        if suspect is None:
            if time.monotonic() - self._used_at > self._idle_s:
                self._end_child()
            return False
        self._carry_out(self._child, suspect)
        self._used_at = time.monotonic()
        return True

    # --- the child ----------------------------------------------------------------------------------------------

    def _is_wanted(self) -> bool:
        if time.monotonic() < self._not_before:
            return False
        with self._sessions() as session:
            return any_suspect(session, self._stages)

    def _start_child(self) -> bool:
        link = Link(self._argv)
        until = time.monotonic() + _START_S
        why = f"not ready after {_START_S:g} s"
        try:
            while time.monotonic() < until and not self._stopping.is_set():
                greeting = link.hear(_HEAR_S)
                if greeting is not None:
                    self._child = _Child(greeting["ready"], link)
                    self._used_at = time.monotonic()
                    self._log.info("quarantine.started", name=self._child.name)
                    return True
        except Gone as gone:
            why = str(gone)
        link.close(0 if self._stopping.is_set() else _GRACE_S)
        if not self._stopping.is_set():
            self._not_before = time.monotonic() + _AGAIN_S
            self._log.error("quarantine.not_started", reason=why)
        return False

    def _end_child(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            end = child.link.close(self._policy.drain_s + _GRACE_S)
            self._log.info("quarantine.stopped", name=child.name, end=end)

    # --- one suspect --------------------------------------------------------------------------------------------

    def _carry_out(self, child: _Child, suspect: Slice) -> None:
        began = time.monotonic()
        child.link.send({"run": suspect.run_id, "stage": suspect.stage.value, "ordinals": list(suspect.ordinals)})
        try:
            answer = self._await(child)
        except Gone as gone:
            self._bury(child, suspect, str(gone))
            self._report(suspect, began, TidegateError(f"its process died ({gone})"), "")
            return
        if answer["away"] is not None:
            # Postgres is away from where the child stands: that is no mark against the unit.
            self._owed.append((child.name, suspect, False))
        if answer["made_work"]:
            self._on_work(suspect.stage if answer["counts"].get("done") else None)
        self._report(suspect, began, slice_error(answer["counts"], answer["text"]), answer["text"])

    def _await(self, child: _Child) -> dict[str, Any]:
        """What the child answers.

        Raises:
            Gone: It died, or was killed because it hangs.
        """
        look_every_s = self._policy.lease_s / 2
        look_at, missed = time.monotonic() + look_every_s, 0
        end_at: float | None = None
        while True:
            answer = child.link.hear(_HEAR_S)
            if answer is not None:
                return answer
            now = time.monotonic()
            if self._stopping.is_set():
                if end_at is None:
                    child.link.stop()
                    end_at = now + self._policy.drain_s + _GRACE_S
                elif now > end_at:
                    child.link.kill()
            if now > look_at:
                # One that neither answers nor holds a lease any more hangs: it could not even renew.
                missed = 0 if self._holds(child) else missed + 1
                look_at = now + look_every_s
                if missed > 1:
                    child.link.kill()

    def _holds(self, child: _Child) -> bool:
        try:
            with self._sessions() as session:
                return holds_leases(session, child.name)
        except ServiceUnavailable:
            return True

    def _bury(self, child: _Child, suspect: Slice, end: str) -> None:
        self._child = None
        child.link.close(0)
        draining = self._stopping.is_set()
        say = self._log.info if draining else self._log.error
        say("quarantine.died", name=child.name, end=end, unit=slice_text(suspect), stage=suspect.stage.value)
        self._owed.append((child.name, suspect, not draining))
        self._settle_debts()

    def _settle_debts(self) -> None:
        """Take back what children held that are gone.

        Raises:
            ServiceUnavailable: Postgres is away; it is tried again.
        """
        while self._owed:
            name, suspect, counts = self._owed[0]
            taken = take_back(self._sessions, name, self._policy, counts=counts)
            with self._sessions.begin() as session:
                unmark_dispatched(session, [suspect.wake])
            self._owed.pop(0)
            self._on_taken_back(taken)
            if taken.units:
                self._on_work(None)

    def _report(self, suspect: Slice, began: float, error: Exception | None, text: str) -> None:
        outcome = f"{slice_text(suspect)}: {text}" if text else slice_text(suspect)
        name = task_name(suspect.stage)
        self._tell(PassReport(name, slice_id(suspect), outcome, error, time.monotonic() - began))


class _Child:
    def __init__(self, name: str, link: Link) -> None:
        self.name = name
        self.link = link
