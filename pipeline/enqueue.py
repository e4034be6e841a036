"""Enqueue: files become documents with a queued run, in slices, each accepted when its transaction has committed.

Per slice: read (``intake``), store the blobs, then one short transaction. While one slice is with Postgres the next
is read and stored. Whoever calls publishes afterwards (``dispatch``); what was committed and not published is found by
the dispatcher all the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from os import PathLike
from typing import Any, TypeVar
from uuid import UUID

from pipeline.domain.document import Limits
from pipeline.domain.errors import UsageError
from pipeline.intake import Intake, Read
from pipeline.passwords import Passwords
from pipeline.recipe import Recipe
from pipeline.sources import BadSource, Sniff, Source, why_unreadable
from pipeline.store.blob_rows import record_blobs
from pipeline.store.blobs import BlobSource, BlobStore, StoredBlob
from pipeline.store.documents import (
    Known,
    NewDocument,
    NewRun,
    collection_id_of,
    insert_documents,
    insert_runs,
    known_documents,
    lock_changed_runs,
    make_batch,
    make_collection,
    set_contents,
    upsert_documents,
)
from pipeline.store.runs import cancel_active_runs
from pipeline.store.schema import Run
from pipeline.store.session import Session, Sessions, transact
from pipeline.store.spaces import ensure_space

__all__ = ["EnqueueResult", "EnqueueState", "Enqueued", "enqueue"]

T = TypeVar("T")

SLICE_FILES = 1000
_NAME = re.compile(r"[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]{0,198}[^\s/\x00-\x1f\x7f])?")


class EnqueueState(StrEnum):
    """What became of a path. ``unchanged``: these bytes are live, or on their way, under the same recipe."""

    QUEUED = "queued"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Enqueued:
    """One path's outcome.

    Attributes:
        id: The document; None when it was rejected, or is new in a dry run.
        run: The run to wait for; None where there is none.
        path: The absolute path that the document is known by.
        given: The path as the caller wrote it, for messages.
        media_type: None when it was rejected.
        bytes: The file's length; None when it was rejected.
        reason: Why it was rejected; None otherwise.
    """

    path: str
    state: EnqueueState
    id: UUID | None = None
    run: int | None = None
    media_type: str | None = None
    bytes: int | None = None
    reason: str | None = None
    given: str = ""

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "id": str(self.id) if self.id else None,
            "run": self.run,
            "path": self.path,
            "media_type": self.media_type,
            "bytes": self.bytes,
            "state": self.state.value,
        }
        return document | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """What became of every path, in order.

    Attributes:
        batch_id: None in a dry run.
        batch_label: None in a dry run that named none.
    """

    batch_id: int | None
    batch_label: str | None
    collection: str
    documents: list[Enqueued]

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(document.state for document in self.documents)
        return {state.value: found[state] for state in EnqueueState}

    def to_json(self) -> dict[str, Any]:
        """As a program reads it; the documents are made one by one, since there may be very many."""
        return {
            "batch": {"id": self.batch_id, "label": self.batch_label, "collection": self.collection},
            "documents": (document.to_json() for document in self.documents),
            "counts": self.counts,
        }


@dataclass(frozen=True, slots=True)
class _Stored:
    """A file whose bytes are in the blob store."""

    source: Source
    file: NewDocument
    blob: StoredBlob


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A slice that is ready for its transaction.

    Attributes:
        order: The uris as they came, and in their places what is rejected.
        outcomes: What is settled already: unchanged at first sight, or not to be stored.
        known: The uris of those stored files that are documents already.
    """

    order: list[str | Enqueued]
    outcomes: dict[str, Enqueued]
    stored: list[_Stored]
    known: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Written:
    """What one transaction did: (document, run, whether the run is new) by uri, and the digests whose row is new."""

    documents: Mapping[str, tuple[UUID, int | None, bool]]
    new_rows: set[str]


class _Overtaken(Exception):
    """Another enqueue has made a document that we took for new: look again."""


@dataclass(frozen=True, slots=True)
class _Job:
    """What holds for every slice of one enqueue."""

    sessions: Sessions
    blobs: BlobStore
    recipe: Recipe
    recipe_digest: str
    collection_id: int
    batch_id: int
    space_id: int
    priority: int
    passwords: Passwords


def enqueue(
    sessions: Sessions,
    blobs: BlobStore,
    paths: Iterable[str | PathLike[str]],
    *,
    recipe: Recipe,
    limits: Limits,
    sniff: Sniff,
    collection: str = "default",
    label: str | None = None,
    priority: int = 5,
    recursive: bool = False,
    expand: bool = False,
    passwords: Passwords | None = None,
    dry_run: bool = False,
    on_slice: Callable[[Sequence[Enqueued]], None] | None = None,
) -> EnqueueResult:
    """Accept files. A bad path is rejected and the others go on.

    A file whose bytes are live, or on their way, under the same recipe is ``unchanged``. A changed one supersedes the
    run that is on its way. The same file enqueued twice at once gets one run. A mail's attachments are documents of
    their own, known by the mail's uri, ``!/`` and their names.

    Args:
        recipe: The collection's, as the configuration stands now.
        limits: What files and what is in them may come to.
        label: The batch's; None for a new one named for the day.
        priority: 0–9, 9 first.
        recursive: Whether folders stand for their subfolders' files as well.
        expand: Whether archives stand for the files in them; else they are rejected.
        passwords: What opens these documents; kept beside the blobs, under the document's id, and nowhere else.
        dry_run: Say what would be done, and store nothing.
        on_slice: Called after each commit with its documents, for progress and to dispatch early.

    Raises:
        UsageError: A name or the priority is off.
        ServiceUnavailable: Postgres or the blob store is away or full; the slices before are enqueued.
    """
    _check(collection, label, priority)
    documents: list[Enqueued] = []
    with Intake(limits, sniff, recursive, expand) as intake:
        slices = _slices(intake.read(paths), SLICE_FILES)
        if dry_run:
            for read in slices:
                documents += _foresee(sessions, collection, recipe.digest, read)
                intake.release(len(documents))
            return EnqueueResult(None, label, collection, documents)
        job, label = _begin(sessions, blobs, recipe, collection, label, priority, passwords or Passwords())
        for prepared in _ahead((_prepare(job, read) for read in slices), intake.stop):
            done = _accept(job, prepared)
            documents += done
            intake.release(len(documents))
            if on_slice is not None:
                on_slice(done)
    return EnqueueResult(job.batch_id, label, collection, documents)


def _check(collection: str, label: str | None, priority: int) -> None:
    for what, name in (("collection", collection), ("batch label", label)):
        if name is not None and not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} can't name a {what}", "use 1 to 200 characters, without '/' or line breaks")
    if not 0 <= priority <= 9:
        raise UsageError(f"the priority is {priority}", "use 0 to 9; 9 goes first, 5 is the default")


def _begin(
    sessions: Sessions,
    blobs: BlobStore,
    recipe: Recipe,
    collection: str,
    label: str | None,
    priority: int,
    passwords: Passwords,
) -> tuple[_Job, str]:
    embed = recipe.body["stages"]["embed"]
    space_id = ensure_space(sessions, embed["model"], embed["dim"])
    with sessions.begin() as session:
        collection_id = make_collection(session, collection)
        batch_id, made_label = make_batch(session, collection_id, label)
    job = _Job(sessions, blobs, recipe, recipe.digest, collection_id, batch_id, space_id, priority, passwords)
    return job, made_label


def _rejected(source: Source | BadSource, reason: str) -> Enqueued:
    return Enqueued(source.uri, EnqueueState.REJECTED, reason=reason, given=source.given)


def _file_of(read: Read) -> NewDocument:
    return NewDocument(read.source.uri, read.facts.digest, read.facts.media_type, read.facts.size_bytes)


def _foresee(
    sessions: Sessions, collection: str, recipe_digest: str, read: Sequence[Read | BadSource]
) -> Iterator[Enqueued]:
    with sessions() as session:
        collection_id = collection_id_of(session, collection)
        known = known_documents(session, collection_id, _uris(read)) if collection_id is not None else {}
    for one in read:
        if isinstance(one, BadSource):
            yield _rejected(one, one.reason)
            continue
        document = known.get(one.source.uri)
        run = document.run_that_did(one.facts.digest, recipe_digest) if document else None
        yield _outcome(one.source, _file_of(one), document.id if document else None, run, queued=run is None)


def _prepare(job: _Job, read: Sequence[Read | BadSource]) -> _Prepared:
    """Store what has to be stored of one slice."""
    order = [_rejected(one, one.reason) if isinstance(one, BadSource) else one.source.uri for one in read]
    outcomes: dict[str, Enqueued] = {}
    # What is unchanged at first sight costs no write at all.
    with job.sessions() as session:
        known = known_documents(session, job.collection_id, _uris(read))
    fresh: list[Read] = []
    for one in read:
        if isinstance(one, BadSource):
            continue
        document = known.get(one.source.uri)
        run = document.run_that_did(one.facts.digest, job.recipe_digest) if document else None
        # A newer run that came to nothing may have missed the blob: it is looked for, and stored again.
        if document and run and document.newest_run_id == run:
            outcomes[one.source.uri] = _outcome(one.source, _file_of(one), document.id, run, queued=False)
            if document.newest_is_active:
                _put_password(job, one.source.uri, document.id)
        else:
            fresh.append(one)
    stored = []
    for item in _store(job.blobs, fresh):
        if isinstance(item, Enqueued):
            outcomes[item.path] = item
        else:
            stored.append(item)
    return _Prepared(order, outcomes, stored, frozenset(known))


def _store(blobs: BlobStore, read: Sequence[Read]) -> Iterator[_Stored | Enqueued]:
    if not read:
        return
    put = blobs.put_all(
        [BlobSource(one.source.path, one.facts.digest, one.facts.size_bytes, one.facts.data) for one in read]
    )
    for one, blob in zip(read, put, strict=True):
        if isinstance(blob, OSError):
            yield _rejected(one.source, why_unreadable(blob))
            continue
        # Where the file has changed since it was hashed, the document is what was stored.
        file = replace(_file_of(one), digest=blob.digest, size_bytes=blob.size_bytes)
        yield _Stored(one.source, file, blob)


def _put_password(job: _Job, uri: str, document: UUID) -> None:
    password = job.passwords.of(uri)
    if password is not None:
        job.blobs.put_secret(str(document), password)


def _accept(job: _Job, prepared: _Prepared) -> list[Enqueued]:
    """Carry one slice through; the outcomes are in the order in which the paths came."""
    outcomes = dict(prepared.outcomes)
    if prepared.stored:
        files = [one.file for one in prepared.stored]
        written = _write(job, files, prepared.known)
        _restore_swept(job, prepared.stored, written.new_rows)
        for one in prepared.stored:
            document, run, queued = written.documents[one.file.uri]
            outcomes[one.file.uri] = _outcome(one.source, one.file, document, run, queued=queued)
    return [outcomes[one] if isinstance(one, str) else one for one in prepared.order]


def _write(job: _Job, files: Sequence[NewDocument], known: frozenset[str]) -> _Written:
    while True:
        new = [file for file in files if file.uri not in known]
        old = [file for file in files if file.uri in known]
        try:
            return transact(job.sessions, lambda session: _write_slice(session, job, new, old))  # noqa: B023 - run now
        except _Overtaken:
            with job.sessions() as session:
                known = frozenset(known_documents(session, job.collection_id, [file.uri for file in files]))


def _write_slice(session: Session, job: _Job, new: Sequence[NewDocument], old: Sequence[NewDocument]) -> _Written:
    """One slice's transaction. Runs are locked first, then blobs, then documents, as everybody does."""
    if old:
        lock_changed_runs(session, job.collection_id, old, job.recipe_digest)
    new_rows = record_blobs(session, ((file.digest, file.size_bytes, file.media_type) for file in (*new, *old)))
    made = _write_new(session, job, new) if new else {}
    again = _write_old(session, job, old) if old else {}
    written = {**made, **again}
    if job.passwords:
        # Before the commit: a worker may take the run up the moment after it.
        for uri, (document, _, queued) in written.items():
            if queued:
                _put_password(job, uri, document)
    return _Written(written, new_rows)


def _write_new(session: Session, job: _Job, files: Sequence[NewDocument]) -> dict[str, tuple[UUID, int | None, bool]]:
    made = insert_documents(
        session,
        job.collection_id,
        job.batch_id,
        files,
        recipe=job.recipe.body,
        recipe_digest=job.recipe_digest,
        space_id=job.space_id,
        priority=job.priority,
    )
    if len(made) < len(files):
        raise _Overtaken
    return {uri: (document, run, True) for uri, (document, run) in made.items()}


def _write_old(session: Session, job: _Job, files: Sequence[NewDocument]) -> dict[str, tuple[UUID, int | None, bool]]:
    """Documents that are there: their changed bytes, and new runs where they need them."""
    upsert_documents(session, job.collection_id, job.batch_id, files)
    # Read once more, now that the documents are ours: another enqueue may have been faster.
    known = known_documents(session, job.collection_id, [file.uri for file in files])
    superseded: list[int] = []
    to_queue: list[NewDocument] = []
    done: dict[str, int] = {}
    for file in files:
        document = known[file.uri]
        run = document.run_that_did(file.digest, job.recipe_digest)
        if document.newest_is_active and document.newest_run_id is not None and document.newest_run_id != run:
            superseded.append(document.newest_run_id)
        if run is None:
            to_queue.append(file)
        else:
            done[file.uri] = run
    if superseded:
        cancel_active_runs(session, Run.id.in_(superseded), "superseded: the file or its recipe has changed")
    queued = _queue_again(session, job, known, to_queue) if to_queue else {}
    return {
        file.uri: (known[file.uri].id, queued.get(known[file.uri].id, done.get(file.uri)), file.uri not in done)
        for file in files
    }


def _queue_again(
    session: Session, job: _Job, known: Mapping[str, Known], files: Sequence[NewDocument]
) -> dict[UUID, int]:
    set_contents(session, job.collection_id, job.batch_id, files)
    return insert_runs(
        session,
        job.collection_id,
        [NewRun(known[file.uri].id, file.digest, file.media_type, job.batch_id, job.priority) for file in files],
        recipe=job.recipe.body,
        recipe_digest=job.recipe_digest,
        space_id=job.space_id,
    )


def _restore_swept(job: _Job, stored: Iterable[_Stored], new_rows: set[str]) -> None:
    """Store a blob again that the sweep took between our look at the store and our commit (``record_blobs``)."""
    swept = [
        BlobSource(one.source.path, one.file.digest, one.file.size_bytes)
        for one in stored
        if one.file.digest in new_rows and not one.blob.created and not job.blobs.exists(one.file.digest)
    ]
    if swept:
        # Of a file that is gone or changed by now, the parse will say that it is to be enqueued again.
        job.blobs.put_all(swept)


def _outcome(source: Source, file: NewDocument, document: UUID | None, run: int | None, *, queued: bool) -> Enqueued:
    return Enqueued(
        path=file.uri,
        state=EnqueueState.QUEUED if queued else EnqueueState.UNCHANGED,
        id=document,
        run=run,
        media_type=file.media_type,
        bytes=file.size_bytes,
        given=source.given,
    )


def _ahead(items: Iterable[T], stop: Callable[[], None]) -> Iterator[T]:
    """The same items, each made in a thread while the one before is used; ``stop`` cuts that short when none is."""
    made = iter(items)
    nothing = object()
    with ThreadPoolExecutor(1, "enqueue") as pool:
        try:
            waiting = pool.submit(next, made, nothing)
            while (item := waiting.result()) is not nothing:
                waiting = pool.submit(next, made, nothing)
                yield item  # type: ignore[misc]
        finally:
            stop()


def _slices(items: Iterable[T], length: int) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, length)):
        yield part


def _uris(read: Sequence[Read | BadSource]) -> list[str]:
    return [one.source.uri for one in read if isinstance(one, Read)]
