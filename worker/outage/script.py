"""What the simulated primaries do, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["DEFAULT_SCRIPT", "Mode", "Phase", "Script"]


class Mode(StrEnum):
    """How a simulated primary behaves towards a call that begins now."""

    HEALTHY = "healthy"
    BUSY = "busy"
    HANGING = "hanging"

    @property
    def words(self) -> str:
        """For people."""
        return _WORDS[self]


_WORDS = {
    Mode.HEALTHY: "they answer",
    Mode.BUSY: "429 and 503 with Retry-After",
    Mode.HANGING: "they accept calls and stay silent",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of one behaviour.

    Attributes:
        begins_s: Seconds after the script's begin.
        seconds: Its length; the last phase has no end.
    """

    mode: Mode
    begins_s: float
    seconds: float

    @property
    def ends_s(self) -> float:
        return self.begins_s + self.seconds


@dataclass(frozen=True, slots=True)
class Script:
    """Phases one after the other; the last one lasts."""

    phases: tuple[Phase, ...]

    @classmethod
    def of(cls, *steps: tuple[Mode, float], last: Mode = Mode.HEALTHY) -> Script:
        """A script of steps, each a mode and its seconds, and a mode that lasts."""
        phases: list[Phase] = []
        begins_s = 0.0
        for mode, seconds in steps:
            phases.append(Phase(mode, begins_s, seconds))
            begins_s += seconds
        return cls((*phases, Phase(last, begins_s, math.inf)))

    @classmethod
    def parse(cls, text: str) -> Script:
        """Read what ``str`` wrote.

        Raises:
            ValueError: It is no script.
        """
        *steps, last = text.split(",")
        pairs = [step.split(":") for step in steps]
        return cls.of(*((Mode(mode), float(seconds)) for mode, seconds in pairs), last=Mode(last))

    def __str__(self) -> str:
        *steps, last = self.phases
        return ",".join([*(f"{phase.mode}:{phase.seconds:g}" for phase in steps), last.mode])

    def index_at(self, elapsed_s: float) -> int:
        """Which phase it is ``elapsed_s`` after the begin; the first one before it."""
        return max(
            (index for index, phase in enumerate(self.phases) if phase.begins_s <= elapsed_s),
            default=0,
        )

    def at(self, elapsed_s: float) -> Phase:
        return self.phases[self.index_at(elapsed_s)]

    def first(self, mode: Mode) -> Phase | None:
        """The first phase of a mode."""
        return next((phase for phase in self.phases if phase.mode is mode), None)

    @property
    def recovers_s(self) -> float:
        """When the last phase begins."""
        return self.phases[-1].begins_s


DEFAULT_SCRIPT = Script.of((Mode.HEALTHY, 6.0), (Mode.BUSY, 8.0), (Mode.HANGING, 10.0))
