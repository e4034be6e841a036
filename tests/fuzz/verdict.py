"""What must come of any file: pages that can be stored, or a refusal of a known kind; soon, and no traceback."""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path

from PIL import Image

from pipeline.documents.sniff import sniff
from pipeline.domain.document import Limits, ParsedDocument
from pipeline.domain.errors import ChildDied, RejectedInput
from pipeline.stages.parse import parse

__all__ = ["LIMITS", "Verdict", "judged"]

LIMITS = Limits(max_bytes=8 << 20, max_pages=300, parse_seconds=20, parse_memory_mb=768)
_GRACE_S = 10.0
"""Above ``parse_seconds``: the machine is shared, and the child must start and be buried."""
_KINDS = frozenset({"corrupt", "unsafe", "unsupported", "too_large", "password_required"})


class Verdict:
    """How one file ended; ``wrong`` says what must never happen, and is empty where all is well."""

    def __init__(self, ending: str, wrong: str = "", detail: str = "") -> None:
        self.ending = ending
        self.wrong = wrong
        self.detail = detail

    def as_json(self) -> str:
        return json.dumps({"ending": self.ending, "wrong": self.wrong, "detail": self.detail}, indent=2)


def judged(path: Path, workdir: Path, limits: Limits = LIMITS) -> Verdict:
    """Sniff and parse a file as the worker does, and look at what came of it."""
    began = time.monotonic()
    try:
        document = parse(path, sniff(path), limits, workdir=workdir)
    except RejectedInput as exc:
        verdict = Verdict(exc.kind, "" if exc.kind in _KINDS else f"unknown kind {exc.kind!r}", exc.detail)
        if not exc.detail.strip():
            verdict.wrong = "it was refused without a reason"
    except ChildDied as exc:
        verdict = Verdict(exc.kind, f"the parse process died: {exc.detail}")
    except Exception as exc:  # what no test foresaw is what this looks for
        verdict = Verdict("crash", f"{type(exc).__name__}: {exc}", traceback.format_exc())
    else:
        verdict = Verdict("pages", _wrong_with(document, workdir, limits))
    taken_s = time.monotonic() - began
    if not verdict.wrong and taken_s > limits.parse_seconds + _GRACE_S:
        verdict.wrong = f"it took {taken_s:.0f} s; limits.parse_seconds = {limits.parse_seconds}"
    return verdict


def _wrong_with(document: ParsedDocument, workdir: Path, limits: Limits) -> str:
    numbers = [page.number for page in document.pages]
    if numbers != list(range(1, len(numbers) + 1)) or not numbers:
        return f"its pages are numbered {numbers[:20]}"
    if len(numbers) > limits.max_pages:
        return f"{len(numbers)} pages"
    texts = (document.title or "", *(page.text for page in document.pages))
    return next(filter(None, map(_wrong_with_text, texts)), "") or _wrong_with_pages(document, workdir, limits)


def _wrong_with_text(words: str) -> str:
    if "\0" in words:
        return "a text holds NUL, which no database stores"
    try:
        words.encode("utf-8")
    except UnicodeEncodeError as exc:
        return f"a text can't be stored: {exc}"
    return ""


def _wrong_with_pages(document: ParsedDocument, workdir: Path, limits: Limits) -> str:
    for page in document.pages:
        if page.failure is not None and page.failure.kind not in _KINDS:
            return f"page {page.number} failed with kind {page.failure.kind!r}"
        if page.image is not None:
            if page.image.path.parent != workdir.resolve():
                return f"an image lies outside its folder: {page.image.path}"
            with Image.open(page.image.path) as image:
                if image.width * image.height > limits.max_pixels:
                    return f"an image of {image.size} pixels"
    return ""
