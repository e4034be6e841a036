"""A page's text layer as the anchor of its OCR: it mends spelling and spacing, and stands in for unknown scripts."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Set
from dataclasses import replace

from pipeline.providers.local.reading import Line

__all__ = ["believe", "mend"]

_WORD = re.compile(r"[^\W\d_]{4,}")
_MIN_RUN = 6
_CLOSE = 0.84


def believe(text_layer: str, readable: Set[str]) -> bool:
    """Whether the text layer is in a script that the recogniser can't read, so that it says more than OCR could."""
    letters = [ch for ch in unicodedata.normalize("NFC", text_layer) if ch.isalpha()]
    if len(letters) < 10:
        return False
    return sum(ch not in readable for ch in letters) > 0.3 * len(letters)


def mend(lines: Iterable[Line], text_layer: str) -> list[Line]:
    """The lines as the text layer spells and spaces them, where it has the same letters or nearly so."""
    lines = list(lines)
    layer = unicodedata.normalize("NFKC", text_layer)
    if not layer.strip():
        return lines
    letters, at = _compact(layer)
    vocabulary: dict[str, list[str]] = {}
    known = set(_WORD.findall(layer))
    for word in sorted(known):
        vocabulary.setdefault(word[0].casefold(), []).append(word)
    return [replace(line, text=_mended(line.text, layer, letters, at, known, vocabulary)) for line in lines]


def _compact(text: str) -> tuple[str, list[int]]:
    """The text without white space and control characters, and where each of its characters stood."""
    kept = [(i, ch) for i, ch in enumerate(text) if not ch.isspace() and unicodedata.category(ch) != "Cc"]
    return "".join(ch for _, ch in kept), [i for i, _ in kept]


def _mended(
    text: str, layer: str, letters: str, at: list[int], known: set[str], vocabulary: dict[str, list[str]]
) -> str:
    wanted, _ = _compact(unicodedata.normalize("NFKC", text))
    if len(wanted) >= _MIN_RUN and (start := letters.find(wanted)) >= 0:
        found = layer[at[start] : at[start + len(wanted) - 1] + 1]
        return " ".join("".join(ch for ch in found if ch.isspace() or unicodedata.category(ch) != "Cc").split())

    def closest(match: re.Match[str]) -> str:
        word = match.group()
        if word in known:
            return word
        near = difflib.get_close_matches(word, vocabulary.get(word[0].casefold(), ()), n=1, cutoff=_CLOSE)
        return near[0] if near else word

    return _WORD.sub(closest, text)
