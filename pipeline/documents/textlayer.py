"""A PDF page's text layer: read word by word with its boxes. ``verdict`` says whether it is to be believed.

pdfium gives characters in the order of the content stream, with spaces and line ends that it found. Boxes are asked for
at the ends of words only: a call costs 1.5 µs, and a page has thousands of characters.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import cos, sin
from typing import Any

import pypdfium2.raw as pdfium

from pipeline.documents.lines import as_rows, heading_of, write
from pipeline.documents.order import in_reading_order
from pipeline.documents.pieces import CELL_GAP, LineBuilder, Piece, adjoins, overlap

__all__ = ["Layer", "read_layer"]

_MAX_CHARS = 400_000
# Controls but for the mark of a hyphen, the signs of a missing character, and those that mean what a font likes.
_NO_MEANING = re.compile("[\x00\x01\x03-\x1f\ufffd-\uffff\ue000-\uf8ff]")
_INVISIBLE = frozenset({pdfium.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium.FPDF_TEXTRENDERMODE_CLIP})
_WHITE = 250
_HYPHEN = "\x02"
_NO_CHARACTER = "\ufffe"
# Every TeX font without a character map puts its "ff" there; one character stays one, so that indices agree.
_TEX_FF = re.compile("(?<=[A-Za-z])\u21b5(?=[a-z-])")
# Such a font has no character at all for "ffi" and "ffl"; English words tell them apart by the letter that follows.
_TEX_FFI = re.compile("(?<=[A-Za-z])\ufffd(?=[a-z-])")
_TEX_FFL = re.compile("(?<=[A-Za-z])\ufffd(?=[eiou])")
_LIGATURES = {"\ufb00": "ff", "\ufb03": "ffi", "\ufb04": "ffl"}
# pdfium joins a word that was hyphenated at a line's end and leaves its mark in it: there it is two words again.
_WORD = re.compile(r"[^\s\x02]+\x02?|\x02")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_ALEF_LAM = re.compile("[\u0622\u0623\u0625\u0627]\u0644")
_LINE = re.compile(r"[^\r\n]+")
_CURRENCIES = frozenset("$£€¥₩₹")
_CURRENCY = re.compile("[$£€¥₩₹]")
_AMOUNT = re.compile(r"\(?-?\d[\d.,]*\)?|[—–-]")
# What a word may hold that is written otherwise.
_REWRITTEN = re.compile("[\x02\ufb00\ufb03\ufb04]")
_SAMPLES = 240
_ANGLES = 60
# Radians: text that runs in another direction than most of the page's.
_TILT = 0.1


@dataclass(frozen=True, slots=True)
class Layer:
    """What a page's text layer says.

    Attributes:
        text: In reading order; lines kept, an empty line between paragraphs, a tab between cells.
        heading: The most prominent line at the top of the page; None when all text is of one size.
        chars: Characters that aren't white space.
        invisible: Share of them that is drawn invisibly (0 to 1).
        white: Share of them that is white, which shows only on something else.
        unmapped: Share of them that the font gives no character for.
    """

    text: str
    heading: str | None
    chars: int
    invisible: float
    white: float
    unmapped: float


_NOTHING = Layer("", None, 0, 0.0, 0.0, 0.0)


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
    rows = as_rows(in_reading_order(pieces))
    invisible, white = _unseen_shares(textpage, solid)
    return Layer(
        text=write(rows),
        heading=heading_of(rows),
        chars=chars,
        invisible=invisible,
        white=white,
        unmapped=sum(_is_unmapped(textpage, index, text[index]) for index in solid) / len(solid),
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
    if _ALEF_LAM.search(text):
        text = _ALEF_LAM.sub(lambda match: _lam_alef(textpage, match), text)
    if _TEX_FF.search(text):
        text = _TEX_FFI.sub("\ufb03", _TEX_FFL.sub("\ufb04", _TEX_FF.sub("\ufb00", text)))
    return text


def _lam_alef(textpage: Any, match: re.Match[str]) -> str:
    """Turned round by pdfium: text that runs to the left, and with it the two letters of the ligature lam-alef."""
    pair = match.group()
    is_one_glyph = _box(textpage, match.start()) == _box(textpage, match.start() + 1)
    return pair[::-1] if is_one_glyph else pair


def _sample(text: str, size: int) -> Sequence[int]:
    """Indices of about ``size`` characters, evenly spread; white space is stepped over."""
    step = max(1, len(text) // size)
    found = [index for index in range(0, len(text), step) if not text[index].isspace()]
    return found or [match.start() for match in _WORD.finditer(text)][:size]


def _main_angle(textpage: Any, solid: Sequence[int]) -> float:
    """The direction most text runs in, in radians; 0 for the usual."""
    votes: dict[float, int] = {}
    for index in solid[:: max(1, len(solid) // _ANGLES)]:
        angle = round(pdfium.FPDFText_GetCharAngle(textpage, index), 2)
        votes[angle] = votes.get(angle, 0) + 1
    return max(votes, key=lambda angle: votes[angle])


def _unseen_shares(textpage: Any, solid: Sequence[int]) -> tuple[float, float]:
    """The shares of characters that are drawn invisibly, and in white."""
    # Such text comes by the page or by the block: a third of the sample tells it as well.
    some = solid[::3]
    invisible = white = 0
    for index in some:
        mode = pdfium.FPDFTextObj_GetTextRenderMode(pdfium.FPDFText_GetTextObject(textpage, index))
        pdfium.FPDFText_GetFillColor(textpage, index, *_COLOUR_REFS)
        red, green, blue, alpha = (part.value for part in _COLOUR)
        if mode in _INVISIBLE or (mode == pdfium.FPDF_TEXTRENDERMODE_FILL and alpha == 0):
            invisible += 1
        elif mode == pdfium.FPDF_TEXTRENDERMODE_FILL and min(red, green, blue) >= _WHITE:
            white += 1
    return invisible / len(some), white / len(some)


def _is_unmapped(textpage: Any, index: int, char: str) -> bool:
    if _NO_MEANING.match(char):
        return True
    return bool(pdfium.FPDFText_HasUnicodeMapError(textpage, index) == 1)


def _line(textpage: Any, text: str, span: tuple[int, int], angle: float, height_pt: float) -> list[Piece]:
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


def _pieces(textpage: Any, text: str, span: tuple[int, int], angle: float, height_pt: float) -> list[Piece]:
    """Cut one of pdfium's lines at its wide gaps."""
    mixed = _RIGHT_TO_LEFT.search(text, *span) is not None
    if not angle and not mixed and not _CURRENCY.search(text, *span):
        return _plain_pieces(textpage, text, span, height_pt)
    words = [_word(textpage, match, angle, height_pt, every_box=mixed) for match in _WORD.finditer(text, *span)]
    signs = _leading_signs(words)
    pieces: list[Piece] = []
    for index, word in enumerate(words):
        last = pieces[-1] if pieces else None
        if last is None or index in signs:
            pieces.append(word)
        elif index - 1 in signs or adjoins(last, word) or (mixed and _has_between(last, word, words)):
            last.take(word)
        else:
            pieces.append(word)
    return pieces


def _plain_pieces(textpage: Any, text: str, span: tuple[int, int], height_pt: float) -> list[Piece]:
    """What ``_pieces`` gives for nearly every line, without making a piece of each word first."""
    line = LineBuilder()
    rewritten = _REWRITTEN.search(text, *span) is not None
    box_of, unpacked, to = _BOX_OF, _UNPACKED, _BOX_ADDRESS
    address = ctypes.cast(textpage, ctypes.c_void_p).value
    for match in _WORD.finditer(text, *span):
        start, end = match.span()
        box_of(address, start, to)
        left, top, right, bottom = unpacked(_BOX)
        if end - start > 1:
            box_of(address, end - 1, to)
            last_left, last_top, last_right, last_bottom = unpacked(_BOX)
            # Written out: this runs for every word.
            if last_left < left:
                left = last_left
            if last_bottom < bottom:
                bottom = last_bottom
            if last_right > right:
                right = last_right
            if last_top > top:
                top = last_top
        word = match.group()
        line.add(_spelled(word) if rewritten else word, left, height_pt - top, right, height_pt - bottom)
    return line.pieces()


def _leading_signs(words: Sequence[Piece]) -> frozenset[int]:
    """Where a currency sign stands apart before its amount, and often nearer to the amount of the column before.

    "$ 178 $ 141" is two cells with their signs in front, and "178 € 141 €" is none of our business.
    """
    signs = [index for index, word in enumerate(words) if word.text in _CURRENCIES]
    lead = signs and all(index + 1 < len(words) and _AMOUNT.fullmatch(words[index + 1].text) for index in signs)
    if not lead or any(_AMOUNT.fullmatch(word.text) for word in words[: signs[0]]):
        return frozenset()
    return frozenset(signs)


def _has_between(last: Piece, word: Piece, words: Sequence[Piece]) -> bool:
    """Where directions mix, the next word may stand beyond others of the line: that is no gap."""
    left, right = (last.x1, word.x0) if last.x1 <= word.x0 else (word.x1, last.x0)
    inside = [one for one in words if one.x0 >= left - 1 and one.x1 <= right + 1]
    free = (right - left) - sum(one.x1 - one.x0 for one in inside)
    return free <= (len(inside) + 1) * CELL_GAP * max(last.height, word.height, 1.0) and overlap(last, word) > 0


def _word(textpage: Any, match: re.Match[str], angle: float, height_pt: float, *, every_box: bool) -> Piece:
    text = _spelled(match.group())
    left, bottom, right, top = _box(textpage, match.start())
    for index in range(match.start() + 1, match.end()) if every_box else (match.end() - 1,):
        box = _box(textpage, index)
        left, bottom = min(left, box[0]), min(bottom, box[1])
        right, top = max(right, box[2]), max(top, box[3])
    if not angle:
        return Piece(text, left, height_pt - top, right, height_pt - bottom)
    # pdfium counts angles clockwise from the baseline; turning back by it makes the text run to the right.
    corners = [(x, y) for x in (left, right) for y in (bottom, top)]
    turned = [(x * cos(angle) - y * sin(angle), x * sin(angle) + y * cos(angle)) for x, y in corners]
    xs, ys = [x for x, _ in turned], [-y for _, y in turned]
    return Piece(text, min(xs), min(ys), max(xs), max(ys))


def _spelled(word: str) -> str:
    word = word.replace(_HYPHEN, "-")
    for ligature, letters in _LIGATURES.items():
        word = word.replace(ligature, letters)
    return word


_COLOUR = tuple(ctypes.c_uint() for _ in range(4))
_COLOUR_REFS = tuple(map(ctypes.byref, _COLOUR))

# One for all calls: the child has one thread, and making them costs more than filling them. The function is bound once
# more, without the checks and conversions of the other, which take longer than it does.
_BOX = memoryview(bytearray(16))
_UNPACKED = struct.Struct("4f").unpack_from
_BOX_ADDRESS = ctypes.addressof(ctypes.c_char.from_buffer(_BOX))
_BOX_OF = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
    ctypes.cast(pdfium.FPDFText_GetLooseCharBox, ctypes.c_void_p).value or 0
)


def _box(textpage: Any, index: int) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of a character."""
    _BOX_OF(ctypes.cast(textpage, ctypes.c_void_p).value, index, _BOX_ADDRESS)
    left, top, right, bottom = _UNPACKED(_BOX)
    return left, bottom, right, top
