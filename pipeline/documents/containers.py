"""What kind of document a ZIP or an OLE container holds, told from its directory alone."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from pipeline.documents import media
from pipeline.documents.zips import ZipEntry, directory, inflate
from pipeline.domain.errors import RejectedInput

__all__ = ["ole_media_type", "zip_media_type"]

_CONTENT_TYPES = "[Content_Types].xml"
_MIMETYPE = "mimetype"
_CATALOGUE_BYTES = 1 << 20
_MAX_ENTRIES = 20_000
_LOCAL_HEADER = re.compile(rb"PK\x03\x04.{22}(..)..", re.DOTALL)

_BY_CONTENT_TYPE: tuple[tuple[bytes, str], ...] = (
    (b"wordprocessingml.document.main", media.DOCX),
    (b"wordprocessingml.template.main", media.DOCX),
    (b"ms-word.document.macroEnabled.main", media.DOCX),
    (b"ms-word.template.macroEnabledTemplate.main", media.DOCX),
    (b"presentationml.presentation.main", media.PPTX),
    (b"presentationml.slideshow.main", media.PPTX),
    (b"presentationml.template.main", media.PPTX),
    (b"ms-powerpoint.presentation.macroEnabled.main", media.PPTX),
    (b"ms-powerpoint.slideshow.macroEnabled.main", media.PPTX),
    (b"spreadsheetml.sheet.main", media.XLSX),
    (b"spreadsheetml.template.main", media.XLSX),
    (b"ms-excel.sheet.macroEnabled.main", media.XLSX),
    (b"ms-excel.sheet.binary.macroEnabled.main", media.XLSX),
)
_BY_FOLDER: tuple[tuple[str, str], ...] = (("word/", media.DOCX), ("ppt/", media.PPTX), ("xl/", media.XLSX))
_BY_MIMETYPE: tuple[tuple[bytes, str], ...] = (
    (b"application/epub+zip", media.EPUB),
    (b"application/vnd.oasis.opendocument.text", media.ODT),
    (b"application/vnd.oasis.opendocument.spreadsheet", media.ODS),
    (b"application/vnd.oasis.opendocument.presentation", media.ODP),
)
_BY_SUFFIX: dict[str, str] = {
    ".docx": media.DOCX,
    ".docm": media.DOCX,
    ".pptx": media.PPTX,
    ".pptm": media.PPTX,
    ".xlsx": media.XLSX,
    ".xlsm": media.XLSX,
    ".odt": media.ODT,
    ".ods": media.ODS,
    ".odp": media.ODP,
    ".epub": media.EPUB,
}

_OLE_END = 0xFFFFFFFA  # values from here up are markers, not sectors
_OLE_MAX_SECTORS = 4096
_BY_STREAM: tuple[tuple[str, str], ...] = (
    # First: an encrypted package says nothing about what is in it.
    ("EncryptedPackage", media.ENCRYPTED_OFFICE),
    ("WordDocument", "application/msword"),
    ("Workbook", "application/vnd.ms-excel"),
    ("Book", "application/vnd.ms-excel"),
    ("PowerPoint Document", "application/vnd.ms-powerpoint"),
    ("__properties_version1.0", "application/vnd.ms-outlook"),
)


def zip_media_type(path: Path, head: bytes) -> str:
    """Tell which ZIP-based format a file is; ``application/zip`` for a plain archive.

    A file whose directory is gone is told by the names in its first entries, then by its own name, so that it is
    *taken* and then reported as corrupt instead of as something unknown.
    """
    try:
        with path.open("rb") as file:
            return _by_directory(file)
    except (RejectedInput, OSError, ValueError, OverflowError):
        names = _names_of_first_entries(head)
        told = _by_names(names)
        return told or _BY_SUFFIX.get(path.suffix.lower(), media.ZIP)


def _by_directory(file: BinaryIO) -> str:
    # What tells a format stands early, and an archive of millions of entries is no document.
    entries = {entry.raw_name.decode("utf-8", "replace"): entry for entry in islice(directory(file), _MAX_ENTRIES)}
    if _MIMETYPE in entries:
        declared = _start_of(file, entries[_MIMETYPE], 200).strip()
        for prefix, media_type in _BY_MIMETYPE:
            if declared.startswith(prefix):
                return media_type
    if _CONTENT_TYPES in entries:
        catalogue = _start_of(file, entries[_CONTENT_TYPES], _CATALOGUE_BYTES)
        for marker, media_type in _BY_CONTENT_TYPE:
            if marker in catalogue:
                return media_type
        return _by_names(entries) or media.ZIP
    return media.ZIP


def _start_of(file: BinaryIO, entry: ZipEntry, size: int) -> bytes:
    start = b""
    for piece in inflate(file, entry):
        start += piece
        if len(start) >= size:
            break
    return start[:size]


def _names_of_first_entries(head: bytes) -> list[str]:
    names = []
    for match in _LOCAL_HEADER.finditer(head):
        (length,) = struct.unpack("<H", match.group(1))
        names.append(head[match.end() : match.end() + length].decode("utf-8", "replace"))
    return names


def _by_names(names: Iterable[str]) -> str | None:
    for name in names:
        for folder, media_type in _BY_FOLDER:
            if name.startswith(folder):
                return media_type
    return None


def ole_media_type(path: Path) -> str | None:
    """Tell which OLE (compound file) format a file is; None when its directory names no known one.

    The layout is that of [MS-CFB]: a header, a FAT of 4-byte sector links, and a directory of 128-byte entries that
    start with their UTF-16 name.
    """
    try:
        with path.open("rb") as file:
            names = _ole_names(file)
    except (OSError, struct.error, OverflowError):
        return None
    for stream, media_type in _BY_STREAM:
        if stream in names:
            return media_type
    return None


def _ole_names(file: BinaryIO) -> set[str]:
    header = file.read(512)
    (shift,) = struct.unpack_from("<H", header, 30)
    if shift not in (9, 12):
        return set()
    size = 1 << shift
    (sector,) = struct.unpack_from("<I", header, 48)
    fat_sectors = [link for link in struct.unpack_from("<109I", header, 76) if link < _OLE_END]
    per_sector = size // 4
    names: set[str] = set()
    for _ in range(_OLE_MAX_SECTORS):
        if sector >= _OLE_END:
            break
        names |= _entry_names(_sector(file, sector, size))
        index, offset = divmod(sector, per_sector)
        if index >= len(fat_sectors):
            break
        (sector,) = struct.unpack_from("<I", _sector(file, fat_sectors[index], size), offset * 4)
    return names


def _sector(file: BinaryIO, number: int, size: int) -> bytes:
    file.seek((number + 1) * size)
    return file.read(size)


def _entry_names(sector: bytes) -> set[str]:
    names = set()
    for start in range(0, len(sector) - 127, 128):
        (length,) = struct.unpack_from("<H", sector, start + 64)
        if 2 < length <= 64:
            names.add(sector[start : start + length - 2].decode("utf-16-le", "replace"))
    return names
