"""A figure beside its bar."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and what is promised.

    Attributes:
        least: Whether the bar is the least that is promised; else it is the most.
    """

    what: str
    found: float
    bar: float
    unit: str = ""
    least: bool = False

    @property
    def held(self) -> bool:
        return self.found >= self.bar if self.least else self.found <= self.bar

    def __str__(self) -> str:
        digits = 0 if self.found >= 1000 else 3
        mark, sign = "held  " if self.held else "MISSED", "least" if self.least else "most"
        bar = f"{self.bar:,.{0 if self.bar >= 1000 else 1}f}"
        return f"{mark} {self.what}: {self.found:,.{digits}f} {self.unit} of at {sign} {bar}".replace("  of", " of")
