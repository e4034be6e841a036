"""A ZIP file's directory and entries, read without trust: what it declares is bounded, and never believed.

The standard library's reader loads a whole directory, refuses all of an archive for one name that is not in UTF-8, and
takes a lie about sizes for a short file. This one goes entry by entry. Layout: PKWARE's APPNOTE, 4.3 and 4.5.
"""

from __future__ import annotations

import bz2
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from pipeline.domain.errors import RejectedInput

__all__ = ["ZipEntry", "directory", "inflate"]

_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_CENTRAL, _LOCAL = b"PK\x01\x02", b"PK\x03\x04"
_END_BYTES, _MAX_COMMENT_BYTES = 22, 0xFFFF
_READ_BYTES = 1 << 16
_STORED, _DEFLATED, _BZIP2 = 0, 8, 12
_ENCRYPTED, _UTF8 = 0x1, 0x800
_UNKNOWN32 = 0xFFFFFFFF
_ZIP64_FIELD, _UNICODE_PATH_FIELD = 0x0001, 0x7075
_UNIX = 3


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """An entry as the directory declares it.

    Attributes:
        raw_name: The name's bytes, in whatever encoding.
        unicode_name: The name where the archive gives it in UTF-8 beside the other (Info-ZIP's field).
        packed_bytes: Length in the archive.
        size_bytes: Length when inflated, it says.
        at: Where its local header starts.
        mode: The Unix mode; 0 where it came from another system.
    """

    raw_name: bytes
    unicode_name: str | None
    flags: int
    method: int
    crc: int
    packed_bytes: int
    size_bytes: int
    at: int
    mode: int

    @property
    def is_encrypted(self) -> bool:
        return bool(self.flags & _ENCRYPTED)

    @property
    def says_utf8(self) -> bool:
        return bool(self.flags & _UTF8)

    @property
    def is_folder(self) -> bool:
        # One that holds something is a file, whatever it is called: in CP932 a letter may end with a backslash, too.
        return self.size_bytes == 0 and (self.raw_name.endswith((b"/", b"\\")) or stat.S_ISDIR(self.mode))


def directory(file: IO[bytes]) -> Iterator[ZipEntry]:
    """Yield a ZIP's entries, one read at a time; stop asking when it is too many.

    Raises:
        RejectedInput: ``corrupt``: it has no directory, or one that breaks off.
    """
    start, length, shift = _find_directory(file)
    done = 0
    while done < length:
        file.seek(start + done)
        fixed = file.read(46)
        if len(fixed) < 46 or fixed[:4] != _CENTRAL:
            raise RejectedInput("corrupt", "the archive's directory is damaged")
        system, flags, method = struct.unpack_from("<xBxxHH", fixed, 4)
        crc, packed, size, name_length, extra_length, comment_length = struct.unpack_from("<IIIHHH", fixed, 16)
        attributes, at = struct.unpack_from("<II", fixed, 38)
        name = file.read(name_length)
        extra = file.read(extra_length)
        if len(name) < name_length or len(extra) < extra_length:
            raise RejectedInput("corrupt", "the archive's directory breaks off")
        size, packed, at = _wide(extra, size, packed, at)
        mode = attributes >> 16 if system == _UNIX else 0
        yield ZipEntry(name, _unicode_name(extra, name), flags, method, crc, packed, size, at + shift, mode)
        done += 46 + name_length + extra_length + comment_length


def inflate(file: IO[bytes], entry: ZipEntry) -> Iterator[bytes]:
    """Yield what an entry really holds, in pieces of at most 64 KB; it never reads past the declared packed length.

    Raises:
        RejectedInput: ``password_required``, ``unsupported`` (the method) or ``corrupt``, which includes a length or
            a checksum that is not what the directory says.
    """
    if entry.is_encrypted:
        raise RejectedInput(
            "password_required", "it is encrypted in its archive; unpack that and enqueue what is in it"
        )
    header = b""
    if 0 <= entry.at <= file.seek(0, os.SEEK_END):
        file.seek(entry.at)
        header = file.read(30)
    if len(header) < 30 or header[:4] != _LOCAL:
        raise RejectedInput("corrupt", "the archive's directory points at no entry")
    name_length, extra_length = struct.unpack_from("<HH", header, 26)
    if file.read(name_length) != entry.raw_name:
        raise RejectedInput("corrupt", "the archive's directory gives it another name than its own header")
    file.seek(extra_length, os.SEEK_CUR)
    crc, size = 0, 0
    for piece in _unpacked(file, entry):
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        if size > entry.size_bytes:
            raise RejectedInput(
                "corrupt", f"it holds more than the {entry.size_bytes:,} bytes that its archive declares"
            )
        yield piece
    if size != entry.size_bytes:
        raise RejectedInput("corrupt", f"it holds {size:,} of the {entry.size_bytes:,} bytes that its archive declares")
    if crc != entry.crc:
        raise RejectedInput("corrupt", "its checksum is wrong")


def _unpacked(file: IO[bytes], entry: ZipEntry) -> Iterator[bytes]:
    packed = _packed(file, entry.packed_bytes)
    if entry.method == _STORED:
        yield from packed
    elif entry.method == _DEFLATED:
        yield from _deflated(packed)
    elif entry.method == _BZIP2:
        yield from _bzip2(packed)
    else:
        raise RejectedInput("unsupported", f"it is packed with a method that is not read (number {entry.method})")


def _packed(file: IO[bytes], left: int) -> Iterator[bytes]:
    while left > 0:
        data = file.read(min(left, _READ_BYTES))
        if not data:
            raise RejectedInput("corrupt", "the archive breaks off in it")
        left -= len(data)
        yield data


def _deflated(packed: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for data in packed:
            rest = data
            while rest and not inflater.eof:
                if piece := inflater.decompress(rest, _READ_BYTES):
                    yield piece
                rest = inflater.unconsumed_tail
        while not inflater.eof and (piece := inflater.decompress(b"", _READ_BYTES)):
            yield piece
    except zlib.error as exc:
        raise RejectedInput("corrupt", f"it can't be inflated: {exc}") from exc


def _bzip2(packed: Iterator[bytes]) -> Iterator[bytes]:
    inflater = bz2.BZ2Decompressor()
    try:
        for data in packed:
            rest = data
            while not inflater.eof:
                if piece := inflater.decompress(rest, _READ_BYTES):
                    yield piece
                if inflater.needs_input:
                    break
                rest = b""
    except (OSError, EOFError) as exc:
        raise RejectedInput("corrupt", f"it can't be inflated: {exc}") from exc


def _find_directory(file: IO[bytes]) -> tuple[int, int, int]:
    """Where the directory starts, its length, and what to add to its offsets (bytes that stand before the archive)."""
    end = file.seek(0, os.SEEK_END)
    tail_at = max(0, end - _END_BYTES - _MAX_COMMENT_BYTES)
    file.seek(tail_at)
    tail = file.read(_END_BYTES + _MAX_COMMENT_BYTES)
    found = tail.rfind(_END, 0, max(0, len(tail) - _END_BYTES + len(_END)))
    if found < 0:
        raise RejectedInput("corrupt", "the archive has no directory; it may be cut off")
    length, offset = struct.unpack_from("<II", tail, found + 12)
    ends_at = tail_at + found
    if found >= 20 and tail[found - 20 : found - 16] == _LOCATOR64:
        (wide_at,) = struct.unpack_from("<Q", tail, found - 12)
        for at in (wide_at, ends_at - 20 - 56):
            wide = _wide_end(file, at, ends_at)
            if wide is not None:
                length, offset = wide
                ends_at = at
                break
    start = ends_at - length
    if start < 0:
        raise RejectedInput("corrupt", "the archive's directory is longer than the archive")
    return start, length, start - offset


def _wide_end(file: IO[bytes], at: int, before: int) -> tuple[int, int] | None:
    if not 0 <= at <= before - 56:
        return None
    file.seek(at)
    record = file.read(56)
    if len(record) < 56 or record[:4] != _END64:
        return None
    length, offset = struct.unpack_from("<QQ", record, 40)
    return length, offset


def _wide(extra: bytes, size: int, packed: int, at: int) -> tuple[int, int, int]:
    """The lengths and the place, from the ZIP64 field where the directory's 32 bits are not enough."""
    field = _field(extra, _ZIP64_FIELD)
    values = []
    for value in (size, packed, at):
        if value == _UNKNOWN32 and len(field) >= 8:
            (value,) = struct.unpack_from("<Q", field)
            field = field[8:]
        values.append(value)
    return values[0], values[1], values[2]


def _unicode_name(extra: bytes, name: bytes) -> str | None:
    field = _field(extra, _UNICODE_PATH_FIELD)
    # It holds for the name that it was made for, which its checksum tells.
    if len(field) < 5 or struct.unpack_from("<I", field, 1)[0] != zlib.crc32(name):
        return None
    try:
        return field[5:].decode("utf-8")
    except UnicodeDecodeError:
        return None


def _field(extra: bytes, wanted: int) -> bytes:
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == wanted:
            return extra[at + 4 : at + 4 + length]
        at += 4 + length
    return b""
