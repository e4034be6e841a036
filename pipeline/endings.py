"""How units end: done, failed, parked or lost, in a transaction under their run's lock.

What ended a unit also settles its run (barriers, parking, publishing), so that nothing waits for a second look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from pipeline.advance import settle
from pipeline.domain.call import SkipReason
from pipeline.domain.errors import (
    ChainExhausted,
    ChildDied,
    DeadlineExceeded,
    Failure,
    RejectedInput,
    ResultGone,
    ServiceUnavailable,
)
from pipeline.domain.run import RunState
from pipeline.failover.call import rejecting_targets
from pipeline.failover.kinds import FailureKind
from pipeline.store.losses import lose_lease
from pipeline.store.parked import park_unit
from pipeline.store.patience import Patience
from pipeline.store.runs import lock_run, note_progress
from pipeline.store.schema import Run
from pipeline.store.session import Session, Sessions, transact
from pipeline.store.units import (
    Claimed,
    Moment,
    add_rejections,
    fail_unit,
    finish_units,
    give_back,
    seconds_from_now,
)
from pipeline.work import Done, Workshop, calls_with_content, work_of

__all__ = ["Endings", "Events", "SliceReport", "UnitPolicy", "moment"]

_RETRY_WITHOUT_TIME_S = 30.0
"""When a chain is busy but says no time: the default cooldown."""


@dataclass(frozen=True, slots=True)
class UnitPolicy:
    """The config's ``unit``, in seconds and counts; ``drain_s`` is what running units get when the worker stops."""

    lease_s: float = 60.0
    hard_deadline_s: float = 3600.0
    max_lost: int = 3
    max_calls: int = 20
    drain_s: float = 8.0


class Events(Protocol):
    """Hears what happens to units and runs; it never raises."""

    def unit_finished(self, unit: Claimed, outcome: str, detail: str) -> None: ...

    def run_moved(self, run_id: int, document_id: str, state: RunState, detail: str) -> None: ...

    def failed_inside(self, unit: Claimed, error: BaseException) -> None: ...


@dataclass(slots=True)
class SliceReport:
    """What became of a slice.

    Attributes:
        details: A line for each unit that did not end well.
        rejecting: Targets that are of no use to the slice's parked units.
    """

    counts: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    rejecting: set[str] = field(default_factory=set)
    made_work: bool = False

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items())) or "nothing to do"
        return f"{counts}: {'; '.join(self.details)}" if self.details else counts


@dataclass(frozen=True, slots=True)
class _Settled:
    """What was committed: the units (by id) whose ends were written, and where that leaves their run."""

    units: frozenset[int]
    state: RunState
    document_id: str


@dataclass(frozen=True, slots=True)
class Endings:
    """Ends the units of one slice and keeps count in its report.

    Every method waits while Postgres is away, and raises ``ServiceUnavailable`` when that takes too long: the units'
    leases expire then.

    Attributes:
        meanwhile: Called between tries, so that the slice's other units keep their leases.
    """

    sessions: Sessions
    shop: Workshop
    events: Events
    policy: UnitPolicy
    report: SliceReport
    patience: Patience
    meanwhile: Callable[[], None] = lambda: None

    def given_back(self, units: Sequence[Claimed], why: str = "", *, after_s: float = 0.0) -> None:
        """Units were not done, through no fault of theirs: they are pending again, without a mark against them.

        Args:
            why: What kept them from being done, for the slice's report.
            after_s: How long they wait before they are handed out again.
        """
        not_before = seconds_from_now(after_s) if after_s else None

        def write() -> int:
            with self.sessions.begin() as session:
                return give_back(session, units, not_before=not_before)

        count = self.patience.outlast(write, self.meanwhile)
        self.report.counts["given_back"] += count
        if why:
            self.report.details.append(why)

    def done(self, ended: Sequence[tuple[Claimed, Done]]) -> None:
        """Units of the slice have their results; one transaction takes them all."""

        def write(session: Session, run: Run) -> list[Claimed]:
            finished = finish_units(session, [(unit, done.result) for unit, done in ended])
            mine = [(unit, done) for unit, done in ended if unit.id in finished]
            for unit, done in mine:
                add_rejections(session, unit, done.result.rejecting)
            if mine:
                work_of(mine[0][0].stage, self.shop).store(session, run, mine)
                note_progress(run)
            return [unit for unit, _ in mine]

        try:
            settled = self._end(ended[0][0].run_id, write)
        except ServiceUnavailable:
            raise
        except Exception as error:
            if len(ended) > 1:
                # One by one it shows whose it is, and the others keep what was paid for.
                for one in ended:
                    self.done([one])
                return
            self._not_stored(*ended[0], error)
        else:
            self._tell(settled, [(unit, "done", done.result.answered_by or "") for unit, done in ended])

    def _not_stored(self, unit: Claimed, done: Done, error: Exception) -> None:
        match error:
            case RejectedInput():
                self._fail(unit, error.failure, done.result.calls)
            case ResultGone():
                self.given_back([unit], error.fact)
            case _:
                self._failed_inside(unit, error, done.result.calls)

    def failed(self, unit: Claimed, error: Exception, *, asked_with: int = 0) -> None:
        """A unit has no result; the error says what that means for it.

        Args:
            asked_with: The other units that the error is about, which were not asked for without this one.
        """
        match error:
            case ChainExhausted():
                self._exhausted(unit, error, asked_with)
            case DeadlineExceeded():
                # Slow is busy: what was tried and left out is on the attempts; the unit is tried again later.
                self._exhausted(unit, ChainExhausted(error.role, error.tries, error.skipped, None, True))
            case RejectedInput():
                self._fail(unit, error.failure, 0)
            case ChildDied():
                self._end_one(
                    unit,
                    lambda session, _: lose_lease(session, unit, self.policy.max_lost, str(error)),
                    "lost",
                    str(error),
                )
            case _:
                self._failed_inside(unit, error, 0)

    def _failed_inside(self, unit: Claimed, error: Exception, calls: int) -> None:
        """A bug of ours ends its own unit, and nobody else's."""
        self.events.failed_inside(unit, error)
        detail = f"{type(error).__name__} inside Tidegate; see the worker's log"
        self._fail(unit, Failure(FailureKind.INTERNAL.value, detail), calls)

    def _fail(self, unit: Claimed, failure: Failure, calls: int, rejecting: frozenset[str] = frozenset()) -> None:
        def write(session: Session, run: Run) -> bool:
            if not fail_unit(session, unit, failure, calls):
                return False
            add_rejections(session, unit, rejecting)
            note_progress(run)
            return True

        self._end_one(unit, write, "failed", f"{failure.kind}: {failure.detail}")

    def _exhausted(self, unit: Claimed, error: ChainExhausted, asked_with: int = 0) -> None:
        calls, rejecting = calls_with_content(error.tries), rejecting_targets(error.tries)
        if not error.retryable:
            self._fail(unit, _rejected_everywhere(error, asked_with), calls, rejecting)
            return
        if unit.calls + calls >= self.policy.max_calls:
            detail = f"{unit.calls + calls} calls returned content, none an answer"
            self._fail(unit, Failure("max_calls", detail), calls, rejecting)
            return

        def write(session: Session, run: Run) -> bool:
            if not park_unit(session, unit, _resume_at(error), calls):
                return False
            add_rejections(session, unit, rejecting)
            return True

        self.report.rejecting.update(unit.rejected_by, rejecting)
        self._end_one(unit, write, "parked", str(error))

    def _end_one(self, unit: Claimed, write: Callable[[Session, Run], bool], outcome: str, detail: str) -> None:
        settled = self._end(unit.run_id, lambda session, run: [unit] if write(session, run) else [])
        self._tell(settled, [(unit, outcome, detail)])

    def _end(self, run_id: int, write: Callable[[Session, Run], Sequence[Claimed]]) -> _Settled | None:
        """Write units' ends and settle their run; None when no lease is ours any more and nothing was written."""

        def commit(session: Session) -> _Settled | None:
            run = lock_run(session, run_id)
            written = [] if run is None else write(session, run)
            if run is None or not written:
                return None
            return _Settled(frozenset(unit.id for unit in written), settle(session, run), str(run.document_id))

        return self.patience.outlast(lambda: transact(self.sessions, commit), self.meanwhile)

    def _tell(self, settled: _Settled | None, ended: Sequence[tuple[Claimed, str, str]]) -> None:
        """Count and tell what became of units (each with outcome and detail), and then of their run."""
        for unit, outcome, detail in ended:
            if settled is None or unit.id not in settled.units:
                self.report.counts["dropped"] += 1
                # Maybe by a COMMIT of ours whose answer was lost, so that nobody has looked at what it made due.
                self.report.made_work = True
                continue
            self.report.counts[outcome] += 1
            if outcome != "parked":
                self.report.made_work = True
            if outcome != "done":
                self.report.details.append(f"{unit.stage.value} {unit.ordinal} {outcome}: {detail}")
            self.events.unit_finished(unit, outcome, detail)
        if settled is not None and settled.state is not RunState.RUNNING:
            unit, outcome, detail = ended[-1]
            why = "" if outcome == "done" else detail
            self.events.run_moved(unit.run_id, settled.document_id, settled.state, why)


def moment(epoch_s: float | None) -> datetime | None:
    """A time of the registry's, as the database keeps it."""
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC)


def _resume_at(error: ChainExhausted) -> Moment | None:
    """When to look again; None where only a person's act (enable, budget) brings a target back."""
    if error.retry_at is not None:
        return moment(error.retry_at)
    by_hand = {SkipReason.DISABLED, SkipReason.OVER_BUDGET}
    if any(skip.reason in by_hand for skip in error.skipped):
        return None
    return seconds_from_now(_RETRY_WITHOUT_TIME_S)


def _rejected_everywhere(error: ChainExhausted, asked_with: int) -> Failure:
    """The most telling failure: what the last target that was really asked said."""
    others = f" (asked for with {asked_with} more, of which none was answered)" if asked_with else ""
    if error.tries:
        last = error.tries[-1]
        return Failure(last.kind or "unknown", f"{last.target}: {last.message or 'no message'}{others}")
    reasons = "; ".join(f"{skip.target}: {skip.reason.value}" for skip in error.skipped)
    kind = "contract" if any(skip.reason is SkipReason.CONTRACT for skip in error.skipped) else "rejected"
    return Failure(kind, (reasons or f"no target of {error.role} may take this input") + others)
