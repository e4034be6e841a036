"""Documents for fault tests: small, each unlike any other, so that no result of one is reused for another."""

from __future__ import annotations

from pathlib import Path
from random import Random

from examples.make import Pdf

__all__ = ["Papers"]

_WORDS = ("tide", "gate", "sluice", "water", "hinge", "apron", "culvert", "flap", "marsh", "ditch", "pump", "gauge")
_SENTENCE, _SENTENCES = 6, 2


class Papers:
    """Writes documents into a folder; the same seed writes the same ones.

    Every page and section of a document has its file's stem in it, so ``prompt_contains=path.stem`` is a rule of the
    model server for its calls alone.
    """

    def __init__(self, folder: Path, rng: Random) -> None:
        self._folder = folder
        self._rng = rng
        self._number = 0

    def note(self, sections: int = 2) -> Path:
        """Markdown without pages to look at: parse, one format unit, then a few chunks."""
        path = self._next("md")
        parts = [f"# Log {path.stem}\n"]
        for number in range(1, sections + 1):
            body = ". ".join(self._sentences(path.stem))
            parts.append(f"## Part {number} of {path.stem}\n\n{body}.\n")
        path.write_text("\n".join(parts), encoding="utf-8")
        return path

    def notes(self, count: int, sections: int = 2) -> list[Path]:
        return [self.note(sections) for _ in range(count)]

    def sheets(self, pages: int = 2) -> Path:
        """A PDF with a text layer: one describe and one format unit a page (describe set to ``always``)."""
        path = self._next("pdf")
        pdf = Pdf(path.stem)
        for number in range(1, pages + 1):
            lines = [f"Sheet {number} of {path.stem}", *self._sentences(path.stem)]
            shown = " ".join(f"1 0 0 1 56 {780 - 20 * row} Tm ({line}.) Tj" for row, line in enumerate(lines))
            pdf.page(f"BT /F0 11 Tf {shown} ET")
        path.write_bytes(pdf.write())
        return path

    def _sentences(self, stem: str) -> list[str]:
        said = [" ".join(self._rng.choices(_WORDS, k=_SENTENCE)).capitalize() for _ in range(_SENTENCES)]
        return [f"{sentence} {stem} {self._rng.getrandbits(32):08x}" for sentence in said]

    def _next(self, ending: str) -> Path:
        self._number += 1
        return self._folder / f"paper{self._number:03}x{self._rng.getrandbits(32):08x}.{ending}"
