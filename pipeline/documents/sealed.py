"""Mails that are wrapped in their signature (S/MIME's signed-data, RFC 8551, 3.5.2): text that anybody may read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.errors import MessageError

__all__ = ["unwrapped"]

_KINDS = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_OID = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07"
_SIGNED, _DATA = _OID + b"\x02", _OID + b"\x01"
_CONTENT, _OCTETS, _PIECES = 0xA0, 0x04, 0x24
# What the wrapping says of itself, with the lines that go on.
_OF_WRAPPING = re.compile(rb"^(?:content-[a-z-]+|mime-version):.*\n(?:[ \t].*\n)*", re.IGNORECASE | re.MULTILINE)
_HEAD_END = re.compile(rb"\r?\n\r?\n")


def unwrapped(mail: bytes) -> bytes:
    """A mail as it was before it was wrapped in its signature, under its own headers; any other as it is."""
    end = _HEAD_END.search(mail)
    if end is None or b"pkcs7-mime" not in mail[: end.start()].lower():
        return mail
    try:
        message = message_from_bytes(mail, policy=policy.compat32)
        sealed = message.get_payload(decode=True) if message.get_content_type() in _KINDS else None
    except (MessageError, ValueError, LookupError, AttributeError, TypeError):
        return mail
    held = _held(sealed) if isinstance(sealed, bytes) else b""
    return _OF_WRAPPING.sub(b"", mail[: end.start()] + b"\n") + held if held else mail


def _held(sealed: bytes) -> bytes:
    """What is signed; nothing where that is encrypted, or not there."""
    signed = sealed.find(_SIGNED, 0, 64)
    at = sealed.find(_DATA, signed) if signed >= 0 else -1
    if at < 0:
        return b""
    try:
        tag, _, at = _opened(sealed, at + len(_DATA))
        return b"".join(_octets(sealed, at)) if tag == _CONTENT else b""
    except IndexError:
        return b""


def _octets(data: bytes, at: int) -> Iterator[bytes]:
    """The pieces of a string of octets, which may be one; a program that did not know its length has written many."""
    tag, length, at = _opened(data, at)
    if tag == _OCTETS:
        yield data[at : at + length]
        return
    end = at + length if length else len(data)
    while tag == _PIECES and at < end:
        kind, length, at = _opened(data, at)
        if kind != _OCTETS:
            return
        yield data[at : at + length]
        at += length


def _opened(data: bytes, at: int) -> tuple[int, int, int]:
    """A value's tag, its length (0 where it ends by a mark) and where it begins (X.690, 8.1)."""
    length = data[at + 1]
    if length < 0x80:
        return data[at], length, at + 2
    size = length & 0x7F
    return data[at], int.from_bytes(data[at + 2 : at + 2 + size], "big"), at + 2 + size
