"""Documents one by one, as people ask about them. Reads only, each a bounded number of statements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pipeline.domain.document import MEMBER_MARK
from pipeline.domain.errors import UsageError
from pipeline.domain.run import RunState
from pipeline.store.reader import Reader

__all__ = [
    "NEXT_TRY",
    "DocumentRow",
    "NamedDocument",
    "Scope",
    "StageCounts",
    "document_named",
    "documents_named",
    "list_documents",
    "scope_of",
    "unknown_document",
    "waiting_by_stage",
]

MIN_PREFIX_CHARS = 4
_ID_PREFIX = re.compile(r"[0-9a-f][0-9a-f-]{2,34}[0-9a-f-]")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which documents are asked about: those whose newest run is in it. Everything None is all.

    Attributes:
        batch_ids: The batches of one label; collections may share labels.
        failed: Only documents whose newest run failed.
    """

    collection_id: int | None = None
    batch_ids: tuple[int, ...] | None = None
    document_ids: tuple[UUID, ...] | None = None
    failed: bool = False

    def condition(self) -> tuple[str, dict[str, Any]]:
        """What a query's ``run`` has to meet beside being its document's newest, as SQL, with its values."""
        parts = ""
        values: dict[str, Any] = {}
        if self.collection_id is not None:
            parts += " and run.collection_id = %(collection_id)s"
            values["collection_id"] = self.collection_id
        if self.batch_ids is not None:
            parts += " and run.batch_id = any(cast(%(batch_ids)s as bigint[]))"
            values["batch_ids"] = list(self.batch_ids)
        if self.document_ids is not None:
            parts += " and run.document_id = any(cast(%(document_ids)s as uuid[]))"
            values["document_ids"] = list(self.document_ids)
        return parts, values


@dataclass(frozen=True, slots=True)
class NamedDocument:
    """A document that somebody named, with the path or name that it was enqueued by.

    Attributes:
        is_member: It was not named itself, but the archive or the mail that it came out of.
    """

    id: UUID
    uri: str
    collection: str
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class StageCounts:
    """A run's units of one stage."""

    stage: str
    total: int
    done: int
    parked: int
    failed: int
    degraded: int


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document and its newest run."""

    id: UUID
    uri: str
    collection: str
    batch: str | None
    run_id: int
    state: RunState
    live: bool
    incomplete: bool
    pages: int | None
    chunks: int
    attempts: int
    models: tuple[str, ...]
    failure_kind: str | None
    failure_detail: str | None
    resume_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    stages: tuple[StageCounts, ...]


def scope_of(
    reader: Reader,
    *,
    collection: str | None = None,
    batch: str | None = None,
    document_ids: Sequence[UUID] | None = None,
    failed: bool = False,
) -> Scope:
    """Look names up.

    Raises:
        UsageError: There is no such collection or batch.
    """
    collection_id = None
    if collection is not None:
        found = reader.rows("select id from collection where name = %(name)s", {"name": collection})
        if not found:
            raise UsageError(f"there is no collection {collection!r}", "its name comes from enqueue --collection")
        collection_id = found[0].id
    batch_ids = None
    if batch is not None:
        labelled = reader.rows(
            "select id from batch where label = %(label)s"
            " and (cast(%(collection_id)s as bigint) is null or collection_id = %(collection_id)s)",
            {"label": batch, "collection_id": collection_id},
        )
        batch_ids = tuple(row.id for row in labelled)
        if not batch_ids:
            raise UsageError(f"there is no batch {batch!r}", "enqueue prints a batch's label, and status shows it")
    return Scope(collection_id, batch_ids, tuple(document_ids) if document_ids is not None else None, failed)


def document_named(reader: Reader, ref: str, *, as_uri: str | None = None) -> NamedDocument:
    """The document that ``ref`` names: an id, a unique prefix of one, or the path that was enqueued.

    Args:
        as_uri: ``ref`` as a source uri, should it be a path.

    Raises:
        UsageError: Nothing, or more than one document, goes by that name.
    """
    found = _named(reader, ref, as_uri)
    if found is not None:
        return found
    if members := _members(reader, as_uri or ref.strip()):
        raise UsageError(
            f"{ref!r} is no document, and {len(members):,} came out of it", f"name one of them, as {members[0].uri!r}"
        )
    raise unknown_document(ref)


def documents_named(
    reader: Reader, ref: str, *, as_uri: str | None = None, with_members: bool = False
) -> list[NamedDocument]:
    """The document that ``ref`` names; where it names an archive, which is none itself, those that came out of it.

    Args:
        with_members: With what came out of a document, too: a mail's attachments.

    Raises:
        UsageError: Nothing goes by that name, or documents of more than one collection do.
    """
    found = _named(reader, ref, as_uri)
    if found is not None:
        members = _members(reader, found.uri) if with_members else []
        return [found, *(one for one in members if one.collection == found.collection)]
    members = _members(reader, as_uri or ref.strip())
    if not members:
        raise unknown_document(ref)
    if len(collections := sorted({one.collection for one in members})) > 1:
        raise UsageError(
            f"{ref!r} was enqueued into {len(collections)} collections ({', '.join(collections)})",
            "name its documents by their ids; list them: tidegate status",
        )
    return members


def unknown_document(ref: str) -> UsageError:
    """Nothing goes by that name."""
    short = f" (an id's start needs {MIN_PREFIX_CHARS} characters)" if len(ref.strip()) < MIN_PREFIX_CHARS else ""
    return UsageError(
        f"no document goes by {ref!r}{short}",
        "a document is named by its id, the start of one, or the path that was enqueued; list them: tidegate status",
    )


def _named(reader: Reader, ref: str, as_uri: str | None) -> NamedDocument | None:
    wanted = ref.strip()
    found = _by_prefix(reader, wanted.lower().replace("-", "")) if _ID_PREFIX.fullmatch(wanted.lower()) else []
    if len(found) > 1:
        listed = ", ".join(f"{str(document.id)[:13]} ({document.uri})" for document in found[:3])
        raise UsageError(f"{ref!r} is the start of more than one document's id: {listed}", "write more of the id")
    found = found or reader.rows(f"{_DOCUMENT} {_BY_PATH}", {"uris": [wanted, as_uri or wanted]})
    if len(found) > 1:
        names = ", ".join(f"{str(document.id)[:8]} in {document.collection}" for document in found)
        raise UsageError(f"{ref!r} was enqueued into {len(found)} collections", f"name one by its id: {names}")
    return NamedDocument(found[0].id, found[0].uri, found[0].collection) if found else None


def _by_prefix(reader: Reader, digits: str) -> Sequence[Any]:
    # Ids are compared as numbers, so that the primary key's index answers.
    if not re.fullmatch(r"[0-9a-f]{4,32}", digits):
        return []
    bounds = {"low": UUID(digits.ljust(32, "0")), "high": UUID(digits.ljust(32, "f"))}
    return reader.rows(f"{_DOCUMENT} {_BY_ID}", bounds)


def _members(reader: Reader, uri: str) -> list[NamedDocument]:
    rows = reader.rows(f"{_DOCUMENT} {_WITHIN}", {"prefix": f"{uri}{MEMBER_MARK}"})
    return [NamedDocument(row.id, row.uri, row.collection, is_member=True) for row in rows]


_DOCUMENT = """
    select document.id, document.source_uri as uri, collection.name as collection
    from document join collection on collection.id = document.collection_id
"""
_BY_ID = "where document.id between %(low)s and %(high)s order by document.id limit 4"
_BY_PATH = "where document.source_uri = any(cast(%(uris)s as text[])) order by document.created_at"
_WITHIN = "where starts_with(document.source_uri, %(prefix)s) order by document.source_uri"


def list_documents(reader: Reader, scope: Scope, limit: int) -> list[DocumentRow]:
    """The newest documents, the newest run first."""
    condition, values = scope.condition()
    if scope.failed:
        condition += " and run.state = 'failed'"
    rows = reader.rows(_LIST.format(condition=condition, next_try=NEXT_TRY), {**values, "limit": limit})
    stages: dict[int, list[StageCounts]] = {}
    for row in reader.rows(_STAGES, {"runs": [row.run_id for row in rows]}):
        counts = StageCounts(row.stage, row.total, row.done, row.parked, row.failed, row.degraded)
        stages.setdefault(row.run_id, []).append(counts)
    return [
        DocumentRow(
            id=row.id,
            uri=row.source_uri,
            collection=row.collection,
            batch=row.batch,
            run_id=row.run_id,
            state=RunState(row.state),
            live=row.live_run_id is not None,
            incomplete=row.incomplete,
            pages=row.page_count,
            chunks=row.chunks,
            attempts=row.attempts,
            models=tuple(row.models or ()),
            failure_kind=row.failure_kind,
            failure_detail=row.failure_detail,
            # What is due waits for its turn: its next try is now, and not in the past.
            resume_at=row.resume_at and max(row.resume_at, row.now),
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            stages=tuple(stages.get(row.run_id, ())),
        )
        for row in rows
    ]


def waiting_by_stage(reader: Reader) -> dict[str, int]:
    """Pending units of each stage, handed to the broker or not."""
    rows = reader.rows("select stage, count(*) as units from unit where state = 'pending' group by stage")
    return {row.stage: row.units for row in rows}


NEXT_TRY = """
    case when run.state = 'parked' then (
        select case when count(*) = 0 then run.resume_at
                    else min(case when chain_wait.stage is null then unit.resume_at
                                  when unit.resume_at is null or chain_wait.until is null then null
                                  else greatest(unit.resume_at, chain_wait.until) end) end
        from unit
        left join chain_wait on chain_wait.stage = unit.stage and chain_wait.primary_only = run.primary_only
        where unit.run_id = run.id and unit.state = 'parked'
    ) end
"""
"""When a parked ``run`` is looked at next: the soonest of its units, but not while their chain is closed."""

# The newest runs are looked for from the newest on, and the rest is read of those that are listed alone.
_LIST = """
    select document.id, document.source_uri, collection.name as collection, batch.label as batch,
           run.id as run_id, run.state, document.live_run_id, run.incomplete, run.page_count,
           run.failure_kind, run.failure_detail, {next_try} as resume_at, now() as now,
           document.created_at, run.started_at, run.finished_at,
           (select count(*) from chunk where chunk.run_id = run.id) as chunks,
           (select count(*) from attempt join run own on own.id = attempt.run_id
            where own.document_id = document.id)
           + (select count(*) from attempt where attempt.document_id = document.id) as attempts,
           (select array_agg(distinct answered_by) from unit
            where unit.run_id = run.id and unit.state = 'done' and answered_by is not null) as models
    from (
        select run.id from run
        where not exists (select from run newer where newer.document_id = run.document_id and newer.id > run.id)
          {condition}
        order by run.id desc limit %(limit)s
    ) listed
    join run on run.id = listed.id
    join document on document.id = run.document_id
    join collection on collection.id = run.collection_id
    left join batch on batch.id = run.batch_id
    order by run.id desc
"""

_STAGES = """
    select run_id, stage, count(*) as total,
           count(*) filter (where state = 'done') as done,
           count(*) filter (where state = 'parked') as parked,
           count(*) filter (where state = 'failed') as failed,
           count(*) filter (where degraded and state = 'done') as degraded
    from unit where run_id = any(cast(%(runs)s as bigint[]))
    group by run_id, stage
"""
