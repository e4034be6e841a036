"""Takes the pictures out of RTF, leaving a mark where each stood.

The extraction library puts all of them at the end, and takes letters of a picture's description for its bytes
(kreuzberg 4.10.4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Picture", "take_pictures"]

# A group's bounds, an escaped byte or sign, a control word with its number, or bytes as they are after \bin.
_TOKEN = re.compile(rb"[{}]|\\'[0-9A-Fa-f]{2}|\\([A-Za-z]{1,32})(-?\d{1,10})? ?|\\[^A-Za-z]", re.DOTALL)
_NOT_HEX = re.compile(rb"[^0-9A-Fa-f]+")
_PICTURES = frozenset({b"pict", b"shppict", b"nonshppict"})
_KINDS = frozenset({b"pngblip", b"jpegblip"})
_DESCRIPTION = re.compile(rb"\{\\sn wzDescription\}\s*\{\\sv ([^{}]{1,500})\}")
_ESCAPED = re.compile(r"\\'([0-9a-fA-F]{2})|\\u(-?\d+) ?\??|\\[a-z]+-?\d* ?")
_MAX_PICTURES = 300


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG or JPEG (empty: of another kind) and what it is said to show."""

    data: bytes
    description: str


def take_pictures(rtf: bytes, mark: str) -> tuple[bytes, list[Picture]]:
    """Replace each picture by ``mark`` and its index, between spaces; second copies for old readers are dropped.

    Returns:
        The text without pictures, and the pictures.
    """
    kept: list[bytes] = []
    pictures: list[Picture] = []
    done = at = 0
    opened: list[int] = []
    while (token := _TOKEN.search(rtf, at)) is not None:
        at = _after(token)
        if token[0] == b"{":
            opened.append(token.start())
        elif token[0] == b"}":
            if opened:
                opened.pop()
        elif token[1] in _PICTURES and opened:
            start = opened.pop()
            at = _end_of_group(rtf, start)
            kept.append(rtf[done:start])
            done = at
            # In a group of its own within {\*\shppict …}, which readers skip as a whole.
            group = rtf[start:at]
            group = group[max(0, group.find(b"{\\pict")) :]
            if token[1] != b"nonshppict" and len(pictures) < _MAX_PICTURES:
                kept.append(f" {mark}{len(pictures)} ".encode("ascii"))
                pictures.append(_picture(group))
    return b"".join([*kept, rtf[done:]]), pictures


def _after(token: re.Match[bytes]) -> int:
    """Where to go on: the control word ``bin`` is followed by as many raw bytes as it says."""
    return token.end() + (max(0, int(token[2] or 0)) if token[1] == b"bin" else 0)


def _end_of_group(rtf: bytes, start: int) -> int:
    depth = 0
    at = start
    while (token := _TOKEN.search(rtf, at)) is not None:
        at = _after(token)
        if token[0] == b"{":
            depth += 1
        elif token[0] == b"}":
            depth -= 1
            if depth == 0:
                return at
    return len(rtf)


def _picture(group: bytes) -> Picture:
    """The bytes are what stands in the group itself: not its control words, nor the groups in it."""
    digits: list[bytes] = []
    raw = b""
    depth, at, known = 0, 0, False
    while (token := _TOKEN.search(group, at)) is not None:
        if depth == 1:
            digits.append(_NOT_HEX.sub(b"", group[at : token.start()]))
        at = min(_after(token), len(group))
        if token[0] == b"{":
            depth += 1
        elif token[0] == b"}":
            depth -= 1
        elif depth == 1 and token[1] == b"bin":
            raw += group[token.end() : at]
        elif depth == 1 and token[1] in _KINDS:
            known = True
    text = b"".join(digits)
    data = raw or bytes.fromhex(text[: len(text) // 2 * 2].decode("ascii"))
    said = _DESCRIPTION.search(group)
    return Picture(data if known else b"", _unescaped(said[1]) if said else "")


def _unescaped(said: bytes) -> str:
    return " ".join(_ESCAPED.sub(_character, said.decode("cp1252", "replace")).split())


def _character(match: re.Match[str]) -> str:
    if match[1]:
        return bytes([int(match[1], 16)]).decode("cp1252", "replace")
    if match[2]:
        code = int(match[2]) & 0xFFFF
        return "" if 0xD800 <= code <= 0xDFFF else chr(code)
    return ""
