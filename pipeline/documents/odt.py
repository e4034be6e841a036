"""Works around what a reader loses of an ODT's text (kreuzberg 4.10.4), by rewriting its content before it sees it.

Words around tabs and spaces of their own kind were joined, and those of two paragraphs in a cell; numbered paragraphs
and words with a reading above them (ruby) were left out.
"""

from __future__ import annotations

import re

from pipeline.documents.package import in_utf8, rewritten

__all__ = ["keep_text"]

_CONTENT = re.compile(r"content\.xml$")
_GAP = re.compile(r"<text:(?:tab|s)\b[^<>]*/>|(?=</text:(?:p|h)>)")
_AROUND = re.compile(r"</?text:(?:numbered-paragraph|ruby|ruby-base)\b[^<>]*>")
_READING = re.compile(r"<text:ruby-text\b[^<>]*>([^<>]*)</text:ruby-text>")


def keep_text(odt: bytes) -> bytes:
    """Rewrite an ODT so that nothing of its text is lost."""
    return rewritten(odt, _CONTENT, in_utf8(_kept))


def _kept(content: str) -> str:
    return _GAP.sub(" ", _AROUND.sub("", _READING.sub(r" (\1)", content)))
