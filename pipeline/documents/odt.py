"""Works around what a reader loses of the text of an ODT or ODS (kreuzberg 4.10.4), by rewriting it beforehand.

Words around tabs and spaces of their own kind were joined, and those of two paragraphs in a cell; numbered paragraphs
and words with a reading above them (ruby) were left out. So was every cell of a sheet with a long gap between its rows.
"""

from __future__ import annotations

import re

from pipeline.documents.package import in_utf8, rewritten

__all__ = ["keep_text"]

_CONTENT = re.compile(r"content\.xml$")
_GAP = re.compile(r"<text:(?:tab|s)\b[^<>]*/>|(?=</text:(?:p|h)>\s*<text:|<text:line-break\b)")
_AROUND = re.compile(r"</?text:(?:numbered-paragraph|ruby|ruby-base)\b[^<>]*>")
_READING = re.compile(r"<text:ruby-text\b[^<>]*>([^<>]*)</text:ruby-text>")
_EMPTY_ROW = re.compile(
    r"<table:table-row\b[^<>]*(?:/>|>\s*"
    # A value that no paragraph shows is written on its cell.
    r"(?:<table:(?:covered-)?table-cell\b(?:(?!office:)[^<>])*(?:/>|></table:(?:covered-)?table-cell>)\s*)*"
    r"</table:table-row>)"
)
_TIMES = re.compile(r"\stable:number-rows-repeated=(?:\"\d+\"|'\d+')")


def keep_text(package: bytes) -> bytes:
    """Rewrite an ODT or ODS so that nothing of its text is lost."""
    return rewritten(package, _CONTENT, in_utf8(_kept))


def _kept(content: str) -> str:
    # Of rows on rows without a cell, one is gap enough.
    content = _EMPTY_ROW.sub(lambda row: _TIMES.sub("", row[0], count=1), content)
    return _GAP.sub(" ", _AROUND.sub("", _READING.sub(r" (\1)", content)))
