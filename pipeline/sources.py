"""What the paths of an enqueue stand for: files, folders' files, or a reason why not; and what a file is."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from pipeline.documents.media import ARCHIVES
from pipeline.domain.document import MEMBER_MARK, Limits
from pipeline.domain.errors import RejectedInput

__all__ = [
    "BadSource",
    "FileFacts",
    "Sniff",
    "Source",
    "as_text",
    "find_sources",
    "member_uri",
    "read_file",
    "source_uri",
    "storable",
    "why_unreadable",
    "words_to_enqueue",
]

Sniff = Callable[[Path, bytes], str]
"""Tells a file's media type from its path and its first ``HEAD_BYTES``; ``RejectedInput`` when nobody reads such."""

HEAD_BYTES = 65_536
_CHUNK_BYTES = 1 << 20

_MAX_URI_BYTES = 2048  # an index entry of Postgres holds 2,700

# What can't be shown on one line or stored as text; a file's name may hold any of it.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Source:
    """A file to enqueue.

    Attributes:
        uri: What the document is known by: the absolute path as text.
        given: The path as the caller wrote it, as text.
    """

    uri: str
    given: str
    path: Path


@dataclass(frozen=True, slots=True)
class BadSource:
    """A path that stands for no file.

    Attributes:
        given: The path as the caller wrote it, as text.
        reason: Why, in words that follow "rejected:".
    """

    uri: str
    given: str
    reason: str


def source_uri(path: str | os.PathLike[str]) -> str:
    r"""The text that a file is known by: its absolute path, one line, in valid Unicode.

    A symlink keeps its own name. ``..`` is resolved as the file system does. Bytes that are no UTF-8, and controls,
    are written as ``\xNN``; a backslash that would read like one of those is escaped, so two files never meet.
    """
    given = os.fspath(path)
    if ".." in Path(given).parts:
        head, tail = os.path.split(given)
        # abspath would cut "link/.." as text and name another folder.
        given = os.path.realpath(given) if tail in ("", ".", "..") else os.path.join(os.path.realpath(head), tail)
    return as_text(os.path.abspath(given))


def member_uri(container_uri: str, name: str) -> str:
    """The text that a file in an archive or a mail is known by: ``/letters/may.zip!/reply.pdf``."""
    return f"{container_uri}{MEMBER_MARK}{as_text(name)}"


def words_to_enqueue(uri: str) -> str:
    """What follows ``tidegate enqueue`` to take a document in again: of a container's member, the container."""
    container, mark, _ = uri.partition(MEMBER_MARK)
    if not mark or os.path.lexists(uri):
        return quote(uri)
    return f"{quote(container)} --expand"


def find_sources(paths: Iterable[str | os.PathLike[str]], *, recursive: bool = False) -> Iterator[Source | BadSource]:
    """Yield the files that ``paths`` stand for, each once, in order; folders' files by name.

    A folder stands for its own files, with ``recursive`` for those of its subfolders too. Hidden entries are left
    out, and symlinked folders are not entered (a path given by name always counts).
    """
    seen: set[str] = set()
    for given in paths:
        for found in _expand(os.fspath(given), recursive):
            if found.uri not in seen:
                seen.add(found.uri)
                yield storable(found) if isinstance(found, Source) else found


def storable(source: Source) -> Source | BadSource:
    """A source as it is, or what is wrong with one whose uri is longer than can be kept."""
    if len(source.uri) <= _MAX_URI_BYTES // 4 or len(source.uri.encode()) <= _MAX_URI_BYTES:
        return source
    return BadSource(source.uri, source.given, f"its path is longer than {_MAX_URI_BYTES:,} bytes")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file as it was read, once.

    Attributes:
        digest: SHA-256 of its bytes, in hex; empty for an archive.
        data: All of its bytes, where it is small (``HEAD_BYTES``).
    """

    digest: str
    size_bytes: int
    media_type: str
    data: bytes | None


def read_file(path: Path, limits: Limits, sniff: Sniff) -> FileFacts:
    """Hash a file and tell its kind. An archive is no document, so its bytes are not read.

    Raises:
        RejectedInput: It is too large, or of a kind that nobody reads.
        OSError: It can't be read.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = _filled(file.read(HEAD_BYTES) or b"", file.read)
        media_type = _kind(path, head, size, limits, sniff)
        if media_type in ARCHIVES:
            return FileFacts("", size, media_type, None)
        hasher, size = hashlib.sha256(head), len(head)
        if size < HEAD_BYTES:
            return FileFacts(hasher.hexdigest(), size, media_type, head)
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
            size += len(chunk)
    return FileFacts(hasher.hexdigest(), size, media_type, None)


def _kind(path: Path, head: bytes, size: int, limits: Limits, sniff: Sniff) -> str:
    try:
        media_type = sniff(path, head)
    except RejectedInput:
        if size > limits.max_bytes:
            raise _too_large(size, "max_bytes", limits.max_bytes) from None
        raise
    limit = "max_archive_bytes" if media_type in ARCHIVES else "max_bytes"
    if size > (most := getattr(limits, limit)):
        raise _too_large(size, limit, most)
    return media_type


def _too_large(size: int, limit: str, most: int) -> RejectedInput:
    return RejectedInput("too_large", f"{size:,} bytes are above limits.{limit}, which is {most:,}")


def _filled(head: bytes, read: Callable[[int], bytes | None]) -> bytes:
    """A head that is short because the file is, and not because of how the system read it."""
    while len(head) < HEAD_BYTES and (more := read(HEAD_BYTES - len(head))):
        head += more
    return head


def why_unreadable(error: OSError | ValueError) -> str:
    """A file system error in a few words."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)


def _expand(given: str, recursive: bool) -> Iterator[Source | BadSource]:
    if not given:
        yield BadSource("", "", "an empty path")
        return
    try:
        uri = source_uri(given)
        mode = os.stat(given).st_mode
    except ValueError as error:
        yield BadSource(as_text(given), as_text(given), why_unreadable(error))
        return
    except OSError as error:
        reason = "a link to nothing" if os.path.islink(given) else why_unreadable(error)
        yield BadSource(source_uri(given), as_text(given), reason)
        return
    if stat.S_ISDIR(mode):
        yield from _folder(given, uri, recursive)
    elif stat.S_ISREG(mode):
        yield Source(uri, as_text(given), Path(given))
    else:
        yield BadSource(uri, as_text(given), "not a regular file")


def _folder(given: str, uri: str, recursive: bool) -> Iterator[Source | BadSource]:
    found, subfolders = 0, False
    # A stack and not recursion: trees may be deeper than Python's.
    waiting = [(given, uri)]
    while waiting:
        folder, folder_uri = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            found += 1
            yield BadSource(folder_uri, as_text(folder), why_unreadable(error))
            continue
        inner = []
        for entry in listed:
            entry_uri = f"{folder_uri.rstrip('/')}/{as_text(entry.name)}"
            try:
                is_folder, is_file = entry.is_dir(follow_symlinks=False), entry.is_file()
            except OSError as error:
                found += 1
                yield BadSource(entry_uri, as_text(entry.path), why_unreadable(error))
                continue
            if is_folder:
                subfolders = True
                inner.append((entry.path, entry_uri))
            elif is_file:
                found += 1
                yield Source(entry_uri, as_text(entry.path), Path(entry.path))
        if recursive:
            waiting.extend(reversed(inner))
    if not found:
        reason = "holds only folders; add --recursive" if subfolders and not recursive else "a folder without files"
        yield BadSource(uri, as_text(given), reason)


def as_text(name: str) -> str:
    decoded = os.fsencode(name.replace("\\x", "\\x5cx")).decode("utf-8", "backslashreplace")
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", decoded)
