"""Writes a page's pieces as plain text: lines kept, paragraphs parted, the cells of tables under each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    lines = []
    for row in rows:
        cells = [""] * len(columns)
        for piece in row.pieces:
            over = [index for index, (x0, x1) in enumerate(columns) if piece.x0 < x1 and piece.x1 > x0]
            # A heading that was taken for one with its neighbour's is parted again, word by word.
            for x0, word in piece.placed_words() if len(over) > 1 else [(piece.x0, piece.text)]:
                at = next((index for index, (_, x1) in enumerate(columns) if x0 <= x1), len(columns) - 1)
                cells[at] = f"{cells[at]} {word}".strip()
        lines.append("\t".join(cells))
    return lines


def _column_spans(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The stretches that cells stand in; a cell that lies over two cells of another row says nothing about columns."""
    spans = [(piece.x0, piece.x1) for row in rows for piece in row.pieces if not _spans_others(piece, rows)]
    columns: list[tuple[float, float]] = []
    for x0, x1 in sorted(spans):
        if columns and x0 <= columns[-1][1]:
            columns[-1] = columns[-1][0], max(columns[-1][1], x1)
        else:
            columns.append((x0, x1))
    return columns


def _spans_others(piece: Piece, rows: Sequence[Row]) -> bool:
    return any(sum(other.x0 < piece.x1 and other.x1 > piece.x0 for other in row.pieces) > 1 for row in rows)


def _starts_paragraph(above: Row, row: Row) -> bool:
    height = max(above.height, row.height, 1.0)
    gap = row.y0 - above.y1
    if gap > _PARAGRAPH_GAP * min(above.height, row.height):
        return True
    if abs(above.height - row.height) > _SIZE_CHANGE * height and len(above.pieces) == len(row.pieces) == 1:
        return True
    # Back up the page: a column or a box begins; a sentence may well run on into it.
    return gap < -1.5 * height and above.pieces[-1].text[-1:] in ".!?:;。！？："


def heading_of(rows: Sequence[Row]) -> str | None:
    """The largest text among the page's first rows, if it is larger than the page's usual.

    A page of a few rows has no usual size: where they are all alike, the first one stands for it.
    """
    usual = median(row.height for row in rows)
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
