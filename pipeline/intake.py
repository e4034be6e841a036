"""What an enqueue takes in: files, and the files in those that hold others, each read once.

A mail's attachments always count, what is in an archive on demand. Both are taken apart in a limited child, into
temporary folders that live until their members are accepted.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from types import TracebackType

from pipeline.documents import attachments, media, outlook, sandbox
from pipeline.documents.job import Job, Member, PutOff, Rejected
from pipeline.domain.document import Limits
from pipeline.domain.errors import ChildDied, RejectedInput, ServiceUnavailable
from pipeline.sources import (
    BadSource,
    FileFacts,
    Sniff,
    Source,
    find_sources,
    member_uri,
    read_file,
    storable,
    why_unreadable,
)

__all__ = ["Intake", "Read"]

_GLANCES: dict[str, Callable[[bytes], bool]] = {
    media.EML: attachments.may_have_attachments,
    media.MSG: outlook.may_have_attachments,
}
_UNPACKER = "pipeline.documents.unpack"
# Most bytes of small files that are kept in memory from reading them until they are stored, of so many files.
_KEPT_BYTES = 16 << 20
_KEPT_FILES = 1000
# An archive in an archive, or a mail in one: more is not what people do, and a quine does nothing else.
_MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Read:
    """A file that was read: where it lies, and what it is, with its bytes as long as they are held."""

    source: Source
    facts: FileFacts


@dataclass(slots=True)
class _Left:
    """What may still come out of a container and all that is nested in it."""

    bytes: int
    members: int
    depth: int = 0


@dataclass(slots=True)
class Intake:
    """Reads sources; a context, on whose end what was unpacked is gone.

    Attributes:
        limits: ``max_bytes`` holds for each file, ``max_archive_bytes``, ``max_members`` and ``max_inflate_ratio`` for
            what comes out of a container, ``parse_seconds`` and ``parse_memory_mb`` for the child that takes it apart.
        recursive: Whether folders stand for their subfolders' files as well.
        expand: Whether archives stand for the files in them.
    """

    limits: Limits
    sniff: Sniff
    recursive: bool = False
    expand: bool = False
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _folders: dict[Path, int | None] = field(default_factory=dict)
    _members: set[str] = field(default_factory=set)
    _count: int = 0
    _kept_bytes: int = 0

    def __enter__(self) -> Intake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._remove(list(self._folders))

    def stop(self) -> None:
        """End what is being taken apart; from any thread."""
        self._stopped.set()

    def read(self, paths: Iterable[str | PathLike[str]]) -> Iterator[Read | BadSource]:
        """Yield what the paths stand for: each file as it was read, or why it can't be taken. No uri is read twice.

        Raises:
            ServiceUnavailable: The temporary folder's disk is full.
            CancelledError: It was stopped.
        """
        for source in find_sources(paths, recursive=self.recursive):
            for one in self._take(source, None):
                self._count += 1
                if self._count % _KEPT_FILES == 0:
                    self._kept_bytes = 0
                yield one

    def release(self, count: int) -> None:
        """Say that the first ``count`` of what was read are accepted: their temporary files may go."""
        with self._lock:
            done = [folder for folder, last in self._folders.items() if last is not None and last <= count]
        self._remove(done)

    def _remove(self, folders: Iterable[Path]) -> None:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            with self._lock:
                self._folders.pop(folder, None)

    def _take(self, source: Source | BadSource, left: _Left | None) -> Iterator[Read | BadSource]:
        if isinstance(source, BadSource):
            yield source
            return
        try:
            facts = read_file(source.path, self.limits, self.sniff)
            if facts.media_type in media.ARCHIVES and not self.expand:
                raise RejectedInput(
                    "unsupported", f"{media.ARCHIVES[facts.media_type]}; add --expand to take what is in it"
                )
            holds_more = facts.media_type in media.ARCHIVES or self._has_attachments(source, facts)
        except RejectedInput as error:
            yield BadSource(source.uri, source.given, str(error))
            return
        except OSError as error:
            yield BadSource(source.uri, source.given, why_unreadable(error))
            return
        if facts.media_type not in media.ARCHIVES:
            yield self._kept(source, facts)
        if holds_more:
            yield from self._members_of(source, facts.media_type, left)

    def _has_attachments(self, source: Source, facts: FileFacts) -> bool:
        may_have = _GLANCES.get(facts.media_type)
        if may_have is None:
            return False
        return may_have(facts.data if facts.data is not None else source.path.read_bytes())

    def _kept(self, source: Source, facts: FileFacts) -> Read:
        if facts.data is None:
            return Read(source, facts)
        if self._kept_bytes + facts.size_bytes > _KEPT_BYTES:
            return Read(source, replace(facts, data=None))
        self._kept_bytes += facts.size_bytes
        return Read(source, facts)

    def _members_of(self, container: Source, media_type: str, left: _Left | None) -> Iterator[Read | BadSource]:
        left = left or _Left(self.limits.max_archive_bytes, self.limits.max_members)
        folder = self._new_folder()
        left.depth += 1
        found = 0
        for source in self._unpack(container, media_type, folder, left):
            found += 1
            yield from self._take(source, left)
        left.depth -= 1
        if not found and media_type in media.ARCHIVES:
            yield BadSource(container.uri, container.given, "an archive without files")
        with self._lock:
            # The last of them is counted when this ends.
            self._folders[folder] = self._count

    def _new_folder(self) -> Path:
        try:
            folder = Path(tempfile.mkdtemp(prefix="tidegate-unpack-"))
        except OSError as error:
            raise ServiceUnavailable(
                f"no temporary folder can be made: {why_unreadable(error)}", "free some space, or set TMPDIR"
            ) from error
        with self._lock:
            self._folders[folder] = None
        return folder

    def _unpack(self, container: Source, media_type: str, folder: Path, left: _Left) -> list[Source | BadSource]:
        """A container's members as files of the folder, and what was wrong with the others and with itself."""
        if left.depth > _MAX_DEPTH:
            return [_whole(container, media_type, "unsafe: archives are nested too deeply")]
        limits = replace(self.limits, max_archive_bytes=max(0, left.bytes), max_members=max(0, left.members))
        job = Job(container.path.resolve(), media_type, limits, folder)
        sources: list[Source | BadSource] = []
        try:
            for event in sandbox.run(job, seconds=limits.parse_seconds, stopped=self._stopped.is_set, module=_UNPACKER):
                match event:
                    case Member():
                        sources.append(self._source_of(event, container, folder))
                        left.bytes -= event.size_bytes
                        left.members -= 1
                    case Rejected(kind=kind, detail=detail):
                        # What breaks off has told the truth so far; what is hostile is not believed at all.
                        kept = sources if kind == "corrupt" else []
                        return [*kept, _whole(container, media_type, f"{kind}: {detail}")]
                    case PutOff(fact=fact, remedy=remedy):
                        raise ServiceUnavailable(fact, remedy)
                    case _:
                        pass
        except (RejectedInput, ChildDied) as error:
            return [_whole(container, media_type, str(error))]
        return sources

    def _source_of(self, member: Member, container: Source, folder: Path) -> Source | BadSource:
        uri = member_uri(container.uri, member.name)
        given = member_uri(container.given, member.name)
        if member.problem is not None:
            return BadSource(uri, given, ": ".join(member.problem))
        if uri in self._members:
            return BadSource(uri, given, "unsafe: another file in it has the same name")
        self._members.add(uri)
        path = folder / f"{member.number}{member.suffix}"
        # The child handles hostile bytes: what it left is looked at, not believed.
        if path.parent != folder or not stat.S_ISREG(path.lstat().st_mode):
            return BadSource(uri, given, "corrupt: nothing came out of it")
        return storable(Source(uri, given, path))


def _whole(container: Source, media_type: str, reason: str) -> BadSource:
    """What is wrong with a container itself. A mail is a document all the same, under its own uri."""
    if media_type in media.ARCHIVES:
        return BadSource(container.uri, container.given, reason)
    return BadSource(member_uri(container.uri, ""), member_uri(container.given, ""), f"its attachments: {reason}")
