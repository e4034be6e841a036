"""The order in which a page's pieces are read.

Producers write the content stream for reading nearly always, so its order is kept unless it jumps about; then blocks
are ordered by where they stand (recursive cuts along white gutters, Nagy and Seth 1984).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from pipeline.documents.pieces import CELL_GAP, Piece, share_row

__all__ = ["in_reading_order", "with_notes"]

_LONG_CELL = 25
_LINE_PIECES = 4
_MANY_NOTES = 1000
# In heights of a line: the boxes of lines that are set close overlap by less.
_LINES_TOUCH = 0.3


def in_reading_order(pieces: list[Piece]) -> list[Piece]:
    """Keep the stream's order, or order by place where that one is not for reading."""
    return _by_place(pieces) if _is_disordered(pieces) else _with_stragglers(pieces)


def with_notes(ordered: list[Piece], notes: list[Piece]) -> list[Piece]:
    """Put what was written on a page (the values of a form) among its own pieces, which are in their order."""
    if len(notes) > _MANY_NOTES:
        return _by_place([*ordered, *notes])
    whole = list(ordered)
    for note in notes:
        whole.insert(_place_of(note, whole), note)
    return whole


def _place_of(note: Piece, ordered: Sequence[Piece]) -> int:
    """Behind what stands to its left, else before the first that stands below it."""
    beside = [(one.x1, at) for at, one in enumerate(ordered) if one.x1 <= note.x0 and share_row(one, note)]
    if beside:
        return max(beside)[1] + 1
    return next((at for at, one in enumerate(ordered) if _is_above(note, one)), len(ordered))


def _with_stragglers(pieces: list[Piece]) -> list[Piece]:
    """Words that come before the line above theirs (a paragraph's first word, often) are put back into their line."""
    ordered: list[Piece] = []
    held: Piece | None = None
    for at, piece in enumerate(pieces):
        if held is not None and piece.y1 > held.y0 + 0.5 * held.height:
            ordered.append(held)
            held = None
        if held is None and _is_ahead(pieces, at):
            held = piece
        else:
            ordered.append(piece)
    return ordered if held is None else [*ordered, held]


def _is_ahead(pieces: Sequence[Piece], at: int) -> bool:
    """Whether only the line above stands between a piece and the next one of its own line."""
    piece = pieces[at]
    for above, other in enumerate(pieces[at + 1 : at + 2 + _LINE_PIECES]):
        if share_row(piece, other):
            return above > 0 and 0 <= other.x0 - piece.x1 <= CELL_GAP * piece.height
        if other.y1 > piece.y0 + 0.5 * piece.height or piece.y0 - other.y1 > 2 * piece.height:
            return False
    return False


def _is_disordered(pieces: Sequence[Piece]) -> bool:
    """Whether the stream's order is not one for reading: it goes back up the page without going to a next column."""
    back = across = 0
    for one, other in pairwise(pieces):
        if other.x0 < one.x1 and one.y0 - other.y1 > 0.5 * max(one.height, other.height):
            back += 1
        # Long texts side by side are the columns of a page that was written line by line across them.
        if len(one.text) >= _LONG_CELL and len(other.text) >= _LONG_CELL and share_row(one, other):
            across += 1
    return (
        _is_upwards(pieces)
        or (back > 3 and back > 0.06 * len(pieces))
        or (across > 5 and across > 0.3 * len(pieces) / 2)
    )


def _is_upwards(pieces: Sequence[Piece]) -> bool:
    """Whether the lines come from the bottom of the page up."""
    steps = [(one, other) for one, other in pairwise(pieces) if other.y0 < one.y0]
    if len(steps) < 2:
        # So it is with most pages: no need to look at each of their steps.
        return False
    up = sum(_is_above(other, one) for one, other in steps)
    return up > 1 and up > sum(_is_above(one, other) for one, other in pairwise(pieces))


def _is_above(one: Piece, other: Piece) -> bool:
    """Whether a line stands above another one; raised signs and what stands beside it don't."""
    return one.y1 - other.y0 < _LINES_TOUCH * min(one.height, other.height) and one.x0 < other.x1 and other.x0 < one.x1


def _by_place(pieces: list[Piece], depth: int = 0) -> list[Piece]:
    """Order by recursive cuts: columns where a white gutter runs through, else above before below."""
    if len(pieces) < 2 or depth > 40:
        return _by_row(pieces)
    for cut in (_columns, _bands):
        parts = cut(pieces)
        if len(parts) > 1:
            return [piece for part in parts for piece in _by_place(part, depth + 1)]
    return _by_row(pieces)


def _by_row(pieces: Sequence[Piece]) -> list[Piece]:
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda one: (one.y0 + one.y1, one.x0)):
        last = rows[-1][-1] if rows else None
        if last is not None and share_row(last, piece):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [piece for row in rows for piece in sorted(row, key=lambda one: one.x0)]


def _columns(pieces: list[Piece]) -> list[list[Piece]]:
    """Left and right of the widest vertical gutter, if both sides are columns of running text and not table cells."""
    height = median(piece.height for piece in pieces)
    gutter = _widest_gap(sorted((piece.x0, piece.x1) for piece in pieces), 0.8 * height)
    if gutter is None:
        return [pieces]
    parts = [[one for one in pieces if one.x1 <= gutter], [one for one in pieces if one.x1 > gutter]]
    return parts if all(_is_prose(part) for part in parts) else [pieces]


def _is_prose(pieces: Sequence[Piece]) -> bool:
    if len(pieces) < 3:
        return False
    width = max(one.x1 for one in pieces) - min(one.x0 for one in pieces)
    filled = sum(one.x1 - one.x0 for one in pieces) / (len(pieces) * max(width, 1.0))
    return filled > 0.5 and median(len(one.text) for one in pieces) >= 12


def _bands(pieces: list[Piece]) -> list[list[Piece]]:
    """Above and below the widest horizontal gap."""
    height = median(piece.height for piece in pieces)
    gap = _widest_gap(sorted((piece.y0, piece.y1) for piece in pieces), 0.1 * height)
    if gap is None:
        return [pieces]
    return [[one for one in pieces if one.y1 <= gap], [one for one in pieces if one.y1 > gap]]


def _widest_gap(spans: Sequence[tuple[float, float]], least: float) -> float | None:
    """Where the widest stretch starts that no span covers; None when none is as wide as ``least``."""
    best, at, reach = least, None, spans[0][1]
    for start, end in spans[1:]:
        if start - reach > best:
            best, at = start - reach, reach
        reach = max(reach, end)
    return at
