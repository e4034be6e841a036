"""What a process has said since a test began to listen."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tests.fault.stack import Program

__all__ = ["Heard"]


@dataclass
class Heard:
    """Reads a program's log from where it ends now."""

    program: Program
    _skipped: int = field(init=False)

    def __post_init__(self) -> None:
        self._skipped = len(self.program.said())

    @property
    def lines(self) -> list[dict[str, str]]:
        """The log's lines; asserts that the process lives and has shown nobody a traceback."""
        said = self.program.said()[self._skipped :]
        assert self.program.alive
        assert "Traceback" not in said, said
        return [json.loads(line) for line in said.splitlines()]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]

    @property
    def warnings(self) -> list[str]:
        """The events of every line above INFO."""
        return [line["event"] for line in self.lines if line["level"] != "info"]
