"""The files in a ZIP archive."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import IO

from pipeline.documents.encodings import decode
from pipeline.documents.job import Job
from pipeline.documents.members import Found, allowance, found
from pipeline.documents.zips import ZipEntry, directory, inflate
from pipeline.domain.errors import RejectedInput

__all__ = ["zip_members"]

_JAPANESE = range(0x3041, 0x30FF)
_HALF_WIDTH = range(0xFF61, 0xFFA0)
_BOXES = range(0x2500, 0x25A0)


def zip_members(job: Job) -> Iterator[Found | None]:
    """Yield an archive's files; None for a folder or what is hidden.

    Raises:
        RejectedInput: ``unsafe``: it declares more files or bytes than the limits allow, or entries that overlap.
            ``corrupt``: its directory is damaged.
    """
    with job.path.open("rb") as file:
        entries = _declared(file, job)
        legacy = _legacy_encoding(entries)
        for entry in entries:
            yield None if entry.is_folder else _found(file, entry, legacy)


def _declared(file: IO[bytes], job: Job) -> list[ZipEntry]:
    """The whole directory, once it has been looked at as a whole: before a byte is inflated."""
    entries: list[ZipEntry] = []
    limits, packed = job.limits, 0
    for entry in directory(file):
        entries.append(entry)
        packed += entry.packed_bytes
        if len(entries) > limits.max_members:
            raise RejectedInput("unsafe", "it holds more files than limits.max_members allows")
    # Entries that share bytes (Fifield 2019) need more packed bytes than the file has.
    if packed > job.path.stat().st_size:
        raise RejectedInput("unsafe", "its entries overlap")
    # What is too large by itself is not inflated.
    most, said = allowance(job)
    if sum(entry.size_bytes for entry in entries if entry.size_bytes <= limits.max_bytes) > most:
        raise RejectedInput("unsafe", said)
    return entries


def _found(file: IO[bytes], entry: ZipEntry, legacy: str) -> Found | None:
    problem = None
    if stat.S_ISLNK(entry.mode):
        problem = RejectedInput("unsafe", "it is a symbolic link")
    elif stat.S_IFMT(entry.mode) and not stat.S_ISREG(entry.mode):
        problem = RejectedInput("unsafe", "it is no regular file")
    name = _name(entry, legacy).replace("\\", "/")
    return found(name, entry.size_bytes, inflate(file, entry), problem)


def _name(entry: ZipEntry, legacy: str) -> str:
    if entry.unicode_name is not None:
        return entry.unicode_name
    try:
        # Many write UTF-8 without saying so.
        return entry.raw_name.decode("utf-8")
    except UnicodeDecodeError:
        return entry.raw_name.decode("utf-8", "surrogateescape") if entry.says_utf8 else entry.raw_name.decode(legacy)


def _legacy_encoding(entries: list[ZipEntry]) -> str:
    """CP932 where the names that are no UTF-8 are Japanese, else CP437, which is the format's own."""
    names = [entry.raw_name for entry in entries if not entry.says_utf8 and not _is_utf8(entry.raw_name)]
    if not names:
        return "cp437"
    if not all(_fits(name, "cp932") for name in names):
        return "cp437"
    text = decode(b"\n".join(names))
    return "cp932" if any(ord(c) in _JAPANESE for c in text) or _is_kanji(b"\n".join(names)) else "cp437"


def _is_kanji(names: bytes) -> bool:
    """Names without kana: as CP437 they would have lines for boxes in them, which no name has.

    So would Chinese and Korean ones; but those, as CP932, are nearly all half-width kana.
    """
    has_boxes = any(ord(c) in _BOXES for c in names.decode("cp437"))
    return has_boxes and not any(ord(c) in _HALF_WIDTH for c in names.decode("cp932"))


def _is_utf8(name: bytes) -> bool:
    return _fits(name, "utf-8")


def _fits(name: bytes, encoding: str) -> bool:
    try:
        name.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
