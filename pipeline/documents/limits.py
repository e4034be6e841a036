"""Measures archives and markup before any library opens them: bombs are refused while they are still small."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from pathlib import Path
from typing import IO

from pipeline.domain.document import Limits
from pipeline.domain.errors import RejectedInput

__all__ = ["check_archive", "check_markup"]

_MAX_ENTRIES = 20_000
_MAX_DEPTH = 2
# Below this, any ratio is harmless: small XML packs a hundredfold.
_FREE_BYTES = 32 << 20
# What all entries may come to together: an Office file of limits.max_bytes never needs more.
_TIMES_MAX_BYTES = 8
_READ_BYTES = 1 << 18
_ENTITY = re.compile(rb"<!ENTITY|<\x00!\x00E\x00N\x00T\x00I\x00T\x00Y|\x00<\x00!\x00E\x00N\x00T\x00I\x00T\x00Y")
_OVERLAP = len(b"\x00<\x00!\x00E\x00N\x00T\x00I\x00T\x00Y")
_XML = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".svg", ".vml")
_ENCRYPTED = 0x1
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError)


class _Budget:
    """Bytes that may still come out of an archive and of those inside it."""

    def __init__(self, packed: int, limits: Limits) -> None:
        by_ratio = max(_FREE_BYTES, packed * limits.max_inflate_ratio)
        self.left = min(by_ratio, _TIMES_MAX_BYTES * limits.max_bytes)
        self.entries = _MAX_ENTRIES
        self._said = f"limits.max_inflate_ratio = {limits.max_inflate_ratio}, limits.max_bytes = {limits.max_bytes}"

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise RejectedInput("unsafe", f"it inflates to far more than its size ({self._said})")


def check_archive(path: Path, limits: Limits) -> None:
    """Inflate every entry, keeping nothing, and refuse what is not what it says.

    Raises:
        RejectedInput: ``unsafe`` (a bomb, lying sizes, overlapping entries, entities, archives nested too deeply),
            ``corrupt`` or ``password_required``.
    """
    with path.open("rb") as file:
        _check(file, path.stat().st_size, _Budget(path.stat().st_size, limits), depth=0)


def check_markup(data: bytes) -> None:
    """Refuse XML that declares entities: they multiply (a bomb) or reach out of the file, and no document needs them.

    Raises:
        RejectedInput: ``unsafe``.
    """
    if _ENTITY.search(data):
        raise RejectedInput("unsafe", "its XML declares entities")


def _check(file: IO[bytes], size: int, budget: _Budget, depth: int) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            budget.entries -= len(entries)
            if budget.entries < 0:
                raise RejectedInput("unsafe", f"the archive holds more than {_MAX_ENTRIES:,} entries")
            # Entries that share bytes (Fifield 2019) need more packed bytes than the file has.
            if sum(entry.compress_size for entry in entries) > size:
                raise RejectedInput("unsafe", "the archive's entries overlap")
            # What is declared is refused before anything is inflated.
            if sum(entry.file_size for entry in entries) > budget.left:
                budget.spend(budget.left + 1)
            for entry in entries:
                if entry.flag_bits & _ENCRYPTED:
                    raise RejectedInput("password_required", "the archive's entries are encrypted")
                if not entry.is_dir():
                    _inflate(archive, entry, budget, depth)
    except _BROKEN as exc:
        raise RejectedInput("corrupt", f"the archive is damaged: {exc}") from exc


def _inflate(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, budget: _Budget, depth: int) -> None:
    """Count what an entry really holds. ``zipfile`` stops at the declared size, so a lie shows as a wrong checksum."""
    is_markup = entry.filename.lower().endswith(_XML)
    kept = io.BytesIO()
    with archive.open(entry) as stream:
        head = stream.read(4)
        nested = head == b"PK\x03\x04"
        if nested and depth >= _MAX_DEPTH:
            raise RejectedInput("unsafe", "archives are nested too deeply")
        data, before = head, b""
        while data:
            budget.spend(len(data))
            if is_markup and _ENTITY.search(before + data):
                raise RejectedInput("unsafe", f"the XML in {entry.filename!r} declares entities")
            if nested:
                kept.write(data)
            before = data[-_OVERLAP:]
            data = stream.read(_READ_BYTES)
    if nested:
        kept.seek(0)
        _check(kept, kept.getbuffer().nbytes, budget, depth + 1)
