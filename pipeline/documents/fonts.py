"""Stands in for East Asian fonts that a PDF names and does not hold, where this machine has none either.

To pdfium a character without a glyph has no size. It then loses text: all of what is placed character by character,
and of equal pieces on different lines all but the first (pypdfium2 5.15). Here every character has the size of its
square, and no ink: what can't be drawn is not drawn as something else.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import Any

import pypdfium2

__all__ = ["stand_in"]

# Japanese, Korean, simplified and traditional Chinese, as Windows numbers character sets.
_EAST_ASIAN = frozenset({128, 129, 134, 136})
_ANY_CHARSET = 1
_HANDLE = 0x71DE
_NAME = b"Tidegate Squares\0"
_EM, _ASCENT, _DESCENT = 1000, 880, -120
_CHARACTERS = ((0x21, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x3FFFF))


def stand_in() -> None:
    """Ask pdfium to take the stand-in from now on; once a process."""
    if pypdfium2.PdfSysfontBase.SINGLETON is None:
        _StandIn().setup()


class _StandIn(pypdfium2.PdfSysfontBase):  # type: ignore[misc]
    """pdfium's own fonts, and ours for what they lack."""

    def MapFont(
        self, this: Any, weight: int, italic: int, charset: int, pitch: int, face: Any, exact: Any
    ) -> int | None:
        found: int | None = super().MapFont(this, weight, italic, charset, pitch, face, exact)
        return _HANDLE if not found and charset in _EAST_ASIAN else found

    def GetFontData(self, this: Any, font: int, table: int, buffer: Any, size: int) -> int:
        if font != _HANDLE:
            return int(super().GetFontData(this, font, table, buffer, size))
        return 0 if table else _filled(buffer, size, _font())

    def GetFaceName(self, this: Any, font: int, buffer: Any, size: int) -> int:
        if font != _HANDLE:
            return int(super().GetFaceName(this, font, buffer, size))
        return _filled(buffer, size, _NAME)

    def GetFontCharset(self, this: Any, font: int) -> int:
        return _ANY_CHARSET if font == _HANDLE else int(super().GetFontCharset(this, font))

    def DeleteFont(self, this: Any, font: int) -> None:
        if font != _HANDLE:
            super().DeleteFont(this, font)


def _filled(buffer: Any, size: int, content: bytes) -> int:
    if buffer and size >= len(content):
        ctypes.memmove(buffer, content, len(content))
    return len(content)


@cache
def _font() -> bytes:
    """A TrueType font of one glyph for all characters, by the tables of the OpenType specification."""
    groups = b"".join(struct.pack(">3I", first, last, 1) for first, last in _CHARACTERS)
    # Two triangles of a thousandth of an em, in opposite corners.
    right, up = (0, 1, 0, _EM - 2, 1, 0), (_DESCENT, 0, 1, _EM - 2, 0, 1)
    glyph = struct.pack(">5h2HH6B", 2, 0, _DESCENT, _EM, _ASCENT, 2, 5, 0, *[1] * 6) + struct.pack(">12h", *right, *up)
    tables = {
        b"cmap": struct.pack(">4HI2H3I", 0, 1, 3, 10, 12, 13, 0, 16 + len(groups), 0, len(_CHARACTERS)) + groups,
        b"glyf": glyph,
        b"head": struct.pack(
            ">4I2H2Q4h2H3h", 1 << 16, 1 << 16, 0, 0x5F0F3CF5, 0, _EM, 0, 0, 0, _DESCENT, _EM, _ASCENT, 0, 8, 2, 0, 0
        ),
        b"hhea": struct.pack(">I3hH11hH", 1 << 16, _ASCENT, _DESCENT, 0, _EM, 0, 0, _EM, 1, *[0] * 7, 1),
        b"hmtx": struct.pack(">Hhh", _EM, 0, 0),
        b"loca": struct.pack(">3H", 0, 0, len(glyph) // 2),
        b"maxp": struct.pack(">I14H", 1 << 16, 2, 6, 2, 0, 0, 1, *[0] * 8),
    }
    font = struct.pack(">I4H", 1 << 16, len(tables), 64, 2, len(tables) * 16 - 64)
    offset = len(font) + 16 * len(tables)
    content = b""
    for tag, table in sorted(tables.items()):
        font += struct.pack(">4s3I", tag, 0, offset + len(content), len(table))
        content += table + bytes(-len(table) % 4)
    return font + content
