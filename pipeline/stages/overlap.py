"""What a chunk repeats of the one before it, where a section had to be cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pipeline.domain.markdown import BlockKind, sentences

__all__ = ["REPEATED", "tail"]

REPEATED = frozenset({BlockKind.PARAGRAPH, BlockKind.LIST, BlockKind.QUOTE})
"""What is read as running text: half a table or a function says nothing, and a heading is in the path anyway."""
_ITEM = re.compile(r"^(?=[ ]{0,3}(?:[-*+•]|\d{1,9}[.)])[ \t])", re.MULTILINE)
_CLAUSE = re.compile(r"[^,;:，、；：،]+[,;:，、；：،]*\s*|[,;:，、；：،]+\s*")
_WORD = re.compile(r"\S+\s*")


def tail(text: str, kind: BlockKind, most: int, measure: Callable[[str], int]) -> str:
    """The end of a piece, at most ``most`` long: whole items or sentences, else clauses, else words; maybe nothing.

    Args:
        text: The piece, of one block.
        kind: The block's.
        most: In the measure's unit.
        measure: The length of a text.
    """
    if most <= 0 or kind not in REPEATED:
        return ""
    # No token is that long: the rest can't be repeated, and need not be looked at.
    near = text[-32 * most :]
    ways: list[Sequence[str]] = [_ITEM.split(near)] if kind is BlockKind.LIST else []
    ways += [sentences(near), _CLAUSE.findall(near)]
    for parts in ways:
        kept = _last(parts, most, measure)
        if kept and kept != text.strip():
            return kept
    kept = _last_words(_WORD.findall(near), most, measure)
    return kept if kept != text.strip() else ""


def _last(parts: Sequence[str], most: int, measure: Callable[[str], int]) -> str:
    kept = ""
    for part in reversed(parts):
        longer = f"{part}{kept}"
        if measure(longer.strip()) > most:
            break
        kept = longer
    return kept.strip()


def _last_words(words: Sequence[str], most: int, measure: Callable[[str], int]) -> str:
    """As ``_last``, with a count for each halving and not for each word: one more word never counts less."""

    def end(count: int) -> str:
        return "".join(words[len(words) - count :]).strip()

    fits, least_too_many = 0, 1
    while least_too_many <= len(words) and measure(end(least_too_many)) <= most:
        fits, least_too_many = least_too_many, 2 * least_too_many
    least_too_many = min(least_too_many, len(words) + 1)
    while least_too_many - fits > 1:
        middle = (fits + least_too_many) // 2
        if measure(end(middle)) <= most:
            fits = middle
        else:
            least_too_many = middle
    return end(fits)
