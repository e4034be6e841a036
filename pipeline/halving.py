"""Smaller jobs for units whose call was refused: a text that no model takes must not cost those that went with it.

The halves are asked for, and the halves of those that are refused. One bad unit of n is found by 2·log₂ n more calls (6
among 8), and the others are answered on the way. Where nothing at all is answered, it may be that whoever was asked
takes nothing: that is left at six more calls, however many units there are, and the units fail together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline.domain.errors import ChainExhausted, DeadlineExceeded
from pipeline.failover.call import rejecting_targets
from pipeline.store.units import Claimed
from pipeline.work import Done, Job

__all__ = ["Halving", "Refused"]

_UNANSWERED_HALVINGS = 2
"""How often a slice is halved of which nothing is answered: into two jobs, and into four."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A job of several units, and the error that says that its input is to blame."""

    job: Job
    error: Exception


@dataclass(slots=True)
class Halving:
    """The refused jobs of one slice. They are put aside until the others have ended, and then halved or given up.

    Attributes:
        is_hopeless: Whether the stage has failed units in this run and none that are done: a target that takes nothing
            must not be searched for its one bad text in every slice of a document.
        missed: What is to be done of units that an answer to their job held nothing for.
    """

    is_hopeless: Callable[[], bool]
    answered: bool = False
    missed: list[Job] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    _times: int = 0

    @property
    def waiting(self) -> list[Claimed]:
        """The units that are put aside."""
        jobs = [*self.missed, *(one.job for one in self.refused)]
        return [unit for job in jobs for unit in job.units]

    def hears(self, job: Job, done: Sequence[Done]) -> list[tuple[Claimed, Done]]:
        """An answer has come; returns what it says of the job's units, and puts those aside that it says nothing of."""
        self.answered = True
        pairs = list(zip(job.units, done, strict=True))
        if job.part is not None:
            # Each alone: which ones they are is known.
            self.missed += [job.part([unit]) for unit, one in pairs if one.is_missing]
        return [(unit, one) for unit, one in pairs if not one.is_missing]

    def takes(self, job: Job, error: Exception) -> bool:
        """Put a job aside that ended without an answer; False when its units end by the error."""
        if len(job.units) < 2 or job.part is None or not _is_the_inputs(error):
            return False
        self.refused.append(Refused(job, error))
        return True

    def next_jobs(self) -> tuple[list[Job], list[Refused]]:
        """Once all jobs of the slice have ended: those to begin now, and the refused ones that are given up."""
        missed, self.missed = self.missed, []
        refused, self.refused = self.refused, []
        if not refused or not self._is_worth_it():
            return missed, refused
        self._times += 1
        return [*missed, *(half for one in refused for half in _halves(one.job))], []

    def _is_worth_it(self) -> bool:
        if self.answered:
            return True
        return self._times < _UNANSWERED_HALVINGS and (self._times > 0 or not self.is_hopeless())


def _is_the_inputs(error: Exception) -> bool:
    """Whether a target was asked, or left out, in vain because of what it was asked; others may have been busy."""
    match error:
        case ChainExhausted():
            return not error.retryable or bool(rejecting_targets(error.tries))
        case DeadlineExceeded():
            return bool(rejecting_targets(error.tries))
    return False


def _halves(job: Job) -> list[Job]:
    if job.part is None:
        return [job]
    middle = len(job.units) // 2
    return [job.part(job.units[:middle]), job.part(job.units[middle:])]
