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
_WORD = re.compile(r"\S+")
_LINE = re.compile(r"[^\r\n]+")
_SAMPLES = 240

# In heights of the line.
_CELL_GAP = 1.25
_PARAGRAPH_GAP = 0.75
_SAME_ROW = 0.5
_SIZE_CHANGE = 0.18


@dataclass(slots=True)
class _Piece:
    """Words on one line with no wide gap between them; y grows downwards."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def height(self) -> float:
        return self.y1 - self.y0


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
    solid = [index for index, char in enumerate(text) if not char.isspace()]
    if not solid:
        return _NOTHING
    angle = _main_angle(textpage, solid)
    lines = [_pieces(textpage, text, match.span(), angle, height_pt) for match in _LINE.finditer(text)]
    pieces = [piece for line in lines for piece in line]
    rows = _rows(pieces if not _is_disordered(pieces) else _by_place(pieces))
    return Layer(
        text=_write(rows),
        heading=_heading(rows),
        chars=len(solid),
        invisible=_share(textpage, solid, _is_invisible),
        unmapped=_share(textpage, solid, _is_unmapped),
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def _characters(textpage: Any, count: int) -> str:
    """One Python character for each of pdfium's, so that indices agree."""
    units = ctypes.create_string_buffer(2 * (count + 1))
    written = pdfium.FPDFText_GetText(textpage, 0, count, ctypes.cast(units, ctypes.POINTER(ctypes.c_ushort)))
    text = units.raw[: 2 * (written - 1)].decode("utf-16-le", "surrogatepass") if written > 0 else ""
    if len(text) == count:
        return text
    codes = map(pdfium.FPDFText_GetUnicode, repeat(textpage, count), range(count))
    return "".join(chr(code) if code <= 0x10FFFF else "\ufffd" for code in codes)


def _sample(solid: Sequence[int], size: int = _SAMPLES) -> Sequence[int]:
    return solid[:: max(1, len(solid) // size)]


def _main_angle(textpage: Any, solid: Sequence[int]) -> float:
    """The direction most text runs in, in radians; 0 for the usual."""
    votes: dict[float, int] = {}
    for index in _sample(solid, 60):
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
    sample = _sample(solid)
    return sum(is_so(textpage, index) for index in sample) / len(sample)


def _pieces(textpage: Any, text: str, span: tuple[int, int], angle: float, height_pt: float) -> list[_Piece]:
    """Cut one of pdfium's lines at its wide gaps."""
    pieces: list[_Piece] = []
    for match in _WORD.finditer(text, *span):
        word = _word(textpage, match, angle, height_pt)
        last = pieces[-1] if pieces else None
        if last is not None and _adjoins(last, word):
            last.text = f"{last.text} {word.text}"
            last.x0, last.y0 = min(last.x0, word.x0), min(last.y0, word.y0)
            last.x1, last.y1 = max(last.x1, word.x1), max(last.y1, word.y1)
        else:
            pieces.append(word)
    return pieces


def _adjoins(last: _Piece, word: _Piece) -> bool:
    height = max(last.height, word.height, 1.0)
    gap = max(word.x0 - last.x1, last.x0 - word.x1)
    overlap = min(last.y1, word.y1) - max(last.y0, word.y0)
    return gap <= _CELL_GAP * height and overlap >= 0.3 * min(last.height, word.height)


def _word(textpage: Any, match: re.Match[str], angle: float, height_pt: float) -> _Piece:
    first, last = _box(textpage, match.start()), _box(textpage, match.end() - 1)
    left, right = min(first[0], last[0]), max(first[2], last[2])
    bottom, top = min(first[1], last[1]), max(first[3], last[3])
    text = match.group().replace(_HYPHEN, "-").replace("\ufffe", "-")
    if not angle:
        return _Piece(text, left, height_pt - top, right, height_pt - bottom)
    # pdfium counts angles clockwise from the baseline; turning back by it makes the text run to the right.
    corners = [(x, y) for x in (left, right) for y in (bottom, top)]
    turned = [(x * cos(angle) - y * sin(angle), x * sin(angle) + y * cos(angle)) for x, y in corners]
    xs, ys = [x for x, _ in turned], [-y for _, y in turned]
    return _Piece(text, min(xs), min(ys), max(xs), max(ys))


def _box(textpage: Any, index: int) -> tuple[float, float, float, float]:
    rect = pdfium.FS_RECTF()
    pdfium.FPDFText_GetLooseCharBox(textpage, index, ctypes.byref(rect))
    return rect.left, rect.bottom, rect.right, rect.top


# --- ordering --------------------------------------------------------------------------------------------------------


def _is_disordered(pieces: Sequence[_Piece]) -> bool:
    """Whether the stream's order is not one for reading: it goes back up the page without going to a next column."""
    back = 0
    for one, other in pairwise(pieces):
        rises = one.y0 - other.y1 > 0.5 * max(one.height, other.height)
        if rises and other.x0 < one.x1:
            back += 1
    return back > 3 and back > 0.06 * len(pieces)


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
        if rows and _share_row(rows[-1].pieces[-1], piece):
            rows[-1].pieces.append(piece)
        else:
            rows.append(_Row([piece]))
    return rows


def _write(rows: Sequence[_Row]) -> str:
    parts: list[str] = []
    for index, row in enumerate(rows):
        if index:
            parts.append("\n\n" if _starts_paragraph(rows[index - 1], row) else "\n")
        parts.append(("\t" if _is_tabular(rows, index) else " ").join(piece.text for piece in row.pieces))
    return "".join(parts)


def _is_tabular(rows: Sequence[_Row], index: int) -> bool:
    """Three cells are a table row by themselves; two are where a neighbour has two as well (else a wide gap)."""
    cells = len(rows[index].pieces)
    beside = [len(rows[near].pieces) for near in (index - 1, index + 1) if 0 <= near < len(rows)]
    return cells >= 3 or (cells == 2 and any(near >= 2 for near in beside))


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
    solid = sum(not char.isspace() for char in text)
    if len(letters) < 80 or len(letters) < 0.3 * solid:
        return False
    vowels = sum(map(letters.count, "aeiouy")) / len(letters)
    inside = len(_LETTER_IN_CODE.findall(text)) / len(letters)
    return not 0.2 <= vowels <= 0.65 or inside > 0.12
