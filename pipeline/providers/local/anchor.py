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
_HOLE = re.compile("[\ufffd\ue000-\uf8ff]")
_MIN_RUN = 6
_CLOSE = 0.84
_MIN_LINE = 16
_SEED = 8
_SLACK = 3
_SAME_LINE = 0.88


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


def _stretch(wanted: str, layer: str, letters: str, at: list[int]) -> tuple[int, int] | None:
    """Where the layer says what a line says, or nearly: from and to, in ``letters``.

    Seeds taken from the line lead to the place; its ends are then moved to those of words, so that a first or last
    letter that was misread is mended too.
    """
    if len(wanted) < _MIN_RUN:
        return None
    if (exact := letters.find(wanted)) >= 0:
        return exact, exact + len(wanted)
    if len(wanted) < _MIN_LINE:
        return None
    for offset in range(0, len(wanted) - _SEED + 1, _SEED):
        found = letters.find(wanted[offset : offset + _SEED])
        if found < 0:
            continue
        window = max(0, found - offset - _SLACK), min(len(letters), found - offset + len(wanted) + _SLACK)
        blocks = difflib.SequenceMatcher(None, wanted, letters[slice(*window)], autojunk=False).get_matching_blocks()
        first, last = blocks[0], blocks[-2]
        start = _word_end(window[0] + first.b - first.a, layer, letters, at)
        end = _word_end(window[0] + last.b + last.size + len(wanted) - last.a - last.size, layer, letters, at)
        same = sum(block.size for block in blocks)
        if start is None or end is None or same < _SAME_LINE * max(len(wanted), end - start):
            continue
        # A hole in the layer says less than what was read there.
        return None if _HOLE.search(letters, start, end) else (start, end)
    return None


def _word_end(near: int, layer: str, letters: str, at: list[int]) -> int | None:
    """The boundary between words of the layer that is nearest, if it is near enough."""
    for step in range(_SLACK + 1):
        for place in (near - step, near + step):
            if place in (0, len(letters)):
                return place
            if 0 < place < len(letters) and any(ch.isspace() for ch in layer[at[place - 1] + 1 : at[place]]):
                return place
    return None


def _mended(
    text: str, layer: str, letters: str, at: list[int], known: set[str], vocabulary: dict[str, list[str]]
) -> str:
    wanted, _ = _compact(unicodedata.normalize("NFKC", text))
    span = _stretch(wanted, layer, letters, at)
    if span is not None:
        found = layer[at[span[0]] : at[span[1] - 1] + 1]
        return " ".join("".join(ch for ch in found if ch.isspace() or unicodedata.category(ch) != "Cc").split())

    def closest(match: re.Match[str]) -> str:
        word = match.group()
        if word in known:
            return word
        near = difflib.get_close_matches(word, vocabulary.get(word[0].casefold(), ()), n=1, cutoff=_CLOSE)
        return near[0] if near else word

    return _WORD.sub(closest, text)
