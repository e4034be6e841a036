"""Documents as they are enqueued and looked up, in bulk: one statement a slice, whatever its length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import bindparam, select, text
from sqlalchemy.dialects.postgresql import JSON, JSONB, insert
from sqlalchemy.orm import Session

from pipeline.domain.run import ACTIVE_RUN_STATES
from pipeline.store.reader import reader_of
from pipeline.store.reports import document_named, unknown_document
from pipeline.store.schema import Batch, Collection, Document

__all__ = [
    "Known",
    "NewDocument",
    "NewRun",
    "collection_id_of",
    "find_document",
    "insert_documents",
    "insert_runs",
    "known_documents",
    "lock_changed_runs",
    "make_batch",
    "make_collection",
    "set_contents",
    "upsert_documents",
]

_ACTIVE = [state.value for state in ACTIVE_RUN_STATES]


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A file as it was read.

    Attributes:
        digest: SHA-256 of its bytes, in hex.
    """

    uri: str
    digest: str
    media_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to make, under the recipe that goes with the whole slice.

    Attributes:
        redo_of_id: The run it repeats, if any.
    """

    document_id: UUID
    digest: str
    media_type: str
    batch_id: int | None
    priority: int
    redo_of_id: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A stored document: its live run and its newest one, each with what it was made from."""

    id: UUID
    live_run_id: int | None
    live_from: tuple[str, str] | None
    newest_run_id: int | None
    newest_from: tuple[str, str] | None
    newest_is_active: bool

    def run_that_did(self, digest: str, recipe_digest: str) -> int | None:
        """The run that makes another of these bytes under this recipe needless: active, or live and unchallenged."""
        wanted = (digest, recipe_digest)
        if self.newest_is_active and self.newest_from == wanted:
            return self.newest_run_id
        return self.live_run_id if self.live_from == wanted else None


def collection_id_of(session: Session, name: str) -> int | None:
    return session.scalar(select(Collection.id).where(Collection.name == name))


def make_collection(session: Session, name: str) -> int:
    """The id of a collection, made if it is not there."""
    found = collection_id_of(session, name)
    if found is not None:
        return found
    session.execute(insert(Collection).values(name=name).on_conflict_do_nothing(index_elements=["name"]))
    return session.scalars(select(Collection.id).where(Collection.name == name)).one()


def make_batch(session: Session, collection_id: int, label: str | None) -> tuple[int, str]:
    """A batch's id and label: the one that has ``label``, or a new one named for the day (``2026-11-29-1``)."""
    if label is not None:
        session.execute(
            insert(Batch)
            .values(collection_id=collection_id, label=label)
            .on_conflict_do_nothing(index_elements=["collection_id", "label"])
        )
        return session.scalars(
            select(Batch.id).where(Batch.collection_id == collection_id, Batch.label == label)
        ).one(), label
    # One enqueue at a time numbers a collection's batches; the lock goes with the transaction.
    session.execute(select(Collection.id).where(Collection.id == collection_id).with_for_update(key_share=True))
    row = session.execute(_DAYS_BATCH, {"collection_id": collection_id}).one()
    return row.id, row.label


_DAYS_BATCH = text(
    r"""
    insert into batch (collection_id, label)
    select :collection_id, today.prefix || (1 + coalesce(max(substring(batch.label from '\d+$')::bigint), 0))
    from (select to_char(now() at time zone 'UTC', 'YYYY-MM-DD-') as prefix) today
    left join batch on batch.collection_id = :collection_id and batch.label ~ ('^' || today.prefix || '\d{1,9}$')
    group by today.prefix
    returning id, label
    """
)


def known_documents(session: Session, collection_id: int, uris: Sequence[str]) -> dict[str, Known]:
    """What is stored about sources, by their uri."""
    rows = session.execute(_KNOWN, {"collection_id": collection_id, "uris": list(uris), "active": _ACTIVE})
    return {
        row.source_uri: Known(
            id=row.id,
            live_run_id=row.live_run_id,
            live_from=(row.live_digest, row.live_recipe) if row.live_run_id is not None else None,
            newest_run_id=row.newest_run_id,
            newest_from=(row.newest_digest, row.newest_recipe) if row.newest_run_id is not None else None,
            newest_is_active=bool(row.newest_is_active),
        )
        for row in rows
    }


_KNOWN = text(
    """
    select document.id, document.source_uri,
           live.id as live_run_id, live.blob_digest as live_digest, live.recipe_digest as live_recipe,
           newest.id as newest_run_id, newest.blob_digest as newest_digest, newest.recipe_digest as newest_recipe,
           newest.state = any(cast(:active as text[])) as newest_is_active
    from document
    left join run live on live.id = document.live_run_id
    left join lateral (
        select id, state, blob_digest, recipe_digest from run
        where run.document_id = document.id order by run.id desc limit 1
    ) newest on true
    where document.collection_id = :collection_id and document.source_uri = any(cast(:uris as text[]))
    """
)


def lock_changed_runs(session: Session, collection_id: int, files: Sequence[NewDocument], recipe_digest: str) -> None:
    """Lock the active runs that these files supersede. Runs come first: publish holds one when it takes a document."""
    session.execute(
        _LOCK_CHANGED,
        {
            "collection_id": collection_id,
            "uris": [file.uri for file in files],
            "digests": [file.digest for file in files],
            "recipe_digest": recipe_digest,
            "active": _ACTIVE,
        },
    )


_LOCK_CHANGED = text(
    """
    select run.id
    from unnest(cast(:uris as text[]), cast(:digests as text[])) as file (uri, digest)
    join document on document.collection_id = :collection_id and document.source_uri = file.uri
    join run on run.document_id = document.id and run.state = any(cast(:active as text[]))
    where (run.blob_digest, run.recipe_digest) <> (file.digest, :recipe_digest)
    order by run.id
    for update of run
    """
)


def upsert_documents(session: Session, collection_id: int, batch_id: int | None, files: Sequence[NewDocument]) -> None:
    """Make the documents that are not there yet, and lock those that are until the transaction ends."""
    ordered = sorted(files, key=lambda file: file.uri)
    session.execute(
        _UPSERT_DOCUMENTS,
        {"collection_id": collection_id, "batch_id": batch_id, **_columns(ordered)},
    )


_UPSERT_DOCUMENTS = text(
    """
    insert into document (collection_id, batch_id, source_uri, blob_digest, media_type, size_bytes)
    select :collection_id, cast(:batch_id as bigint), file.*
    from unnest(cast(:uris as text[]), cast(:digests as text[]), cast(:media_types as text[]), cast(:sizes as bigint[]))
        as file
    on conflict (collection_id, source_uri) do update set size_bytes = document.size_bytes
    """
)


def set_contents(session: Session, collection_id: int, batch_id: int | None, files: Sequence[NewDocument]) -> None:
    """Give documents, which the caller has locked, the bytes that they will be processed from."""
    session.execute(
        _SET_CONTENTS,
        {"collection_id": collection_id, "batch_id": batch_id, **_columns(files)},
    )


_SET_CONTENTS = text(
    """
    update document
    set blob_digest = file.digest, media_type = file.media_type, size_bytes = file.size_bytes,
        batch_id = cast(:batch_id as bigint)
    from unnest(cast(:uris as text[]), cast(:digests as text[]), cast(:media_types as text[]), cast(:sizes as bigint[]))
        as file (uri, digest, media_type, size_bytes)
    where document.collection_id = :collection_id and document.source_uri = file.uri
    """
)


def insert_documents(
    session: Session,
    collection_id: int,
    batch_id: int | None,
    files: Sequence[NewDocument],
    *,
    recipe: dict[str, object],
    recipe_digest: str,
    space_id: int | None,
    priority: int,
) -> dict[str, tuple[UUID, int]]:
    """Make documents of sources that nothing was stored about, each with a queued run and its parse unit.

    Returns:
        By uri, the document and its run. A source that somebody else has enqueued meanwhile is not among them.
    """
    # By name, as everybody inserts them, so that two enqueues of the same files wait for each other in one direction
    # only. Runs are numbered in the order given.
    listed = sorted(
        (
            {"n": n, "uri": file.uri, "digest": file.digest, "media_type": file.media_type, "size": file.size_bytes}
            for n, file in enumerate(files)
        ),
        key=lambda file: str(file["uri"]),
    )
    rows = session.execute(
        _INSERT_DOCUMENTS,
        {
            "files": listed,
            "collection_id": collection_id,
            "batch_id": batch_id,
            "recipe": recipe,
            "recipe_digest": recipe_digest,
            "space_id": space_id,
            "priority": priority,
        },
    )
    return {row.source_uri: (row.document_id, row.run_id) for row in rows}


_INSERT_DOCUMENTS = text(
    """
    with file as materialized (
        select * from json_to_recordset(:files) as listed (n int, uri text, digest text, media_type text, size bigint)
    ), made as (
        insert into document (collection_id, batch_id, source_uri, blob_digest, media_type, size_bytes)
        select :collection_id, cast(:batch_id as bigint), uri, digest, media_type, size from file
        on conflict (collection_id, source_uri) do nothing
        returning id, source_uri, blob_digest, media_type
    ), runs as (
        insert into run (collection_id, recipe, recipe_digest, space_id, priority, batch_id,
                         document_id, blob_digest, media_type)
        select :collection_id, :recipe, :recipe_digest, cast(:space_id as bigint), cast(:priority as smallint),
               cast(:batch_id as bigint), made.id, made.blob_digest, made.media_type
        from made join file on file.uri = made.source_uri order by file.n
        returning id, document_id, priority, queued_at
    ), units as (
        insert into unit (run_id, collection_id, priority, queued_at, stage, ordinal)
        select id, :collection_id, priority, queued_at, 'parse', 0 from runs
    )
    select made.source_uri, made.id as document_id, runs.id as run_id
    from made join runs on runs.document_id = made.id
    """
).bindparams(bindparam("files", type_=JSON), bindparam("recipe", type_=JSONB))


def insert_runs(
    session: Session,
    collection_id: int,
    runs: Sequence[NewRun],
    *,
    recipe: dict[str, object],
    recipe_digest: str,
    space_id: int | None,
    redo_from: str | None = None,
    primary_only: bool = False,
) -> dict[UUID, int]:
    """Make queued runs of one recipe, each with its parse unit; returns the runs' ids by document."""
    rows = session.execute(
        _INSERT_RUNS,
        {
            "collection_id": collection_id,
            "recipe": recipe,
            "recipe_digest": recipe_digest,
            "space_id": space_id,
            "redo_from": redo_from,
            "primary_only": primary_only,
            "documents": [run.document_id for run in runs],
            "digests": [run.digest for run in runs],
            "media_types": [run.media_type for run in runs],
            "batches": [run.batch_id for run in runs],
            "priorities": [run.priority for run in runs],
            "redo_of": [run.redo_of_id for run in runs],
        },
    )
    return {row.document_id: row.id for row in rows}


_INSERT_RUNS = text(
    """
    with made as (
        insert into run (collection_id, recipe, recipe_digest, space_id, redo_from, primary_only,
                         document_id, blob_digest, media_type, batch_id, priority, redo_of_id)
        select :collection_id, :recipe, :recipe_digest, cast(:space_id as bigint),
               cast(:redo_from as text), cast(:primary_only as boolean), new.*
        from unnest(cast(:documents as uuid[]), cast(:digests as text[]), cast(:media_types as text[]),
                    cast(:batches as bigint[]), cast(:priorities as smallint[]), cast(:redo_of as bigint[])) as new
        returning id, document_id, priority, queued_at
    ), units as (
        insert into unit (run_id, collection_id, priority, queued_at, stage, ordinal)
        select id, :collection_id, priority, queued_at, 'parse', 0 from made
    )
    select id, document_id from made
    """
).bindparams(bindparam("recipe", type_=JSONB))


def find_document(session: Session, ref: str, *, as_uri: str | None = None) -> Document:
    """The document that ``ref`` names: an id, a unique prefix of one, or the path that was enqueued.

    Args:
        as_uri: ``ref`` as a source uri, should it be a path.

    Raises:
        UsageError: Nothing, or more than one document, goes by that name.
    """
    found = session.get(Document, document_named(reader_of(session), ref, as_uri=as_uri).id)
    if found is None:
        # It was deleted between the two statements.
        raise unknown_document(ref)
    return found


def _columns(files: Sequence[NewDocument]) -> dict[str, object]:
    return {
        "uris": [file.uri for file in files],
        "digests": [file.digest for file in files],
        "media_types": [file.media_type for file in files],
        "sizes": [file.size_bytes for file in files],
    }
