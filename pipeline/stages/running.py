"""Running headers and footers: what stands at the edge of page after page and belongs to none of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.domain.markdown import Block, BlockKind

__all__ = ["Aside", "without_running"]

# Blocks at a page's edge that may be running ones.
_EDGE_BLOCKS = 2
_EDGE_CHARS = 120
# How many of this many pages in a row must show it: left and right pages have their own, and chapters too.
_WINDOW_PAGES = 8
_REPEAT_SHARE = 0.5
_LEAST_PAGES = 3
# A header holds a date and a number or two; a table row or a formula, more.
_MAX_NUMBERS = 4
# "Page 3." is none.
_LEAST_SENTENCE = 12

_NUMBER = re.compile(r"\d+|(?<![^\W_])[ivxlc]+(?![^\W_])", re.IGNORECASE)
_MARKS = re.compile(r"[#*_`>|\s]+")
# Two words: "Page 3" is none worth finding, nor is "3 of 12".
_TELLING = re.compile(r"[^\W\d_]{3,}[\W\d_]+[^\W\d_]{3,}|[\u3040-\u9fff\uac00-\ud7af]{3}")
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_MAX_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Aside:
    """A line that was dropped, where it first stood: no part of the text, yet maybe all that names the document."""

    page: int
    text: str


def without_running(
    pages: Sequence[tuple[int, Sequence[Block]]],
) -> tuple[list[tuple[int, list[Block]]], list[Aside]]:
    """The pages without running headers and footers and without page numbers; and what of that says something, once.

    Paragraphs run when the same words stand at the same edge of at least half of eight pages in a row (three at
    least), one number aside that counts the pages. A heading that repeats so is kept where it comes first: it may be
    the one that the text stands under.
    """
    seen: defaultdict[tuple[bool, str], list[int]] = defaultdict(list)
    headed: defaultdict[tuple[bool, str], list[int]] = defaultdict(list)
    for number, found in pages:
        for index, top in _edges(found):
            block = found[index]
            if block.kind is BlockKind.HEADING:
                headed[top, _folded(block.text)].append(number)
            for shape in _shapes(block, number):
                seen[top, shape].append(number)
    place = {number: index for index, (number, _) in enumerate(pages)}

    def runs(numbers: Sequence[int]) -> bool:
        return _runs(sorted({place[number] for number in numbers}), len(pages))

    running = {key for key, numbers in seen.items() if runs(numbers)}
    first = {key: numbers[0] for key, numbers in headed.items() if runs(numbers)}
    asides: dict[str, Aside] = {}
    kept = [(number, _kept(number, found, running, first, asides)) for number, found in pages]
    return kept, list(asides.values())


def _edges(found: Sequence[Block]) -> Iterator[tuple[int, bool]]:
    """Indices of the blocks that stand at an edge, each with whether it is the upper one."""
    last = len(found) - _EDGE_BLOCKS
    for index, block in enumerate(found):
        if block.kind not in (BlockKind.PARAGRAPH, BlockKind.HEADING) or len(block.text) > _EDGE_CHARS:
            continue
        if index < _EDGE_BLOCKS:
            yield index, True
        if index >= last:
            yield index, False


def _kept(
    number: int,
    found: Sequence[Block],
    running: set[tuple[bool, str]],
    first: Mapping[tuple[bool, str], int],
    asides: dict[str, Aside],
) -> list[Block]:
    dropped = set()
    for index, top in _edges(found):
        block = found[index]
        if block.kind is BlockKind.HEADING:
            if first.get((top, _folded(block.text)), number) != number:
                dropped.add(index)
        elif shapes := {shape for shape in _shapes(block, number) if (top, shape) in running}:
            dropped.add(index)
            if _TELLING.search(block.text) and not shapes & asides.keys():
                asides[min(shapes)] = Aside(number, block.text)
    if len(dropped) == len(found):
        # A page says something: where nothing else is on it, its longest line is no header.
        telling = [index for index in dropped if _TELLING.search(found[index].text)]
        dropped.discard(max(telling, key=lambda index: len(found[index].text), default=-1))
    return [block for index, block in enumerate(found) if index not in dropped]


def _runs(places: Sequence[int], pages: int) -> bool:
    """Whether ``places`` (indices of pages, ascending) lie as close as those of a running line."""
    least = max(_LEAST_PAGES, int(_REPEAT_SHARE * min(_WINDOW_PAGES, pages)))
    return any(places[index + least - 1] - places[index] < _WINDOW_PAGES for index in range(len(places) - least + 1))


def _shapes(block: Block, page: int) -> set[str]:
    """A paragraph's words, and the same with one number as it relates to the page's."""
    if block.kind is not BlockKind.PARAGRAPH:
        return set()
    text = _folded(block.text)
    numbers = list(_NUMBER.finditer(text))
    shapes = {text} if any(map(str.isalnum, text)) else set()
    sentence = len(text) > _LEAST_SENTENCE and text.endswith((".", "。"))
    for match in numbers if len(numbers) <= _MAX_NUMBERS and not sentence else ():
        value = _value(match.group())
        if value is not None:
            shapes.add(f"{text[: match.start()]}\0{value - page}\0{text[match.end() :]}")
    return shapes


def _folded(text: str) -> str:
    return _MARKS.sub(" ", text).strip().casefold()


def _value(numeral: str) -> int | None:
    if len(numeral) > _MAX_DIGITS:
        return None
    if numeral[0].isdigit():
        return int(numeral)
    values = [_ROMAN[letter] for letter in numeral]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))
