"""From the lines that OCR found to a page's text: columns in reading order, headings, paragraphs, tables.

Pure geometry over boxes in pixels; the recogniser's models are elsewhere (``ocr.py``).
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.providers.local.words import is_spaceless

__all__ = ["Line", "transcribe"]

_BULLET = re.compile(r"^(?:[•●○▪■◦‣·–—*-]\s*\S|\(?(?:\d{1,3}|[a-zA-Z])[.)]\s+\S)")
_MIN_COLUMN_CELLS = 4
_MIN_COLUMN_CHARS = 18
_MIN_ASIDE_CELLS = 6
_SLANTED_DEG = 15.0


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of one line of text.

    Attributes:
        box: Its corners (px) from the top left, clockwise.
        score: How sure the recogniser is, 0 to 1.
    """

    box: tuple[tuple[float, float], ...]
    text: str
    score: float = 1.0


@dataclass(frozen=True, slots=True)
class _Cell:
    """A line's upright rectangle (px); ``h`` is the height of its letters."""

    x0: float
    y0: float
    x1: float
    y1: float
    h: float
    text: str

    @property
    def cx(self) -> float:
        return (self.x0 + self.x1) / 2

    @property
    def cy(self) -> float:
        return (self.y0 + self.y1) / 2


_Row = list[_Cell]


@dataclass(frozen=True, slots=True)
class _Body:
    """The size of most letters (px)."""

    h: float
    w: float

    def times(self, cell: _Cell) -> float:
        """How many times larger a cell's letters are. Boxes are rough in height; their length evens that out."""
        return math.sqrt((cell.h / self.h) * (_letter_width(cell) / self.w))


def transcribe(lines: Sequence[Line], width: int, height: int) -> str:
    """The page as text: blocks apart by a blank line, headings as ``#``, tables in Markdown, lines kept as lines.

    Args:
        lines: What was read, in any order.
        width: Of the page (px).
        height: Of the page (px).
    """
    cells = _level(lines, width, height)
    if not cells:
        return ""
    body = _Body(_body_height(cells), statistics.median(_letter_width(c) for c in cells))
    blocks: list[str] = []
    for column in _columns(cells):
        blocks.extend(_render(column, body))
    return "\n\n".join(blocks)


def _level(lines: Sequence[Line], width: int, height: int) -> list[_Cell]:
    """Upright rectangles, with the slant of the whole page taken out."""
    slants = [_angle(line) for line in lines if _length(line) > 5 * _letter_height(line)]
    slants = [s for s in slants if abs(s) < math.radians(_SLANTED_DEG)]
    slant = statistics.median(slants) if slants else 0.0
    cos, sin = math.cos(-slant), math.sin(-slant)
    cells = []
    for line in lines:
        points = [
            (
                (x - width / 2) * cos - (y - height / 2) * sin,
                (x - width / 2) * sin + (y - height / 2) * cos,
            )
            for x, y in line.box
        ]
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        h = _letter_height(line)
        y0, y1 = min(ys), max(ys)
        if abs(_angle(line) - slant) > math.radians(_SLANTED_DEG) or y1 - y0 > 1.6 * h:
            # A slanted label would seem as tall as it is long, and join rows that have nothing to do with it.
            middle = (y0 + y1) / 2
            y0, y1 = middle - h / 2, middle + h / 2
        text = " ".join(line.text.split())
        if text:
            cells.append(_Cell(min(xs), y0, max(xs), y1, h, text))
    return cells


def _angle(line: Line) -> float:
    (ax, ay), (bx, by) = line.box[0], line.box[1]
    return math.atan2(by - ay, bx - ax)


def _length(line: Line) -> float:
    return math.dist(line.box[0], line.box[1])


def _letter_height(line: Line) -> float:
    return max(1.0, min(math.dist(line.box[0], line.box[3]), math.dist(line.box[1], line.box[2])))


def _letter_width(cell: _Cell) -> float:
    capitals = 1.25 if cell.text.isupper() else 1.0
    return (cell.x1 - cell.x0) / (max(_extent(cell.text), 1) * capitals)


def _body_height(cells: Iterable[_Cell]) -> float:
    """The height that most letters have."""
    ordered = sorted(cells, key=lambda c: c.h)
    half = sum(len(c.text) for c in ordered) / 2
    seen = 0
    for cell in ordered:
        seen += len(cell.text)
        if seen >= half:
            return cell.h
    return ordered[-1].h


def _columns(cells: list[_Cell]) -> list[list[_Cell]]:
    """Parts of the page in reading order, none of which has columns of prose in it."""
    gutter = _gutter(cells)
    if gutter is None:
        return [cells] if cells else []
    x, top, bottom = gutter
    above = [c for c in cells if c.cy < top]
    below = [c for c in cells if c.cy > bottom]
    left = [c for c in cells if top <= c.cy <= bottom and c.cx < x]
    right = [c for c in cells if top <= c.cy <= bottom and c.cx >= x]
    return [part for side in (above, left, right, below) for part in _columns(side)]


def _gutter(cells: list[_Cell]) -> tuple[float, float, float] | None:
    """The clear strip that parts most prose: its x, and the y of the first and last line beside it."""
    if len(cells) < 2 * _MIN_COLUMN_CELLS:
        return None
    unit = _body_height(cells)
    reach = 0.6 * unit  # the detector draws some boxes longer than their line
    ordered = sorted(cells, key=lambda c: c.cy)
    best: tuple[float, float, float] | None = None
    best_score = 0
    for x in sorted({round(c.x1 + 0.1 * unit) for c in cells}):
        band: list[_Cell] = []
        for cell in [*ordered, None]:
            if cell is not None and not _crosses(cell, x, reach):
                band.append(cell)
                continue
            score = _parted(band, x)
            if score > best_score:
                best, best_score = (x, band[0].cy, band[-1].cy), score
            band = []
    return best


def _crosses(cell: _Cell, x: float, reach: float) -> bool:
    spare = min(reach, 0.2 * (cell.x1 - cell.x0))
    return cell.x0 + spare < x < cell.x1 - spare


def _parted(band: list[_Cell], x: float) -> int:
    """How many letters stand on the poorer side of ``x``; 0 when the sides are not two columns of prose."""
    left = [c for c in band if c.cx < x]
    right = [c for c in band if c.cx >= x]
    if not (_is_prose(left) and _is_prose(right)) and not _independent(left, right):
        return 0
    top = max(left[0].y0, right[0].y0)
    bottom = min(left[-1].y1, right[-1].y1)
    shorter = min(left[-1].y1 - left[0].y0, right[-1].y1 - right[0].y0)
    if bottom - top < 0.5 * shorter:
        return 0
    # Scraps like a page's number below both columns don't count, or they would draw the strip to one side.
    return min(sum(len(c.text) for c in side if len(c.text) > 4) for side in (left, right))


def _independent(left: list[_Cell], right: list[_Cell]) -> bool:
    """Prose beside something of its own (a box, a margin): a table's rows would stand level with each other."""
    if min(len(left), len(right)) < _MIN_ASIDE_CELLS or not (_is_prose(left, 0.75) or _is_prose(right, 0.75)):
        return False
    level = sum(any(abs(a.cy - b.cy) < 0.2 * a.h for b in left) for a in right)
    return level < 0.6 * len(right)


def _is_prose(side: list[_Cell], filled: float = 0.4) -> bool:
    """Lines that run on from edge to edge, and not a table's cells."""
    if len(side) < _MIN_COLUMN_CELLS:
        return False
    if statistics.median(_extent(c.text) for c in side) < _MIN_COLUMN_CHARS:
        return False
    span = max(c.x1 for c in side) - min(c.x0 for c in side)
    return statistics.median(c.x1 - c.x0 for c in side) >= filled * span


def _extent(text: str) -> int:
    """The length in letters; a letter of a script without spaces says as much as two."""
    return sum(2 if is_spaceless(ch) else 1 for ch in text)


def _rows(cells: list[_Cell], unit: float) -> list[_Row]:
    """Cells side by side as rows, left to right; pieces of one phrase are joined."""
    rows: list[_Row] = []
    for cell in sorted(cells, key=lambda c: c.cy):
        if rows and abs(cell.cy - statistics.fmean(c.cy for c in rows[-1])) < 0.5 * max(
            min(cell.h, rows[-1][-1].h), 0.5 * unit
        ):
            rows[-1].append(cell)
        else:
            rows.append([cell])
    return [_joined(sorted(row, key=lambda c: c.x0), unit) for row in rows]


def _joined(row: _Row, unit: float) -> _Row:
    joined = [row[0]]
    for cell in row[1:]:
        last = joined[-1]
        if cell.x0 - last.x1 < 0.2 * min(unit, max(last.h, cell.h)):
            joined[-1] = _Cell(
                last.x0,
                min(last.y0, cell.y0),
                max(last.x1, cell.x1),
                max(last.y1, cell.y1),
                max(last.h, cell.h),
                f"{last.text} {cell.text}",
            )
        else:
            joined.append(cell)
    return joined


def _render(cells: list[_Cell], body: _Body) -> list[str]:
    rows = _rows(cells, body.h)
    blocks: list[str] = []
    prose: list[_Cell] = []
    at = 0
    while at < len(rows):
        end = _table_end(rows, at)
        table = _table(rows[at:end], body.h) if end > at else None
        if table is None:
            # Cells beside each other that make no table are kept on one line, visibly apart.
            row = rows[at]
            prose.append(row[0] if len(row) == 1 else _as_line(row))
            at += 1
            continue
        blocks.extend(_paragraphs(prose, body))
        prose = []
        blocks.append(table)
        at = end
    return blocks + _paragraphs(prose, body)


def _as_line(row: _Row) -> _Cell:
    return _Cell(
        row[0].x0,
        min(c.y0 for c in row),
        row[-1].x1,
        max(c.y1 for c in row),
        statistics.median(c.h for c in row),
        "  ".join(c.text for c in row),
    )


def _table_end(rows: list[_Row], at: int) -> int:
    """Where the run of rows with several cells that starts at ``at`` ends; one lone cell within it is its part."""
    if len(rows[at]) < 2:
        return at
    end = at + 1
    while end < len(rows):
        if len(rows[end]) >= 2:
            end += 1
        elif end + 1 < len(rows) and len(rows[end + 1]) >= 2:
            end += 2
        else:
            break
    return end


def _table(rows: list[_Row], unit: float) -> str | None:
    edges = _column_edges(rows, unit)
    several = sum(len(row) >= 2 for row in rows)
    if not edges or several < 2 or (len(edges) == 1 and several < 3):
        return None
    grid: list[list[str]] = []
    last: _Row | None = None
    for row in rows:
        line = [""] * (len(edges) + 1)
        for cell in row:
            column = sum(cell.cx > edge for edge in edges)
            line[column] = f"{line[column]} {cell.text}".strip()
        alone = len(row) == 1 and line[0] == ""
        if grid and alone and last is not None and row[0].y0 - max(c.y1 for c in last) < 0.5 * unit:
            grid[-1] = [f"{a} {b}".strip() for a, b in zip(grid[-1], line, strict=True)]
        else:
            grid.append(line)
        last = row
    return markdown_table(grid)


def markdown_table(grid: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as a Markdown table whose first row is the head."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in grid]
    rule = "|" + " --- |" * len(grid[0])
    return "\n".join([lines[0], rule, *lines[1:]])


def _column_edges(rows: list[_Row], unit: float) -> list[float]:
    """The x of the strips between columns.

    A heading that spans columns must not join them, so a cell in ten may cross a strip where that shows more columns.
    """
    cells = [c for row in rows if len(row) >= 2 for c in row]
    tolerated = max(len(rows) // 10, int(len(rows) >= 5))
    return max(_strips(cells, 0, unit), _strips(cells, tolerated, unit), key=len)


def _strips(cells: list[_Cell], tolerated: int, unit: float) -> list[float]:
    events = sorted([(c.x0, 1) for c in cells] + [(c.x1, -1) for c in cells])
    strips: list[float] = []
    depth = 0
    start: float | None = None
    for x, change in events:
        before, depth = depth, depth + change
        if before > tolerated >= depth:
            start = x
        elif before <= tolerated < depth and start is not None:
            if x - start >= 0.2 * unit:
                strips.append((start + x) / 2)
            start = None
    return strips


def _paragraphs(lines: list[_Cell], body: _Body) -> list[str]:
    if not lines:
        return []
    left = min(c.x0 for c in lines)
    right = max(c.x1 for c in lines)
    steps = [b.cy - a.cy for a, b in pairwise(lines)]
    near = [s for s in steps if s < 2.2 * body.h]
    pitch = statistics.median(near) if near else 1.3 * body.h
    groups: list[list[_Cell]] = [[lines[0]]]
    for last, line in pairwise(lines):
        if _breaks(last, line, left, right, pitch, body):
            groups.append([line])
        else:
            groups[-1].append(line)
    followed_by = [group[0].text for group in groups[1:]] + [""]
    return [_paragraph(group, after, body) for group, after in zip(groups, followed_by, strict=True)]


def _breaks(last: _Cell, line: _Cell, left: float, right: float, pitch: float, body: _Body) -> bool:
    if line.cy - last.cy > 1.4 * pitch or not 0.75 < line.h / last.h < 1.33:
        return True
    if not 0.8 < body.times(line) / body.times(last) < 1.25 and min(len(last.text), len(line.text)) > 5:
        return True
    if _BULLET.match(line.text):
        return True
    if line.x0 - last.x0 > 0.8 * body.h and last.x0 - left < 0.8 * body.h:  # a first line's indent
        return line.x0 - last.x0 < 6 * body.h
    ended_early = last.x1 < right - 0.2 * (right - left)
    return ended_early and not line.text[0].islower()


def _paragraph(group: list[_Cell], after: str, body: _Body) -> str:
    text = "\n".join(c.text for c in group)
    if len(group) <= 3 and len(text) <= 160 and not after[:1].islower() and _may_head(text):
        times = statistics.median(body.times(c) for c in group)
        if times >= 1.23:
            level = 1 if times >= 1.7 else 2 if times >= 1.4 else 3
            return f"{'#' * level} {' '.join(text.split())}"
    return text


def _may_head(text: str) -> bool:
    return sum(ch.isalpha() for ch in text) >= 3 and text[-1] not in ",;" and not _BULLET.match(text)
