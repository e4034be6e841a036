"""Writes a page's pieces as plain text: lines kept, paragraphs parted, the cells of tables under each other."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from statistics import median

from pipeline.documents.pieces import Piece, Row, adjoins, share_row

__all__ = ["as_rows", "heading_of", "write"]

# In heights of the line.
_PARAGRAPH_GAP = 0.75
_SIZE_CHANGE = 0.18
_TABLE_LEADING = 2.2
_FEW_ROWS = 3
_HEADING_CHARS = 200


def as_rows(pieces: Sequence[Piece]) -> list[Row]:
    """Put pieces that follow each other side by side into rows."""
    rows: list[Row] = []
    for piece in pieces:
        last = rows[-1].pieces[-1] if rows else None
        if last is not None and piece.x0 >= last.x1 - 1 and adjoins(last, piece):
            last.take(piece)
        elif last is not None and share_row(last, piece):
            rows[-1].pieces.append(piece)
        else:
            rows.append(Row([piece]))
    return rows


def write(rows: Sequence[Row]) -> str:
    """Rows as text: an empty line between paragraphs, a tab between the cells of a table row."""
    parts: list[str] = []
    index = 0
    while index < len(rows):
        end = _table_end(rows, index)
        if parts:
            parts.append("\n\n" if end > index + 1 or _starts_paragraph(rows[index - 1], rows[index]) else "\n")
        if end > index + 1:
            parts.append("\n".join(_aligned(rows[index:end])))
            if end < len(rows):
                # Whatever follows, the table ends here.
                parts.append("\n\n" if not _starts_paragraph(rows[end - 1], rows[end]) else "")
        else:
            cells = [piece.text for piece in rows[index].pieces]
            parts.append(("\t" if len(cells) >= 3 and not _is_justified(rows, index) else " ").join(cells))
        index = max(end, index + 1)
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))


def _table_end(rows: Sequence[Row], start: int) -> int:
    """Where the table that begins at ``start`` ends: rows of at least two cells, evenly spaced."""
    if len(rows[start].pieces) < 2:
        return start
    end = start
    while end < len(rows) and len(rows[end].pieces) >= 2:
        if end > start:
            gap = rows[end].y0 - rows[end - 1].y1
            if not -0.5 * rows[end].height <= gap <= _TABLE_LEADING * rows[end].height:
                break
        end += 1
    return end


def _is_justified(rows: Sequence[Row], index: int) -> bool:
    """A line whose words were spread to end where the unbroken line beside it ends."""
    row = rows[index]
    beside = [rows[near] for near in (index - 1, index + 1) if 0 <= near < len(rows)]
    return any(len(near.pieces) == 1 and abs(near.x1 - row.x1) < row.height for near in beside)


def _aligned(rows: Sequence[Row]) -> list[str]:
    """Rows with their cells under each other: an empty cell stays empty instead of moving the others up."""
    columns = _column_spans(rows)
    if len(columns) < max(len(row.pieces) for row in rows):
        # Cells overlap from row to row; what is certain is only their order.
        return ["\t".join(piece.text for piece in row.pieces) for row in rows]
    starts, ends = [x0 for x0, _ in columns], [x1 for _, x1 in columns]
    lines = []
    for row in rows:
        cells = [""] * len(columns)
        for piece in row.pieces:
            is_over_two = bisect_left(starts, piece.x1) - bisect_right(ends, piece.x0) > 1
            # A heading that was taken for one with its neighbour's is parted again, word by word.
            for x0, word in piece.placed_words() if is_over_two else [(piece.x0, piece.text)]:
                at = min(bisect_left(ends, x0), len(columns) - 1)
                cells[at] = f"{cells[at]} {word}".strip()
        lines.append("\t".join(cells))
    return lines


def _column_spans(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The stretches that cells stand in; a cell that lies over two cells of another row says nothing about columns."""
    spans_two = _over_two(rows)
    spans = [(piece.x0, piece.x1) for row in rows for piece in row.pieces if not spans_two(piece)]
    columns: list[tuple[float, float]] = []
    for x0, x1 in sorted(spans):
        if columns and x0 <= columns[-1][1]:
            columns[-1] = columns[-1][0], max(columns[-1][1], x1)
        else:
            columns.append((x0, x1))
    return columns


def _over_two(rows: Sequence[Row]) -> Callable[[Piece], bool]:
    """Tells whether a piece stands over two neighbours of some row, without a look at every row for every piece."""
    gaps: list[tuple[float, float]] = []
    for row in rows:
        side_by_side = sorted(row.pieces, key=lambda piece: piece.x0)
        gaps += [(left.x1, right.x0) for left, right in pairwise(side_by_side)]
    gaps.sort()
    left_ends = [left_end for left_end, _ in gaps]
    # The leftmost right-hand neighbour from each gap on.
    nearest = list(accumulate((right_start for _, right_start in reversed(gaps)), min))[::-1]

    def spans_two(piece: Piece) -> bool:
        at = bisect_right(left_ends, piece.x0)
        return at < len(nearest) and nearest[at] < piece.x1

    return spans_two


def _starts_paragraph(above: Row, row: Row) -> bool:
    higher, own = above.height, row.height
    smaller, larger = (own, higher) if own < higher else (higher, own)
    gap = row.y0 - above.y1
    if gap > _PARAGRAPH_GAP * smaller:
        return True
    height = larger if larger > 1.0 else 1.0
    if larger - smaller > _SIZE_CHANGE * height and len(above.pieces) == len(row.pieces) == 1:
        return True
    # Back up the page: a column or a box begins; a sentence may well run on into it.
    return gap < -1.5 * height and above.pieces[-1].text[-1:] in ".!?:;。！？："


def heading_of(rows: Sequence[Row]) -> str | None:
    """The largest text among the page's first rows, if it is larger than the page's usual.

    A page of a few rows has no usual size: where they are all alike, the first one stands for it.
    """
    usual = median([row.height for row in rows])
    top = [row for row in rows[:12] if len(row.pieces) == 1 and sum(map(str.isalpha, row.pieces[0].text)) >= 3]
    if not top:
        return None
    largest = max(row.height for row in top)
    if largest < 1.15 * usual:
        return top[0].pieces[0].text[:_HEADING_CHARS] if len(rows) <= _FEW_ROWS else None
    words: list[str] = []
    for row in top:
        if row.height >= 0.92 * largest:
            words.append(row.pieces[0].text)
        elif words:
            break
    title = " ".join(words)
    return title if len(title) <= _HEADING_CHARS else None
