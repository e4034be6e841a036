"""Archives for tests: sound ones from the standard library, hostile ones bent by hand."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable

__all__ = ["lying_zip", "raw_zip", "tarred", "zipped"]

Entries = Iterable[tuple[str, bytes]]


def zipped(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP of these names and contents, in this order."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o100644 << 16
            archive.writestr(info, content, method)
    return out.getvalue()


def raw_zip(
    *entries: tuple[bytes, bytes], flags: int = 0, mode: int = 0o100644, declared: int | None = None, copies: int = 1
) -> bytes:
    """A ZIP whose names are any bytes, and whose directory says what it likes.

    Args:
        flags: General purpose flags of each entry (1: encrypted, 0x800: UTF-8).
        mode: The Unix mode of each.
        declared: The length that each claims; None for the truth.
        copies: How many times the directory lists each.
    """
    body, listed = b"", b""
    for name, content in entries:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = packer.compress(content) + packer.flush()
        size = len(content) if declared is None else declared
        facts = struct.pack("<HHHHIIIHH", flags, 8, 0, 0x21, zlib.crc32(content), len(packed), size, len(name), 0)
        system = struct.pack("<BBH", 20, 3, 20)
        place = struct.pack("<HHHII", 0, 0, 0, mode << 16, len(body))
        listed += (b"PK\x01\x02" + system + facts + place + name) * copies
        body += b"PK\x03\x04" + struct.pack("<H", 20) + facts + name + packed
    return body + listed + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(listed), len(body), 0)


def lying_zip(content: bytes, declared: int) -> bytes:
    """One entry that holds something else than its declared length."""
    return raw_zip((b"lie.txt", content), declared=declared)


def tarred(*entries: tuple[tarfile.TarInfo | str, bytes], mode: str = "w") -> bytes:
    """A TAR; an entry is a name or a whole header."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for entry, content in entries:
            info = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            if info.isreg():
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
