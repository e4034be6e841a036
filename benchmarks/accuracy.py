"""How much of a known text the local OCR path reads: characters, in order."""

from __future__ import annotations

import asyncio
import io
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pypdfium2
from PIL import Image

from examples.make import BOARD, FERRY, HERE, NOTICE, NOTICE_1994, REPORT_1987
from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest
from pipeline.providers.local import LocalUpstream
from pipeline.providers.local.pool import ChildPool

__all__ = ["Known", "Reading", "accuracy", "edits", "known_texts", "read_all"]

_OCR = Target(key="local/ocr@here", preset="local-ocr", model="local/ocr")
_LONG_SIDE_PX = 1540
_MARKS = re.compile(r"^[ |:-]*-{3}[ |:-]*$|^ {0,3}(?:#{1,6} |> |[-*+] )|\*\*|\\(?=\W)|\|", re.MULTILINE)
# pdfium marks with U+0002 what the typesetter put in.
_LINE_HYPHEN = re.compile(r"\x02|\u00ad|(?<=\w)-\s*\n")
_CLEAN = (("one-paragraph.pdf", 0), ("earnings.pdf", 0), ("two-columns.pdf", 0), ("owner-locked.pdf", 0))


@dataclass(frozen=True, slots=True)
class Known:
    """A page image and what stands on it."""

    name: str
    text: str
    image: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Reading:
    """What OCR made of a page: the share of its characters that are right, and how many there are."""

    name: str
    characters: int
    accuracy: float


def known_texts(corpus: Path | None) -> Iterator[Known]:
    """The examples' scans, drawn from these very texts; then digital pages as pictures, beside their text layers."""
    yield Known("sluice-inspection-1987.pdf, a scan", REPORT_1987, lambda: _page(HERE / "sluice-inspection-1987.pdf"))
    yield Known("slipway-notice.png, a photo", NOTICE, (HERE / "slipway-notice.png").read_bytes)
    yield Known("storm-inspection-zh.pdf, a Chinese scan", NOTICE_1994, lambda: _page(HERE / "storm-inspection-zh.pdf"))
    yield Known("ferry-notice-ko.pdf, a Korean scan", FERRY, lambda: _page(HERE / "ferry-notice-ko.pdf"))
    yield Known("the board in night-watch.docx", BOARD, _board)
    digital = [(HERE / "tide-gate-handbook.pdf", 1)]
    if corpus is not None:
        digital += [(corpus / name, index) for name, index in _CLEAN]
    for path, index in digital:
        with pypdfium2.PdfDocument(path) as document:
            text = document[index].get_textpage().get_text_bounded()
        yield Known(f"{path.name} p. {index + 1}, rendered", text, partial(_page, path, index))


def _page(path: Path, index: int = 0) -> bytes:
    with pypdfium2.PdfDocument(path) as document:
        sheet = document[index]
        image = sheet.render(scale=_LONG_SIDE_PX / max(sheet.get_size())).to_pil().convert("RGB")
    return _encoded(image, "JPEG")


def _board() -> bytes:
    from zipfile import ZipFile

    with ZipFile(HERE / "night-watch.docx") as package:
        image = Image.open(io.BytesIO(package.read("word/media/image1.png"))).convert("RGB")
    return _encoded(image, "PNG")


def _encoded(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def read_all(known: Sequence[Known], threads: int = 2) -> list[Reading]:
    """Read each page as the describe stage's last resort does, without any text layer to help."""

    async def read() -> list[Reading]:
        pool = ChildPool(size=1, threads=threads, job_timeout_s=180.0)
        try:
            upstream = LocalUpstream(pool=pool)
            found = []
            for one in known:
                request = ChatRequest("describe", (), {"image": one.image(), "text": "", "page_number": 1})
                reply = await upstream.chat(_OCR, request)
                found.append(Reading(one.name, len(folded(one.text)), accuracy(reply.text, one.text)))
                print(f"{found[-1].accuracy:.3f} of {one.name}", file=sys.stderr)
            return found
        finally:
            await pool.close()

    return asyncio.run(read())


def accuracy(read: str, truth: str) -> float:
    """1 less the edits per character of ``truth``; Markdown's marks and white space don't count. At least 0."""
    one, other = folded(read), folded(truth)
    return max(0.0, 1 - edits(one, other) / len(other)) if other else float(not one)


def folded(text: str) -> str:
    """What is compared: letters, digits and signs in their compatible forms, without spaces and line hyphens."""
    bare = unicodedata.normalize("NFKC", _MARKS.sub("", text))
    return "".join(_LINE_HYPHEN.sub("", bare).split())


def edits(one: str, other: str) -> int:
    """Levenshtein's distance."""
    letters = np.array([ord(char) for char in other], dtype=np.int32)
    steps = np.arange(len(other) + 1, dtype=np.int32)
    row = steps.copy()
    for number, char in enumerate(one, start=1):
        best = np.minimum(row[:-1] + (letters != ord(char)), row[1:] + 1)
        # Insertions run along the row: each is one more than the cell before it.
        row = np.minimum.accumulate(np.concatenate(([number], best)) - steps) + steps
    return int(row[-1])
