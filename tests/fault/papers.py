"""Documents for fault tests: small, each unlike any other, so that no result of one is reused for another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from examples.make import Pdf

__all__ = ["Papers"]

_WORDS = (
    "tide",
    "gate",
    "sluice",
    "water",
    "hinge",
    "apron",
    "culvert",
    "flap",
    "marsh",
    "ditch",
    "pump",
    "gauge",
    "reed",
)
_SENTENCE, _SENTENCES = 8, 3


class Papers:
    """Writes documents into a folder; the same seed writes the same ones."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self._folder = folder
        self._rng = rng
        self._number = 0

    def note(self, sections: int = 3) -> Path:
        """Markdown without pages to look at: parse, one format unit, then a chunk or more a section."""
        parts = [f"# Log {self._mark()}\n"]
        parts += [f"## Part {number} {self._mark()}\n\n{self._text()}\n" for number in range(1, sections + 1)]
        return self._write("md", "\n".join(parts).encode())

    def notes(self, count: int, sections: int = 3) -> list[Path]:
        return [self.note(sections) for _ in range(count)]

    def sheets(self, pages: int = 2) -> Path:
        """A PDF with a text layer: one describe and one format unit a page (describe set to ``always``)."""
        pdf = Pdf(self._mark())
        for _ in range(pages):
            lines = [self._mark(), *self._text().split(". ")]
            shown = " ".join(f"1 0 0 1 56 {780 - 20 * row} Tm ({line}) Tj" for row, line in enumerate(lines))
            pdf.page(f"BT /F0 11 Tf {shown} ET")
        return self._write("pdf", pdf.write())

    def _text(self) -> str:
        sentences: Sequence[str] = [
            " ".join(self._rng.choices(_WORDS, k=_SENTENCE)).capitalize() for _ in range(_SENTENCES)
        ]
        return ". ".join(sentences) + f". {self._mark()}."

    def _mark(self) -> str:
        return f"{self._rng.getrandbits(40):010x}"

    def _write(self, ending: str, data: bytes) -> Path:
        self._number += 1
        path = self._folder / f"paper-{self._number:03}.{ending}"
        path.write_bytes(data)
        return path
