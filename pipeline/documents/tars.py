"""The files in a TAR archive, plain or compressed, read once from front to back."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, cast

from pipeline.documents.job import Job
from pipeline.documents.members import Found, found
from pipeline.domain.errors import RejectedInput

__all__ = ["is_tar", "tar_members", "tar_start"]

_HEAD_BYTES = 1024
_READ_BYTES = 1 << 16
_HEADER_BYTES = 512
_MAGIC_AT = 257
_CHECKSUM_AT = 148
_CHECKSUM = re.compile(rb"[ 0]*([0-7]{1,7})[ \0]{1,2}")
_GZIP, _BZIP2, _XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"
_XZ_MEMORY_BYTES = 128 << 20
# A block of up to 900,000 bytes comes out of bzip2 as a whole.
_BZIP2_BLOCK_BYTES = 1 << 20
_BROKEN = (
    tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, OverflowError, struct.error,
    RecursionError,
)  # fmt: skip


def is_tar(start: bytes) -> bool:
    """Whether a (decompressed) file begins with a TAR header: its mark tells, or the checksum of one without."""
    return start[_MAGIC_AT : _MAGIC_AT + 5] == b"ustar" or _is_checked(start[:_HEADER_BYTES])


def _is_checked(header: bytes) -> bool:
    said = header[_CHECKSUM_AT : _CHECKSUM_AT + 8]
    match = _CHECKSUM.fullmatch(said)
    # It is made with spaces in its own place.
    return match is not None and sum(header) - sum(said) + 8 * ord(" ") == int(match.group(1), 8)


def tar_start(path: Path, head: bytes) -> bytes:
    """The first KB of what a compressed file holds; nothing where it is not compressed, or not soundly.

    Args:
        head: The file's first 64 KB.
    """
    try:
        if head.startswith(_GZIP):
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
        if head.startswith(_BZIP2):
            with path.open("rb") as file:
                return bz2.BZ2Decompressor().decompress(file.read(_BZIP2_BLOCK_BYTES), _HEAD_BYTES)
        if head.startswith(_XZ):
            return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES).decompress(head, _HEAD_BYTES)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError):
        return b""
    return b""


def tar_members(job: Job) -> Iterator[Found | None]:
    """Yield an archive's files; None for a folder or what is hidden.

    Raises:
        RejectedInput: ``unsafe``: more comes out of it than the limits allow. ``corrupt``: it can't be read on.
    """
    most = max(job.limits.max_archive_bytes, job.path.stat().st_size)
    try:
        with job.path.open("rb") as file, _decompressed(file) as inner:
            # A stream is only ever read.
            counted = cast("IO[bytes]", _Counted(inner, most))
            with tarfile.open(
                fileobj=counted, mode="r|", tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
            ) as archive:
                for entry in archive:
                    yield None if entry.isdir() else _found(archive, entry)
    except _BROKEN as exc:
        raise _damaged(exc) from exc


class _Header(tarfile.TarInfo):
    """A damaged one raises: the library takes it for the archive's end, and what follows would be lost unseen."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as exc:
            # The end is empty, or zeros.
            if buf.strip(b"\0"):
                raise tarfile.ReadError(f"the header of what comes next is damaged ({exc})") from exc
            raise


def _damaged(exc: BaseException) -> RejectedInput:
    return RejectedInput("corrupt", f"it can't be read on: {exc}")


def _found(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> Found | None:
    problem = None
    if entry.issym() or entry.islnk():
        problem = RejectedInput("unsafe", "it is a link")
    elif not entry.isfile():
        problem = RejectedInput("unsafe", "it is no regular file")
    return found(entry.name, entry.size, _pieces(archive, entry), problem)


def _pieces(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> Iterator[bytes]:
    try:
        stream = archive.extractfile(entry)
        if stream is None:
            raise RejectedInput("corrupt", "the archive breaks off in it")
        with stream:
            while piece := stream.read(_READ_BYTES):
                yield piece
    except _BROKEN as exc:
        raise _damaged(exc) from exc


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    head = file.read(6)
    file.seek(0)
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if head.startswith(_BZIP2):
        return bz2.BZ2File(file)
    if head.startswith(_XZ):
        return lzma.LZMAFile(file)
    return file


@dataclass(slots=True)
class _Counted:
    """A stream that ends an archive which holds more than it may, also in what is skipped."""

    inner: IO[bytes]
    left: int

    def read(self, size: int) -> bytes:
        data = self.inner.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise RejectedInput("unsafe", "more comes out of it than limits.max_archive_bytes allows")
        return data
