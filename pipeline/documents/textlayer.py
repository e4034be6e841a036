"""A PDF page's text layer: read word by word with its boxes, laid out in reading order, and judged.

pdfium gives characters in the order of the content stream, with spaces and line ends that it found. Producers write
that order for reading nearly always, so it is kept unless it jumps about; then blocks are ordered by where they stand
(recursive cuts along white gutters, Nagy and Seth 1984). Boxes are asked for at the ends of words only: a call costs
1.5 µs, and a page has thousands of characters.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from math import cos, sin
from statistics import median
from typing import Any

import pypdfium2.raw as pdfium

from pipeline.domain.document import TextQuality

__all__ = ["Layer", "judge", "read_layer"]

_MAX_CHARS = 400_000
_INVISIBLE = frozenset({pdfium.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium.FPDF_TEXTRENDERMODE_CLIP})
_HYPHEN = "\x02"
_NO_CHARACTER = "\ufffe"
# Every TeX font without a character map puts its "ff" there; one character stays one, so that indices agree.
_TEX_FF = re.compile("(?<=[A-Za-z])\u21b5(?=[a-z])")
# pdfium joins a word that was hyphenated at a line's end and leaves its mark in it: there it is two words again.
_WORD = re.compile(r"[^\s\x02]+\x02?|\x02")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LINE = re.compile(r"[^\r\n]+")
_SAMPLES = 240
_LONG_CELL = 25

# In heights of the line.
_CELL_GAP = 1.25
_PARAGRAPH_GAP = 0.75
_SAME_ROW = 0.5
_SIZE_CHANGE = 0.18
_TABLE_LEADING = 2.2
_TILT = 0.1


@dataclass(slots=True)
class _Piece:
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

    def take(self, other: _Piece) -> None:
        """Go on with ``other``; a raised sign doesn't make the line higher."""
        if not self.words:
            self.words = [(self.x0, self.text)]
        self.words.extend(other.placed_words())
        self.text = f"{self.text} {other.text}"
        self.x0, self.x1 = min(self.x0, other.x0), max(self.x1, other.x1)
        if other.height > 0.8 * self.height:
            self.y0, self.y1 = min(self.y0, other.y0), max(self.y1, other.y1)

    def placed_words(self) -> list[tuple[float, str]]:
        """Where each word begins, and the word."""
        return self.words or [(self.x0, self.text)]


@dataclass(slots=True)
class _Row:
    """Pieces that stand side by side."""

    pieces: list[_Piece] = field(default_factory=list)

    @property
    def x0(self) -> float:
        return min(piece.x0 for piece in self.pieces)

    @property
    def x1(self) -> float:
        return max(piece.x1 for piece in self.pieces)

    @property
    def y0(self) -> float:
        return min(piece.y0 for piece in self.pieces)

    @property
    def y1(self) -> float:
        return max(piece.y1 for piece in self.pieces)

    @property
    def height(self) -> float:
        return max(piece.height for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Layer:
    """What a page's text layer says.

    Attributes:
        text: In reading order; lines kept, an empty line between paragraphs, a tab between cells.
        heading: The most prominent line at the top of the page; None when all text is of one size.
        chars: Characters that aren't white space.
        invisible: Share of them that is drawn invisibly (0 to 1).
        unmapped: Share of them that the font gives no character for.
    """

    text: str
    heading: str | None
    chars: int
    invisible: float
    unmapped: float


_NOTHING = Layer("", None, 0, 0.0, 0.0)


def read_layer(textpage: Any, height_pt: float) -> Layer:
    """Read a page's text layer.

    Args:
        textpage: pdfium's ``FPDF_TEXTPAGE``.
        height_pt: The page's height in points.
    """
    count = min(pdfium.FPDFText_CountChars(textpage), _MAX_CHARS)
    if count <= 0:
        return _NOTHING
    text = _characters(textpage, count)
    chars = len("".join(text.split()))
    if not chars:
        return _NOTHING
    solid = _sample(text, min(_SAMPLES, chars))
    angle = _main_angle(textpage, solid)
    lines = [_line(textpage, text, match.span(), angle, height_pt) for match in _LINE.finditer(text)]
    pieces = [piece for line in lines for piece in line]
    rows = _rows(pieces if not _is_disordered(pieces) else _by_place(pieces))
    return Layer(
        text=_write(rows),
        heading=_heading(rows),
        chars=chars,
        invisible=_share(textpage, solid, _is_invisible),
        unmapped=_share(textpage, solid, _is_unmapped),
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def _characters(textpage: Any, count: int) -> str:
    """One Python character for each of pdfium's, so that indices agree."""
    units = ctypes.create_string_buffer(2 * (count + 1))
    written = pdfium.FPDFText_GetText(textpage, 0, count, ctypes.cast(units, ctypes.POINTER(ctypes.c_ushort)))
    text = units.raw[: 2 * (written - 1)].decode("utf-16-le", "surrogatepass") if written > 0 else ""
    if len(text) != count:
        codes = map(pdfium.FPDFText_GetUnicode, repeat(textpage, count), range(count))
        # 0 is a glyph that the font gives no character for.
        text = "".join(chr(code) if 0 < code <= 0x10FFFF else "\ufffd" for code in codes)
    elif _NO_CHARACTER in text:
        # Written for hyphens at a line's end and for glyphs without a character; only the code tells which.
        whole = list(text)
        for index in (match.start() for match in re.finditer(_NO_CHARACTER, text)):
            code = pdfium.FPDFText_GetUnicode(textpage, index)
            whole[index] = _HYPHEN if code == ord(_HYPHEN) else "\ufffd"
        text = "".join(whole)
    return _TEX_FF.sub("\ufb00", text) if "\u21b5" in text else text


def _sample(text: str, size: int) -> Sequence[int]:
    """Indices of about ``size`` characters, evenly spread; white space is stepped over."""
    step = max(1, len(text) // size)
    found = [index for index in range(0, len(text), step) if not text[index].isspace()]
    return found or [match.start() for match in _WORD.finditer(text)][:size]


def _main_angle(textpage: Any, solid: Sequence[int]) -> float:
    """The direction most text runs in, in radians; 0 for the usual."""
    votes: dict[float, int] = {}
    for index in solid[:: max(1, len(solid) // 60)]:
        angle = round(pdfium.FPDFText_GetCharAngle(textpage, index), 2)
        votes[angle] = votes.get(angle, 0) + 1
    return max(votes, key=lambda angle: votes[angle])


def _is_invisible(textpage: Any, index: int) -> bool:
    mode: int = pdfium.FPDFTextObj_GetTextRenderMode(pdfium.FPDFText_GetTextObject(textpage, index))
    return mode in _INVISIBLE


def _is_unmapped(textpage: Any, index: int) -> bool:
    if pdfium.FPDFText_HasUnicodeMapError(textpage, index) == 1:
        return True
    code = pdfium.FPDFText_GetUnicode(textpage, index)
    is_control = code < 0x20 and code != ord(_HYPHEN)
    return is_control or code in (0xFFFD, 0xFFFE, 0xFFFF) or 0xE000 <= code <= 0xF8FF


def _share(textpage: Any, solid: Sequence[int], is_so: Callable[[Any, int], bool]) -> float:
    return sum(is_so(textpage, index) for index in solid) / len(solid)


def _line(textpage: Any, text: str, span: tuple[int, int], angle: float, height_pt: float) -> list[_Piece]:
    first = _WORD.search(text, *span)
    if first is None:
        return []
    own = pdfium.FPDFText_GetCharAngle(textpage, first.start())
    if abs(own - angle) < _TILT:
        return _pieces(textpage, text, span, angle, height_pt)
    # A stamp up the margin: one piece, whatever the gaps.
    words = [_word(textpage, match, angle, height_pt, every_box=False) for match in _WORD.finditer(text, *span)]
    for word in words[1:]:
        words[0].take(word)
    return words[:1]


def _pieces(textpage: Any, text: str, span: tuple[int, int], angle: float, height_pt: float) -> list[_Piece]:
    """Cut one of pdfium's lines at its wide gaps."""
    mixed = _RIGHT_TO_LEFT.search(text, *span) is not None
    words = [_word(textpage, match, angle, height_pt, every_box=mixed) for match in _WORD.finditer(text, *span)]
    pieces: list[_Piece] = []
    for word in words:
        last = pieces[-1] if pieces else None
        if last is not None and (_adjoins(last, word) or (mixed and _has_between(last, word, words))):
            last.take(word)
        else:
            pieces.append(word)
    return pieces


def _adjoins(last: _Piece, word: _Piece) -> bool:
    height = max(last.height, word.height, 1.0)
    gap = max(word.x0 - last.x1, last.x0 - word.x1)
    # Raised and lowered signs overlap their line a little; the next line does not.
    return gap <= _CELL_GAP * height and _overlap(last, word) > 0.15 * min(last.height, word.height)


def _overlap(one: _Piece, other: _Piece) -> float:
    return min(one.y1, other.y1) - max(one.y0, other.y0)


def _has_between(last: _Piece, word: _Piece, words: Sequence[_Piece]) -> bool:
    """Where directions mix, the next word may stand beyond others of the line: that is no gap."""
    left, right = (last.x1, word.x0) if last.x1 <= word.x0 else (word.x1, last.x0)
    inside = [one for one in words if one.x0 >= left - 1 and one.x1 <= right + 1]
    free = (right - left) - sum(one.x1 - one.x0 for one in inside)
    return free <= (len(inside) + 1) * _CELL_GAP * max(last.height, word.height, 1.0) and _overlap(last, word) > 0


def _word(textpage: Any, match: re.Match[str], angle: float, height_pt: float, *, every_box: bool) -> _Piece:
    text = match.group()
    if _HYPHEN in text or "\ufb00" in text:
        text = text.replace(_HYPHEN, "-").replace("\ufb00", "ff")
    left, bottom, right, top = _box(textpage, match.start())
    for index in range(match.start() + 1, match.end()) if every_box else (match.end() - 1,):
        box = _box(textpage, index)
        left, bottom = min(left, box[0]), min(bottom, box[1])
        right, top = max(right, box[2]), max(top, box[3])
    if not angle:
        return _Piece(text, left, height_pt - top, right, height_pt - bottom)
    # pdfium counts angles clockwise from the baseline; turning back by it makes the text run to the right.
    corners = [(x, y) for x in (left, right) for y in (bottom, top)]
    turned = [(x * cos(angle) - y * sin(angle), x * sin(angle) + y * cos(angle)) for x, y in corners]
    xs, ys = [x for x, _ in turned], [-y for _, y in turned]
    return _Piece(text, min(xs), min(ys), max(xs), max(ys))


# One for all calls: the child has one thread, and making them costs more than filling them.
_RECT = pdfium.FS_RECTF()
_RECT_REF = ctypes.byref(_RECT)


def _box(textpage: Any, index: int) -> tuple[float, float, float, float]:
    pdfium.FPDFText_GetLooseCharBox(textpage, index, _RECT_REF)
    return _RECT.left, _RECT.bottom, _RECT.right, _RECT.top


# --- ordering --------------------------------------------------------------------------------------------------------


def _is_disordered(pieces: Sequence[_Piece]) -> bool:
    """Whether the stream's order is not one for reading: it goes back up the page without going to a next column."""
    back = across = 0
    for one, other in pairwise(pieces):
        rises = one.y0 - other.y1 > 0.5 * max(one.height, other.height)
        if rises and other.x0 < one.x1:
            back += 1
        # Long texts side by side are the columns of a page that was written line by line across them.
        if _share_row(one, other) and min(len(one.text), len(other.text)) >= _LONG_CELL:
            across += 1
    return (back > 3 and back > 0.06 * len(pieces)) or (across > 5 and across > 0.3 * len(pieces) / 2)


def _by_place(pieces: list[_Piece], depth: int = 0) -> list[_Piece]:
    """Order by recursive cuts: columns where a white gutter runs through, else above before below."""
    if len(pieces) < 2 or depth > 40:
        return _by_row(pieces)
    for cut in (_columns, _bands):
        parts = cut(pieces)
        if len(parts) > 1:
            return [piece for part in parts for piece in _by_place(part, depth + 1)]
    return _by_row(pieces)


def _by_row(pieces: Sequence[_Piece]) -> list[_Piece]:
    rows: list[list[_Piece]] = []
    for piece in sorted(pieces, key=lambda one: (one.y0 + one.y1, one.x0)):
        last = rows[-1][-1] if rows else None
        if last is not None and _share_row(last, piece):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [piece for row in rows for piece in sorted(row, key=lambda one: one.x0)]


def _columns(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Left and right of the widest vertical gutter, if both sides are columns of running text and not table cells."""
    height = median(piece.height for piece in pieces)
    gutter = _widest_gap(sorted((piece.x0, piece.x1) for piece in pieces), 0.8 * height)
    if gutter is None:
        return [pieces]
    parts = [[one for one in pieces if one.x1 <= gutter], [one for one in pieces if one.x1 > gutter]]
    return parts if all(_is_prose(part) for part in parts) else [pieces]


def _is_prose(pieces: Sequence[_Piece]) -> bool:
    if len(pieces) < 3:
        return False
    width = max(one.x1 for one in pieces) - min(one.x0 for one in pieces)
    filled = sum(one.x1 - one.x0 for one in pieces) / (len(pieces) * max(width, 1.0))
    return filled > 0.5 and median(len(one.text) for one in pieces) >= 12


def _bands(pieces: list[_Piece]) -> list[list[_Piece]]:
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


def _share_row(one: _Piece, other: _Piece) -> bool:
    overlap = min(one.y1, other.y1) - max(one.y0, other.y0)
    return overlap >= _SAME_ROW * min(one.height, other.height) and (one.x1 <= other.x0 or other.x1 <= one.x0)


# --- writing ---------------------------------------------------------------------------------------------------------


def _rows(pieces: Sequence[_Piece]) -> list[_Row]:
    rows: list[_Row] = []
    for piece in pieces:
        last = rows[-1].pieces[-1] if rows else None
        if last is not None and piece.x0 >= last.x1 - 1 and _adjoins(last, piece):
            last.take(piece)
        elif last is not None and _share_row(last, piece):
            rows[-1].pieces.append(piece)
        else:
            rows.append(_Row([piece]))
    return rows


def _write(rows: Sequence[_Row]) -> str:
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


def _table_end(rows: Sequence[_Row], start: int) -> int:
    """Where the table that begins at ``start`` ends: rows of at least two cells, evenly spaced."""
    end = start
    while end < len(rows) and len(rows[end].pieces) >= 2:
        if end > start:
            gap = rows[end].y0 - rows[end - 1].y1
            if not -0.5 * rows[end].height <= gap <= _TABLE_LEADING * rows[end].height:
                break
        end += 1
    return end


def _is_justified(rows: Sequence[_Row], index: int) -> bool:
    """A line whose words were spread to end where the unbroken line beside it ends."""
    row = rows[index]
    beside = [rows[near] for near in (index - 1, index + 1) if 0 <= near < len(rows)]
    return any(len(near.pieces) == 1 and abs(near.x1 - row.x1) < row.height for near in beside)


def _aligned(rows: Sequence[_Row]) -> list[str]:
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


def _column_spans(rows: Sequence[_Row]) -> list[tuple[float, float]]:
    """The stretches that cells stand in; a cell that lies over two cells of another row says nothing about columns."""
    spans = [(piece.x0, piece.x1) for row in rows for piece in row.pieces if not _spans_others(piece, rows)]
    columns: list[tuple[float, float]] = []
    for x0, x1 in sorted(spans):
        if columns and x0 <= columns[-1][1]:
            columns[-1] = columns[-1][0], max(columns[-1][1], x1)
        else:
            columns.append((x0, x1))
    return columns


def _spans_others(piece: _Piece, rows: Sequence[_Row]) -> bool:
    return any(sum(other.x0 < piece.x1 and other.x1 > piece.x0 for other in row.pieces) > 1 for row in rows)


def _starts_paragraph(above: _Row, row: _Row) -> bool:
    height = max(above.height, row.height, 1.0)
    gap = row.y0 - above.y1
    if gap > _PARAGRAPH_GAP * min(above.height, row.height):
        return True
    if abs(above.height - row.height) > _SIZE_CHANGE * height and len(above.pieces) == len(row.pieces) == 1:
        return True
    # Back up the page: a column or a box begins; a sentence may well run on into it.
    return gap < -1.5 * height and above.pieces[-1].text[-1:] in ".!?:;。！？："


def _heading(rows: Sequence[_Row]) -> str | None:
    """The largest text among the page's first rows, if it is larger than the page's usual."""
    usual = median(row.height for row in rows)
    top = [row for row in rows[:12] if len(row.pieces) == 1 and sum(map(str.isalpha, row.pieces[0].text)) >= 3]
    if not top:
        return None
    largest = max(row.height for row in top)
    if largest < 1.15 * usual and len(rows) > 3:
        return None
    words: list[str] = []
    for row in top:
        if row.height >= 0.92 * largest:
            words.append(row.pieces[0].text)
        elif words:
            break
    title = " ".join(words)
    return title if len(title) <= 200 else None


# --- judging ---------------------------------------------------------------------------------------------------------

_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")
_LETTER_IN_CODE = re.compile(r"(?<=[A-Za-z])[!-@\[-`{-~](?=[A-Za-z])")
_FEW_CHARS = 120
_FULL_PAGE = 0.7


def judge(layer: Layer, image_share: float) -> TextQuality:
    """Say whether a page's own text may be believed.

    Args:
        layer: What the text layer says.
        image_share: Share of the page that images cover, 0 to 1.
    """
    if layer.chars == 0:
        return TextQuality.NONE
    if layer.invisible > 0.5 or layer.unmapped > 0.1 or _is_garbled(layer.text):
        return TextQuality.POOR
    # A stamp or a page number on a scan is not the page's text.
    if image_share > _FULL_PAGE and layer.chars < _FEW_CHARS:
        return TextQuality.POOR
    return TextQuality.GOOD


def _is_garbled(text: str) -> bool:
    """A font whose codes were taken for characters gives words without vowels, or with signs inside them."""
    words = _LATIN_WORD.findall(text)
    letters = "".join(words).lower()
    solid = len("".join(text.split()))
    if len(letters) < 80 or len(letters) < 0.3 * solid:
        return False
    vowels = sum(map(letters.count, "aeiouy")) / len(letters)
    inside = len(_LETTER_IN_CODE.findall(text)) / len(letters)
    return not 0.2 <= vowels <= 0.65 or inside > 0.12
