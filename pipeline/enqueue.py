"""Enqueue: files become documents with a queued run, in slices, each accepted when its transaction has committed.

Per slice: read (hash, sniff), store the blobs, then one short transaction. Whoever calls publishes afterwards
(``dispatch``); what was committed and not published is found by the dispatcher all the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from pipeline.domain.document import Limits
from pipeline.domain.errors import RejectedInput, UsageError
from pipeline.recipe import Recipe
from pipeline.sources import BadSource, Source, find_sources, why_unreadable
from pipeline.store.blob_rows import record_blobs
from pipeline.store.blobs import BlobStore, StoredBlob, digest_of
from pipeline.store.documents import (
    Known,
    NewDocument,
    NewRun,
    collection_id_of,
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

__all__ = ["EnqueueResult", "EnqueueState", "Enqueued", "Sniff", "enqueue"]

T = TypeVar("T")

SLICE_FILES = 1000
_STORERS = 16
_NAME = re.compile(r"[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]{0,198}[^\s/\x00-\x1f\x7f])?")

Sniff = Callable[[Path], str]
"""Tells a file's media type from its bytes; ``RejectedInput`` when nobody reads such a file."""


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
        return {
            "batch": {"id": self.batch_id, "label": self.batch_label, "collection": self.collection},
            "documents": [document.to_json() for document in self.documents],
            "counts": self.counts,
        }


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was read: what it is, and where it lies."""

    source: Source
    file: NewDocument


@dataclass(frozen=True, slots=True)
class _Stored:
    file: NewDocument
    blob: StoredBlob


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
    password: str | None


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
    password: str | None = None,
    dry_run: bool = False,
    on_slice: Callable[[Sequence[Enqueued]], None] | None = None,
) -> EnqueueResult:
    """Accept files. A bad path is rejected and the others go on.

    A file whose bytes are live, or on their way, under the same recipe is ``unchanged``. A changed one supersedes the
    run that is on its way. The same file enqueued twice at once gets one run.

    Args:
        recipe: The collection's, as the configuration stands now.
        limits: Only ``max_bytes`` counts here.
        label: The batch's; None for a new one named for the day.
        priority: 0–9, 9 first.
        recursive: Whether folders stand for their subfolders' files as well.
        password: Opens these documents; kept beside the blobs, under the document's id, and nowhere else.
        dry_run: Say what would be done, and store nothing.
        on_slice: Called after each commit with its documents, for progress and to dispatch early.

    Raises:
        UsageError: A name or the priority is off.
        ServiceUnavailable: Postgres or the blob store is away or full; the slices before are enqueued.
    """
    _check(collection, label, priority)
    documents: list[Enqueued] = []
    found = (_read(source, limits, sniff) for source in find_sources(paths, recursive=recursive))
    if dry_run:
        for read in _slices(found, SLICE_FILES):
            documents += _foresee(sessions, collection, recipe.digest, read)
        return EnqueueResult(None, label, collection, documents)
    job, label = _begin(sessions, blobs, recipe, collection, label, priority, password)
    for read in _slices(found, SLICE_FILES):
        done = _accept(job, read)
        documents += done
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
    password: str | None,
) -> tuple[_Job, str]:
    embed = recipe.body["stages"]["embed"]
    space_id = ensure_space(sessions, embed["model"], embed["dim"])
    with sessions.begin() as session:
        collection_id = make_collection(session, collection)
        batch_id, made_label = make_batch(session, collection_id, label)
    job = _Job(sessions, blobs, recipe, recipe.digest, collection_id, batch_id, space_id, priority, password)
    return job, made_label


def _read(source: Source | BadSource, limits: Limits, sniff: Sniff) -> _Read | Enqueued:
    if isinstance(source, BadSource):
        return Enqueued(source.uri, EnqueueState.REJECTED, reason=source.reason, given=source.given)
    try:
        size = source.path.stat().st_size
        if size > limits.max_bytes:
            return _rejected(
                source, f"too_large: {size:,} bytes are above limits.max_bytes, which is {limits.max_bytes:,}"
            )
        media_type = sniff(source.path)
        digest, size = digest_of(source.path)
    except RejectedInput as error:
        return _rejected(source, str(error))
    except OSError as error:
        return _rejected(source, why_unreadable(error))
    return _Read(source, NewDocument(source.uri, digest, media_type, size))


def _rejected(source: Source, reason: str) -> Enqueued:
    return Enqueued(source.uri, EnqueueState.REJECTED, reason=reason, given=source.given)


def _foresee(
    sessions: Sessions, collection: str, recipe_digest: str, read: Sequence[_Read | Enqueued]
) -> Iterator[Enqueued]:
    with sessions() as session:
        collection_id = collection_id_of(session, collection)
        known = known_documents(session, collection_id, _uris(read)) if collection_id is not None else {}
    for one in read:
        if isinstance(one, Enqueued):
            yield one
            continue
        document = known.get(one.file.uri)
        run = document.run_that_did(one.file.digest, recipe_digest) if document else None
        yield _outcome(one.source, one.file, document.id if document else None, run, queued=run is None)


def _accept(job: _Job, read: Sequence[_Read | Enqueued]) -> list[Enqueued]:
    """Carry one slice through; the outcomes are in the order of ``read``."""
    outcomes: dict[str, Enqueued] = {one.path: one for one in read if isinstance(one, Enqueued)}
    # What is unchanged at first sight costs no write at all.
    with job.sessions() as session:
        known = known_documents(session, job.collection_id, _uris(read))
    fresh: list[_Read] = []
    for one in read:
        if isinstance(one, Enqueued):
            continue
        document = known.get(one.file.uri)
        run = document.run_that_did(one.file.digest, job.recipe_digest) if document else None
        if document and run and (not document.newest_is_active or document.newest_run_id == run):
            outcomes[one.file.uri] = _outcome(one.source, one.file, document.id, run, queued=False)
        else:
            fresh.append(one)
    stored: dict[str, tuple[Source, _Stored]] = {}
    for item, source in _store(job.blobs, fresh):
        if isinstance(item, Enqueued):
            outcomes[item.path] = item
        else:
            stored[item.file.uri] = (source, item)
    if stored:
        files = [item.file for _, item in stored.values()]
        documents, queued, new_rows = transact(job.sessions, lambda session: _write(session, job, files))
        _restore_swept(job, stored.values(), new_rows)
        for uri, (source, item) in stored.items():
            document = documents[uri]
            run = queued.get(document.id)
            done = run or document.run_that_did(item.file.digest, job.recipe_digest)
            outcomes[uri] = _outcome(source, item.file, document.id, done, queued=run is not None)
    return [outcomes[one.path if isinstance(one, Enqueued) else one.file.uri] for one in read]


def _store(blobs: BlobStore, read: Sequence[_Read]) -> Iterator[tuple[_Stored | Enqueued, Source]]:
    """Put files into the blob store, several at once: most of the time goes into waiting for the disk."""

    def put(one: _Read) -> tuple[_Stored | Enqueued, Source]:
        try:
            blob = blobs.put_path(one.source.path, digest=one.file.digest)
        except OSError as error:
            return _rejected(one.source, why_unreadable(error)), one.source
        # The file may have changed since it was hashed: the document is what was stored.
        file = replace(one.file, digest=blob.digest, size_bytes=blob.size_bytes)
        return _Stored(file, blob), one.source

    if not read:
        return
    with ThreadPoolExecutor(_STORERS, "blobs") as pool:
        yield from pool.map(put, read)


def _write(
    session: Session, job: _Job, files: Sequence[NewDocument]
) -> tuple[dict[str, Known], dict[UUID, int], set[str]]:
    """One slice's transaction: (documents by uri, new runs by document, digests whose row is new)."""
    lock_changed_runs(session, job.collection_id, files, job.recipe_digest)
    new_rows = record_blobs(session, ((file.digest, file.size_bytes, file.media_type) for file in files))
    upsert_documents(session, job.collection_id, job.batch_id, files)
    # Read once more, now that the documents are ours: another enqueue may have been faster.
    known = known_documents(session, job.collection_id, [file.uri for file in files])
    superseded: list[int] = []
    to_queue: list[NewDocument] = []
    for file in files:
        document = known[file.uri]
        run = document.run_that_did(file.digest, job.recipe_digest)
        if document.newest_is_active and document.newest_run_id is not None and document.newest_run_id != run:
            superseded.append(document.newest_run_id)
        if run is None:
            to_queue.append(file)
    if superseded:
        cancel_active_runs(session, Run.id.in_(superseded), "superseded: the file or its recipe has changed")
    if not to_queue:
        return known, {}, new_rows
    set_contents(session, job.collection_id, job.batch_id, to_queue)
    queued = insert_runs(
        session,
        job.collection_id,
        [NewRun(known[file.uri].id, file.digest, file.media_type, job.batch_id, job.priority) for file in to_queue],
        recipe=job.recipe.body,
        recipe_digest=job.recipe_digest,
        space_id=job.space_id,
    )
    if job.password is not None:
        # Before the commit: a worker may take the run up the moment after it.
        for document_id in queued:
            job.blobs.put_secret(str(document_id), job.password)
    return known, queued, new_rows


def _restore_swept(job: _Job, stored: Iterable[tuple[Source, _Stored]], new_rows: set[str]) -> None:
    """Store a blob again that the sweep took between our look at the store and our commit (``record_blobs``)."""
    for source, item in stored:
        if item.file.digest in new_rows and not item.blob.created and not job.blobs.exists(item.file.digest):
            job.blobs.put_path(source.path)


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


def _slices(items: Iterable[T], length: int) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, length)):
        yield part


def _uris(read: Sequence[_Read | Enqueued]) -> list[str]:
    return [one.file.uri for one in read if isinstance(one, _Read)]
