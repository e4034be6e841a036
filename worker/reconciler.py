"""The beat: reconcile and dispatch, every few seconds, in this process and by no message.

It has to act exactly when the broker is away, so it does not go through it; Flower is told afterwards of the passes
that did something (docs/decisions/0003-beat.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from pipeline.deliveries import Deliveries
from pipeline.domain.errors import ServiceUnavailable, TidegateError
from pipeline.ingest import ChainWatch
from pipeline.observe.logging import get_logger
from pipeline.reconcile import Reconciled, ReconcilePolicy, reconcile
from pipeline.store.blobs import BlobStore
from pipeline.store.parked import make_timeless_due
from pipeline.store.reprieve import Reprieve
from pipeline.store.session import Sessions, transact
from worker.events import EventLog
from worker.passes import PassReport

__all__ = ["STALLED_S", "Beat"]

STALLED_S = 60.0
"""A pass that takes longer hangs: one takes milliseconds, and a large sweep a few seconds."""
SWEEP_EVERY_S = 60.0
"""How often a beat looks for what has had its time; while it finds any, each pass deletes a portion."""


@dataclass(slots=True)
class Beat:
    """The job of one beat process. Any number of them may run: an advisory lock lets one work at a time.

    Attributes:
        dispatch: Fills the window; returns how many slices were handed out.
        tell: Shows a pass that did something to Flower.
        deliveries: Finds slices that the broker has lost.
    """

    sessions: Sessions
    blobs: BlobStore
    chains: ChainWatch
    policy: ReconcilePolicy
    dispatch: Callable[[], int]
    events: EventLog
    tell: Callable[[PassReport], None]
    deliveries: Deliveries
    _began: float | None = field(default=None, init=False)
    _looked_again: bool = field(default=False, init=False)
    _sweep_at: float = field(default=0.0, init=False)
    _reprieve: Reprieve = field(init=False)
    _failing: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._reprieve = Reprieve(self.policy.unit.lease_s)

    def is_well(self) -> bool:
        """False while a pass hangs (a lock, a dead disk): whoever asks for the beat must not be told that it works."""
        began = self._began
        return began is None or time.monotonic() - began < STALLED_S

    def run(self, period_s: float, stopping: threading.Event) -> None:
        """Beat until told to stop. An error ends a pass, never the beat."""
        while not stopping.is_set():
            self._began = began = time.monotonic()
            self.once()
            self._began = None
            # From start to start, so that a slow pass does not stretch the delay that it promises to bound.
            stopping.wait(max(0.0, period_s - (time.monotonic() - began)))

    def once(self) -> None:
        """One pass of each job."""
        self._pass("reconcile", self._reconcile)
        self._pass("dispatch", self._dispatch)

    def _pass(self, job: str, work: Callable[[], str]) -> None:
        log = get_logger("beat")
        began, outcome = time.monotonic(), ""
        error: TidegateError | None = None
        try:
            outcome = work()
        except ServiceUnavailable as away:
            error = away
            # An outage is said once, not at each pass.
            say = log.debug if job in self._failing else log.warning
            say("pass.failed", job=job, error=away.fact)
            self._failing.add(job)
        except Exception as bug:
            error = TidegateError(f"{type(bug).__name__} inside Tidegate; see the beat's log")
            log.exception("pass.failed", job=job)
        else:
            self._failing.discard(job)
        if outcome:
            log.info("pass.finished", job=job, done=outcome)
        if outcome or error is not None:
            runtime_s = time.monotonic() - began
            self.tell(PassReport(f"tidegate.{job}", f"{job}:{uuid4().hex[:12]}", outcome, error, runtime_s))

    def _reconcile(self) -> str:
        sweeps = time.monotonic() >= self._sweep_at
        done = reconcile(self.sessions, self.blobs, self.chains, self.policy, self._reprieve, sweeps=sweeps)
        if done is None:
            return ""
        if sweeps and not done.swept:
            self._sweep_at = time.monotonic() + SWEEP_EVERY_S
        if not self._looked_again:
            # A beat that starts may have another configuration than the one before: the next pass looks by that.
            transact(self.sessions, make_timeless_due)
            self._looked_again = True
        self.events.leases_lost(done.lost)
        self.events.runs_resumed(done.resumed, "a target has room again")
        self.events.runs_given_up(done.gave_up)
        return _summary(done, self.deliveries.look())

    def _dispatch(self) -> str:
        handed_out = self.events.slices_handed_out(self.dispatch())
        return f"{handed_out} slices handed out" if handed_out else ""


def _summary(done: Reconciled, lost_slices: int) -> str:
    counts = {
        "leases expired": done.expired,
        "units poisoned": done.lost.poisoned,
        "attempts lost": done.lost_attempts,
        "wakes forgotten": done.stale_wakes,
        "slices lost by the broker": lost_slices,
        "runs resumed": len(done.resumed),
        "runs given up": len(done.gave_up),
        "collections switched": len(done.switched),
        "rows swept": done.swept,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
