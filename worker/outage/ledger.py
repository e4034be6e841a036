"""What an outage cost, read off the attempts: switches, wasted calls, lost seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from pipeline.domain.call import Outcome
from pipeline.store.attempts import AttemptRow

__all__ = ["Ledger", "Switched", "read_ledger"]

_WASTED = (Outcome.FAILED.value, Outcome.LOST.value)


@dataclass(frozen=True, slots=True)
class Switched:
    """A call that moved on after a failed try.

    Attributes:
        at: When the try had failed.
        to_preset: None when nobody was left.
        seconds: What the failed try took.
    """

    at: datetime
    run_id: int
    stage: str | None
    from_preset: str
    to_preset: str | None
    kind: str
    status: int | None
    seconds: float

    @property
    def reason(self) -> str:
        """``rate_limit 429``, ``ttft_timeout``."""
        return f"{self.kind} {self.status}" if self.status else self.kind

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "run": self.run_id,
            "stage": self.stage,
            "from": self.from_preset,
            "to": self.to_preset,
            "kind": self.kind,
            "status": self.status,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Ledger:
    """The sums.

    Attributes:
        switches: In order of time.
        wasted: Tries on the primaries that brought nothing.
        lost_s: What those took together.
        passed_over: Calls that went to a fallback without trying the primary, which was known to be busy.
        answered: Tries that brought an answer, by preset.
        failed: Tries that did not, by preset.
        answers: When each primary's answers began, in order.
    """

    switches: tuple[Switched, ...] = ()
    wasted: int = 0
    lost_s: float = 0.0
    passed_over: int = 0
    answered: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, tuple[datetime, ...]] = field(default_factory=dict)

    def back_after(self, moment: datetime) -> Mapping[str, float]:
        """How long after a moment each primary's first answer began, in seconds; those without one are left out."""
        later = {preset: [at for at in times if at >= moment] for preset, times in self.answers.items()}
        return {preset: (min(times) - moment).total_seconds() for preset, times in later.items() if times}


def read_ledger(rows: Iterable[AttemptRow], primaries: Collection[str]) -> Ledger:
    """Add up attempts, in order of start.

    Args:
        rows: Of any calls; one that is still under way counts for nothing.
        primaries: Names of presets.
    """
    calls: defaultdict[str, list[AttemptRow]] = defaultdict(list)
    for row in rows:
        calls[row.call_id].append(row)
    every = [row for tries in calls.values() for row in tries]
    wasted = [row for row in every if row.preset in primaries and row.outcome in _WASTED]
    return Ledger(
        switches=tuple(sorted((one for tries in calls.values() for one in _switches(tries)), key=lambda one: one.at)),
        wasted=len(wasted),
        lost_s=round(sum(row.duration_ms or 0 for row in wasted) / 1000, 3),
        passed_over=sum(1 for tries in calls.values() if all(row.position > 0 for row in tries)),
        answered=Counter(row.preset for row in every if row.preset and row.outcome == Outcome.OK.value),
        failed=Counter(row.preset for row in every if row.preset and row.outcome in _WASTED),
        answers={
            preset: tuple(
                sorted(row.started_at for row in every if row.preset == preset and row.outcome == Outcome.OK.value)
            )
            for preset in primaries
        },
    )


def _switches(tries: list[AttemptRow]) -> Iterable[Switched]:
    for row, following in pairwise(tries):
        if row.outcome != Outcome.FAILED.value or row.target == following.target:
            continue
        seconds = (row.duration_ms or 0) / 1000
        yield Switched(
            at=row.started_at + timedelta(seconds=seconds),
            run_id=row.run_id,
            stage=row.stage,
            from_preset=row.preset or row.target or "",
            to_preset=following.preset,
            kind=row.kind or "unknown",
            status=row.status,
            seconds=seconds,
        )
