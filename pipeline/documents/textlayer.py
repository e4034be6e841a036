"""A PDF page's text layer: read word by word with its boxes. ``verdict`` says whether it is to be believed.

pdfium gives characters in the order of the content stream, with spaces and line ends that it found. Boxes are asked for
at the ends of words only: a call costs 1.5 µs, and a page has thousands of characters.
"""

from __future__ import annotations

import ctypes
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from math import cos, sin
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium

from pipeline.documents.lines import as_rows, heading_of, write
from pipeline.documents.order import in_reading_order, with_notes
from pipeline.documents.pieces import CELL_GAP, Piece, adjoins, overlap, pieces_of_line

__all__ = ["Layer", "read_layer"]

_MAX_CHARS = 400_000
# Controls but for the mark of a hyphen, the signs of a missing character, and those that mean what a font likes.
_NO_MEANING = re.compile("[\x00\x01\x03-\x1f\ufffd-\uffff\ue000-\uf8ff]")
_INVISIBLE = frozenset({pdfium.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium.FPDF_TEXTRENDERMODE_CLIP})
_WHITE = 250
_SEEN, _UNSEEN, _IN_WHITE = "seen", "unseen", "white"
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
        angle: The direction that most text runs in on the unturned page, in radians clockwise; 0 for the usual.
    """

    text: str
    heading: str | None
    chars: int
    invisible: float
    white: float
    unmapped: float
    angle: float


_NOTHING = Layer("", None, 0, 0.0, 0.0, 0.0, 0.0)


def read_layer(textpage: Any, height_pt: float, own_chars: int | None = None) -> Layer:
    """Read a page's text layer.

    Args:
        textpage: pdfium's ``FPDF_TEXTPAGE``.
        height_pt: The page's height in points.
        own_chars: How many characters come from the page's content; those behind them were drawn over it.
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
    own = count if own_chars is None else own_chars
    pieces: list[Piece] = []
    notes: list[Piece] = []
    for start, line in _lines(textpage, text, angle, height_pt):
        (pieces if start < own else notes).extend(line)
    rows = as_rows(with_notes(in_reading_order(pieces), notes))
    invisible, white = _unseen_shares(textpage, solid)
    return Layer(
        text=write(rows),
        heading=heading_of(rows),
        chars=chars,
        invisible=invisible,
        white=white,
        unmapped=_unmapped_share(textpage, text, solid),
        angle=angle,
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
    some = solid[:: max(1, len(solid) // _ANGLES)]
    for one in map(_ANGLE_OF, repeat(_address(textpage)), some):
        angle = round(one, 2)
        votes[angle] = votes.get(angle, 0) + 1
    return max(votes, key=lambda angle: votes[angle])


def _unseen_shares(textpage: Any, solid: Sequence[int]) -> tuple[float, float]:
    """The shares of characters that are drawn invisibly, and in white."""
    # Such text comes by the page or by the block: a third of the sample tells it as well.
    some = solid[::3]
    address = _address(textpage)
    drawn = list(map(_OBJECT_OF, repeat(address), some))
    # What is drawn at once is drawn in one way: a page has far fewer objects than characters.
    ways = {item: _way(address, index, item) for item, index in zip(drawn, some, strict=True)}
    of_some = [ways[item] for item in drawn]
    return of_some.count(_UNSEEN) / len(some), of_some.count(_IN_WHITE) / len(some)


def _way(address: ctypes.c_void_p, index: int, item: int | None) -> str:
    """How a character is drawn."""
    mode = _MODE_OF(ctypes.c_void_p(item))
    _COLOUR_OF(address, index, *_COLOUR_PLACES)
    red, green, blue, alpha = _COLOUR
    if mode in _INVISIBLE or (mode == pdfium.FPDF_TEXTRENDERMODE_FILL and alpha == 0):
        return _UNSEEN
    return _IN_WHITE if mode == pdfium.FPDF_TEXTRENDERMODE_FILL and min(red, green, blue) >= _WHITE else _SEEN


def _unmapped_share(textpage: Any, text: str, solid: Sequence[int]) -> float:
    errors: list[int] = list(map(_IS_UNMAPPED, repeat(_address(textpage)), solid))
    if not _NO_MEANING.search(text):
        return errors.count(1) / len(solid)
    known = [_NO_MEANING.match(text[index]) is not None for index in solid]
    return sum(meaningless or error == 1 for meaningless, error in zip(known, errors, strict=True)) / len(solid)


def _lines(textpage: Any, text: str, angle: float, height_pt: float) -> Iterator[tuple[int, list[Piece]]]:
    """Where each of pdfium's lines begins, and its pieces."""
    lines = [words for match in _LINE.finditer(text) if (words := _Words.of(match))]
    own_angles = map(_ANGLE_OF, repeat(_address(textpage)), [words.starts[0] for words in lines])
    special = _RIGHT_TO_LEFT.search(text) is not None or _CURRENCY.search(text) is not None
    plain = [
        not angle and abs(own) < _TILT and not (special and words.are_special(text))
        for words, own in zip(lines, own_angles, strict=True)
    ]
    sides = _boxes(textpage, [words for words, is_plain in zip(lines, plain, strict=True) if is_plain])
    lefts, tops, rights, bottoms = (sides[side::4] for side in range(4))
    rewritten = _REWRITTEN.search(text) is not None
    at = 0
    for words, is_plain in zip(lines, plain, strict=True):
        if not is_plain:
            span = words.starts[0], words.lasts[-1] + 1
            yield span[0], _line(textpage, text, span, angle, height_pt)
            continue
        end = at + 2 * len(words.written)
        written = [_spelled(word) for word in words.written] if rewritten else words.written
        line = pieces_of_line(written, lefts[at:end], tops[at:end], rights[at:end], bottoms[at:end], height_pt)
        yield words.starts[0], line
        at = end


class _Words(NamedTuple):
    """A line's words, and the indices of their first and last characters; at least one."""

    written: list[str]
    starts: list[int]
    lasts: list[int]

    @classmethod
    def of(cls, match: re.Match[str]) -> _Words | None:
        line = match.group()
        words = line.split()
        if not words:
            return None
        head = line.lstrip()
        sizes = [len(word) + 1 for word in words]
        if _HYPHEN not in line and sum(sizes) - 1 == len(head.rstrip()):
            # One space between any two, so that their places add up.
            begins = list(accumulate(sizes, initial=match.start() + len(line) - len(head)))
            return cls(words, begins[:-1], [after - 2 for after in begins[1:]])
        found = list(_WORD.finditer(match.string, *match.span()))
        return cls([one.group() for one in found], [one.start() for one in found], [one.end() - 1 for one in found])

    def are_special(self, text: str) -> bool:
        """Whether they can't be told apart by the boxes of their ends alone."""
        start, end = self.starts[0], self.lasts[-1] + 1
        return _RIGHT_TO_LEFT.search(text, start, end) is not None or _CURRENCY.search(text, start, end) is not None


def _boxes(textpage: Any, lines: Sequence[_Words]) -> list[float]:
    """Left, top, right and bottom of the first and the last character of each word, all of a page's in one go."""
    ends = [0] * (2 * sum(len(words.starts) for words in lines))
    ends[0::2] = [start for words in lines for start in words.starts]
    ends[1::2] = [last for words in lines for last in words.lasts]
    address = _address(textpage)
    sides: list[float] = []
    for at in range(0, len(ends), len(_BOX_PLACES)):
        some = ends[at : at + len(_BOX_PLACES)]
        deque(map(_BOX_OF, repeat(address), some, _BOX_PLACES), maxlen=0)
        sides += _BOXES[: 4 * len(some)].tolist()
    return sides


def _line(textpage: Any, text: str, span: tuple[int, int], angle: float, height_pt: float) -> list[Piece]:
    """The pieces of a line, by the boxes of each word."""
    own = pdfium.FPDFText_GetCharAngle(textpage, span[0])
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


def _bound(function: Any, result: Any) -> Any:
    """A function of pdfium's that is called for every word, without checks and conversions that take longer than it.

    It need not let go of the interpreter either: the child has one thread. As no arguments are declared, an address
    must be a ``c_void_p``.
    """
    return ctypes.PYFUNCTYPE(result)(ctypes.cast(function, ctypes.c_void_p).value or 0)


_BOX_OF = _bound(pdfium.FPDFText_GetLooseCharBox, ctypes.c_int)
_ANGLE_OF = _bound(pdfium.FPDFText_GetCharAngle, ctypes.c_float)
_OBJECT_OF = _bound(pdfium.FPDFText_GetTextObject, ctypes.c_void_p)
_IS_UNMAPPED = _bound(pdfium.FPDFText_HasUnicodeMapError, ctypes.c_int)
_MODE_OF = _bound(pdfium.FPDFTextObj_GetTextRenderMode, ctypes.c_int)
_COLOUR_OF = _bound(pdfium.FPDFText_GetFillColor, ctypes.c_int)


def _places(room: memoryview[Any], size_bytes: int) -> list[ctypes.c_void_p]:
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    return [ctypes.c_void_p(start + at) for at in range(0, room.nbytes, size_bytes)]


# Room for the boxes of a page and for a colour, made once for the same reason.
_BOXES = memoryview(bytearray(16 * 2048)).cast("f")
_BOX_PLACES = _places(_BOXES, 16)
_COLOUR = memoryview(bytearray(16)).cast("I")
_COLOUR_PLACES = _places(_COLOUR, 4)


def _address(textpage: Any) -> ctypes.c_void_p:
    return ctypes.cast(textpage, ctypes.c_void_p)


def _box(textpage: Any, index: int) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of a character."""
    _BOX_OF(_address(textpage), index, _BOX_PLACES[0])
    left, top, right, bottom = _BOXES[:4]
    return left, bottom, right, top
