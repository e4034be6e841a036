"""UTF-16 and UTF-32 without a byte order mark, told from the first few KB."""

from __future__ import annotations

import codecs
import unicodedata
from collections import Counter

__all__ = ["wide_encoding"]

_SAMPLE_BYTES = 4096
_LEAST_BYTES = 8
_NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
_WHITE = frozenset("\t\n\r\x0b\x0c")
_CJK = (range(0x3000, 0xA000), range(0xAC00, 0xD7B0), range(0xF900, 0xFB00), range(0xFF00, 0xFFF0))
# A text's own script with Latin letters, digits and signs makes up this much of it.
_OF_ONE_SCRIPT = 0.9
# Spaces, line ends, digits: hardly any text is without them, and other bytes read as UTF-16 hardly have them.
_LEAST_LATIN = 0.01
_LEAST_NOT_ASCII = 0.1
_PRINTED = bytes([*range(0x20, 0x7F), *b"\t\n\r\x0b\x0c\0"])


def wide_encoding(data: bytes) -> str | None:
    """Python's name of the encoding if a file's first bytes are UTF-16 or UTF-32 without a mark."""
    sample = data[: min(_SAMPLE_BYTES, len(data)) // 4 * 4] or data
    if b"\0" not in sample:
        return None
    for encoding in ("utf-32-le", "utf-32-be"):
        text = _decoded(sample, encoding)
        if text is not None and len(sample) >= _LEAST_BYTES and _is_text(text):
            return encoding
    return _utf16_by_zeros(data[:_SAMPLE_BYTES]) or _utf16_by_script(data[:_SAMPLE_BYTES])


def _utf16_by_zeros(sample: bytes) -> str | None:
    """Nearly every second byte is zero, and all on the same side."""
    if len(sample) < 4:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def _utf16_by_script(sample: bytes) -> str | None:
    """Where few bytes are zero: it reads as text of one script, and as nothing else."""
    if len(sample) < _LEAST_BYTES or _is_narrow(sample):
        return None
    latin = {
        encoding: _latin_share(text)
        for encoding in ("utf-16-le", "utf-16-be")
        if (text := _decoded(sample, encoding)) is not None and _is_text(text) and _is_of_one_script(text)
    }
    # Read the wrong way round, Cyrillic looks Chinese, but for its spaces.
    best = max(latin, key=latin.__getitem__, default=None)
    return best if best is not None and latin[best] >= _LEAST_LATIN else None


def _is_narrow(sample: bytes) -> bool:
    """ASCII or UTF-8 with stray zeros."""
    if len(sample.translate(None, _PRINTED)) < _LEAST_NOT_ASCII * len(sample):
        return True
    text = _decoded(sample, "utf-8")
    return text is not None and not text.isascii()


def _decoded(sample: bytes, encoding: str) -> str | None:
    """A sample may end within a character."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeError:
        return None


def _is_text(text: str) -> bool:
    return all(char in _WHITE or unicodedata.category(char) not in _NO_TEXT for char in text)


def _is_of_one_script(text: str) -> bool:
    scripts = Counter(_script(char) for char in text)
    shared = scripts.pop("", 0)
    return bool(scripts) and shared + max(scripts.values()) >= _OF_ONE_SCRIPT * len(text)


def _script(char: str) -> str:
    code = ord(char)
    if code < 0x100 or 0x2000 <= code < 0x2100:
        return ""
    return "cjk" if any(code in block for block in _CJK) else f"{code >> 8:x}"


def _latin_share(text: str) -> float:
    return sum(char < "\x80" for char in text) / len(text)
