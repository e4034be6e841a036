"""What the paths of an enqueue stand for: files, folders' files, or a reason why not; and what a file is."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.domain.errors import RejectedInput

__all__ = ["BadSource", "FileFacts", "Sniff", "Source", "find_sources", "read_file", "source_uri", "why_unreadable"]

Sniff = Callable[[Path, bytes], str]
"""Tells a file's media type from its path and its first ``HEAD_BYTES``; ``RejectedInput`` when nobody reads such."""

HEAD_BYTES = 65_536
_CHUNK_BYTES = 1 << 20

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
    return _as_text(os.path.abspath(given))


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
                yield found


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file as it was read, once.

    Attributes:
        digest: SHA-256 of its bytes, in hex.
        data: All of its bytes, where it is small (``HEAD_BYTES``).
    """

    digest: str
    size_bytes: int
    media_type: str
    data: bytes | None


def read_file(path: Path, max_bytes: int, sniff: Sniff) -> FileFacts:
    """Hash a file and tell its kind.

    Raises:
        RejectedInput: It is too large, or of a kind that nobody reads.
        OSError: It can't be read.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise RejectedInput("too_large", f"{size:,} bytes are above limits.max_bytes, which is {max_bytes:,}")
        head = _filled(file.read(HEAD_BYTES) or b"", file.read)
        media_type = sniff(path, head)
        hasher, size = hashlib.sha256(head), len(head)
        if size < HEAD_BYTES:
            return FileFacts(hasher.hexdigest(), size, media_type, head)
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
            size += len(chunk)
    return FileFacts(hasher.hexdigest(), size, media_type, None)


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
        yield BadSource(_as_text(given), _as_text(given), why_unreadable(error))
        return
    except OSError as error:
        reason = "a link to nothing" if os.path.islink(given) else why_unreadable(error)
        yield BadSource(source_uri(given), _as_text(given), reason)
        return
    if stat.S_ISDIR(mode):
        yield from _folder(given, uri, recursive)
    elif stat.S_ISREG(mode):
        yield Source(uri, _as_text(given), Path(given))
    else:
        yield BadSource(uri, _as_text(given), "not a regular file")


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
            yield BadSource(folder_uri, _as_text(folder), why_unreadable(error))
            continue
        inner = []
        for entry in listed:
            entry_uri = f"{folder_uri.rstrip('/')}/{_as_text(entry.name)}"
            try:
                is_folder, is_file = entry.is_dir(follow_symlinks=False), entry.is_file()
            except OSError as error:
                found += 1
                yield BadSource(entry_uri, _as_text(entry.path), why_unreadable(error))
                continue
            if is_folder:
                subfolders = True
                inner.append((entry.path, entry_uri))
            elif is_file:
                found += 1
                yield Source(entry_uri, _as_text(entry.path), Path(entry.path))
        if recursive:
            waiting.extend(reversed(inner))
    if not found:
        reason = "holds only folders; add --recursive" if subfolders and not recursive else "a folder without files"
        yield BadSource(uri, _as_text(given), reason)


def _as_text(name: str) -> str:
    decoded = os.fsencode(name.replace("\\x", "\\x5cx")).decode("utf-8", "backslashreplace")
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", decoded)
