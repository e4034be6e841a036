"""Words on a page with their boxes: pieces of lines, and rows of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter, sub

__all__ = ["CELL_GAP", "Piece", "Row", "adjoins", "overlap", "pieces_of_line", "share_row"]

# In heights of the line: a wider gap parts cells, and more overlap than that makes two pieces neighbours.
CELL_GAP = 1.25
_SAME_ROW = 0.5
_TOUCH = 0.1
_RAISED = 0.15
_AS_HIGH = 0.8
_CLOSING = frozenset(")]},.;:!?")


@dataclass(slots=True)
class Piece:
    """Words on one line with no wide gap between them; y grows downwards."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    words: list[tuple[float, str]] = field(default_factory=list)

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    def take(self, other: Piece) -> None:
        """Go on with ``other``; a raised sign doesn't make the line higher."""
        if not self.words:
            self.words = [(self.x0, self.text)]
        words = other.placed_words()
        space = " "
        if words[0][1][0] in _CLOSING and 0 <= other.x0 - self.x1 + _TOUCH * self.height <= 2 * _TOUCH * self.height:
            # After a raised sign the rest of a word comes by itself.
            start, head = self.words.pop()
            words = [(start, head + words[0][1]), *words[1:]]
            space = ""
        self.words.extend(words)
        self.text = f"{self.text}{space}{other.text}"
        self.x0, self.x1 = min(self.x0, other.x0), max(self.x1, other.x1)
        if other.height > _AS_HIGH * self.height:
            self.y0, self.y1 = min(self.y0, other.y0), max(self.y1, other.y1)

    def placed_words(self) -> list[tuple[float, str]]:
        """Where each word begins, and the word."""
        return self.words or [(self.x0, self.text)]


@dataclass(slots=True)
class Row:
    """Pieces that stand side by side."""

    pieces: list[Piece] = field(default_factory=list)

    @property
    def x0(self) -> float:
        return min([piece.x0 for piece in self.pieces])

    @property
    def x1(self) -> float:
        return max([piece.x1 for piece in self.pieces])

    @property
    def y0(self) -> float:
        return min([piece.y0 for piece in self.pieces])

    @property
    def y1(self) -> float:
        return max([piece.y1 for piece in self.pieces])

    @property
    def height(self) -> float:
        if len(self.pieces) == 1:
            return self.pieces[0].y1 - self.pieces[0].y0
        return max([piece.y1 - piece.y0 for piece in self.pieces])


def pieces_of_line(
    words: Sequence[str],
    lefts: Sequence[float],
    tops: Sequence[float],
    rights: Sequence[float],
    bottoms: Sequence[float],
    height_pt: float,
) -> list[Piece]:
    """Make pieces of a line's words, by the rules of ``adjoins`` and ``Piece.take`` and in a fraction of their time.

    A page has hundreds of words; this is where the reading of a text layer spends its time.

    Args:
        words: At least one.
        lefts: Of each word's first character and of its last, in turns; so for the other sides, whose y grows upwards.
        height_pt: The page's, from which y is counted downwards.
    """
    x0s, x1s = lefts[0::2], rights[1::2]
    if _is_even(words, lefts, tops, rights, bottoms, height_pt):
        placed = list(zip(x0s, words, strict=True)) if len(words) > 1 else []
        return [Piece(" ".join(words), x0s[0], height_pt - tops[0], x1s[-1], height_pt - bottoms[0], placed)]
    line = _LineBuilder()
    for at, word in enumerate(words):
        first, last = 2 * at, 2 * at + 1
        line.add(
            word,
            min(lefts[first], lefts[last]),
            height_pt - max(tops[first], tops[last]),
            max(rights[first], rights[last]),
            height_pt - min(bottoms[first], bottoms[last]),
        )
    return line.pieces()


_FIRST = itemgetter(0)


def _is_even(
    words: Sequence[str],
    lefts: Sequence[float],
    tops: Sequence[float],
    rights: Sequence[float],
    bottoms: Sequence[float],
    height_pt: float,
) -> bool:
    """Whether a line is of one size, runs from left to right and has no wide gap: then it is one piece as it stands."""
    height = (height_pt - bottoms[0]) - (height_pt - tops[0])
    return (
        height > 0
        and tops.count(tops[0]) == len(tops)
        and bottoms.count(bottoms[0]) == len(bottoms)
        and lefts[0] <= rights[0]
        and sorted(lefts) == lefts
        and sorted(rights) == rights
        and max(map(sub, lefts[2::2], rights[1::2]), default=0.0) <= CELL_GAP * max(height, 1.0)
        and _CLOSING.isdisjoint(map(_FIRST, words))
    )


class _LineBuilder:
    """Makes pieces of a line's words one by one."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._words: list[tuple[float, str]] = []
        self._x0 = self._y0 = self._x1 = self._y1 = 0.0

    def add(self, word: str, x0: float, y0: float, x1: float, y1: float) -> None:
        """Take the next word and its box."""
        if not self._words:
            self._begin(word, x0, y0, x1, y1)
            return
        height, own = y1 - y0, self._y1 - self._y0
        high = height if height > own else own
        low = own if height > own else height
        gap = x0 - self._x1 if x0 - self._x1 > self._x0 - x1 else self._x0 - x1
        shared = (y1 if y1 < self._y1 else self._y1) - (y0 if y0 > self._y0 else self._y0)
        if gap > CELL_GAP * (high if high > 1.0 else 1.0) or shared <= _RAISED * low:
            self._end()
            self._begin(word, x0, y0, x1, y1)
            return
        if word[0] in _CLOSING and 0 <= x0 - self._x1 + _TOUCH * own <= 2 * _TOUCH * own:
            start, head = self._words.pop()
            self._words.append((start, head + word))
        else:
            self._words.append((x0, word))
        if x0 < self._x0:
            self._x0 = x0
        if x1 > self._x1:
            self._x1 = x1
        if height > _AS_HIGH * own:
            if y0 < self._y0:
                self._y0 = y0
            if y1 > self._y1:
                self._y1 = y1

    def pieces(self) -> list[Piece]:
        """The line's pieces; the builder is used up."""
        if self._words:
            self._end()
        return self._pieces

    def _begin(self, word: str, x0: float, y0: float, x1: float, y1: float) -> None:
        self._words = [(x0, word)]
        self._x0, self._y0, self._x1, self._y1 = x0, y0, x1, y1

    def _end(self) -> None:
        text = " ".join([word for _, word in self._words])
        words = self._words if len(self._words) > 1 else []
        self._pieces.append(Piece(text, self._x0, self._y0, self._x1, self._y1, words))


def adjoins(last: Piece, word: Piece) -> bool:
    """Whether a word goes on with the piece before it."""
    height = max(last.height, word.height, 1.0)
    gap = max(word.x0 - last.x1, last.x0 - word.x1)
    # Raised and lowered signs overlap their line a little; the next line does not.
    return gap <= CELL_GAP * height and overlap(last, word) > _RAISED * min(last.height, word.height)


def overlap(one: Piece, other: Piece) -> float:
    """How much of their heights two pieces share, in points; negative when one is below the other."""
    return min(one.y1, other.y1) - max(one.y0, other.y0)


def share_row(one: Piece, other: Piece) -> bool:
    """Whether two pieces stand side by side."""
    return (one.x1 <= other.x0 or other.x1 <= one.x0) and overlap(one, other) >= _SAME_ROW * min(
        one.height, other.height
    )
