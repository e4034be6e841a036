"""What a document is once it has been read: pages, and the chunks that search returns."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pipeline.domain.errors import Failure

__all__ = [
    "MEMBER_MARK",
    "Chunk",
    "Cues",
    "Limits",
    "PageFile",
    "ParsedDocument",
    "ParsedPage",
    "TextFormat",
    "TextQuality",
    "says_something",
    "usable_text",
]

_SIGNS = "\u2600"
"""Below are arrows, boxes and rules; from here on weather, chess and faces."""
MEMBER_MARK = "!/"
"""Stands in a source uri between an archive or a mail and what came out of it."""


class TextFormat(StrEnum):
    """How a page's own text is written: as a PDF's text layer, or already as Markdown (Office, HTML, Markdown, CSV).

    ``plain`` keeps lines as they stand; an empty line parts paragraphs, a tab parts the cells of a table row.
    """

    PLAIN = "plain"
    MARKDOWN = "markdown"


class TextQuality(StrEnum):
    """Whether a page's own text may be believed.

    ``partial``: visible and legible, but not all that the page says (some of its characters have no mapping, or it is
    a stamp on a scan). ``poor``: invisible, mismapped or garbage. ``none``: there is no text.
    """

    GOOD = "good"
    PARTIAL = "partial"
    POOR = "poor"
    NONE = "none"


def usable_text(text_layer: str, quality: str, description: str | None) -> str:
    """What of a page's own text goes into the document, beside what a vision model read (None: nothing has yet).

    A partial text stands in where the picture gave less than half as much: legible words are better than none.
    """
    if quality == TextQuality.GOOD:
        return text_layer
    if quality == TextQuality.PARTIAL and 2 * _letters(description or "") < _letters(text_layer):
        return text_layer
    return ""


def says_something(text: str) -> bool:
    """Whether there is anything to read: a letter, a digit, or a sign that is one by itself (an emoji, a star)."""
    return any(ch.isalnum() or (ch >= _SIGNS and unicodedata.category(ch) == "So") for ch in text)


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a parse may take; the config's ``limits`` (bytes, pages, pixels, seconds, MB)."""

    max_bytes: int = 104_857_600
    max_pages: int = 2000
    max_pixels: int = 40_000_000
    parse_seconds: int = 300
    parse_memory_mb: int = 1024
    max_inflate_ratio: int = 100
    max_archive_bytes: int = 1_073_741_824
    max_members: int = 10_000


@dataclass(frozen=True, slots=True)
class PageFile:
    """A page's image as the parse child left it: a file that the parent moves into the blob store."""

    path: Path
    media_type: str
    width_px: int
    height_px: int


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """One page of a parsed document. A document without pages of its own is cut into sections of bounded size.

    Attributes:
        number: 1-based.
        text: The text layer (``plain``), or the page's Markdown (``markdown``).
        has_figures: True when the page shows something that its text does not say.
        image: The rendered page; None when nothing will look at it (text-only formats, a blank page).
        blank: True when the page shows nothing at all; it costs no model call.
        failure: Why the parser could not take this page; the others are kept.
    """

    number: int
    text: str
    text_format: TextFormat
    text_quality: TextQuality
    has_figures: bool = False
    blank: bool = False
    width_pt: float = 0.0
    height_pt: float = 0.0
    image: PageFile | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What the parse stage makes of a file."""

    media_type: str
    title: str | None
    pages: tuple[ParsedPage, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that is searched and embedded.

    Attributes:
        ordinal: 1-based within its run.
        text: Markdown.
        heading: The heading path, outermost first.
        page_from: First page it was taken from (1-based, inclusive).
        page_to: Last page it was taken from (inclusive).
        tokens: Its length as the embedding model counts.
        aside: Running headers and footers that first stand beside it; found by their words, and no part of the text.
    """

    ordinal: int
    text: str
    heading: tuple[str, ...]
    page_from: int
    page_to: int
    tokens: int
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cues:
    """What the retrieval stage adds to a chunk so that it is found."""

    context: str
    keywords: tuple[str, ...]
    questions: tuple[str, ...]
