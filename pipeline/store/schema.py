"""The tables. Postgres is the truth: a unit is done because its row says so, and nothing is counted by incrementing.

All timestamps are ``timestamptz`` from the database's clock. Ids of documents are random UUIDs (a short prefix names
one); what only the program names is a bigint.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    Sequence,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    func,
)
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pipeline.domain.call import Outcome
from pipeline.domain.run import ACTIVE_RUN_STATES, RunState
from pipeline.domain.unit import Stage, UnitState

__all__ = [
    "WAKES",
    "Attempt",
    "Base",
    "Batch",
    "Blob",
    "ChainWait",
    "ChunkRow",
    "Collection",
    "Document",
    "Embedding",
    "EmbeddingSpace",
    "Installation",
    "Page",
    "Run",
    "Spend",
    "TargetSwitch",
    "Unit",
    "Worker",
]


def _one_of(column: str, values: type[Stage] | type[RunState] | type[UnitState] | type[Outcome]) -> str:
    return f"{column} in ({', '.join(repr(value.value) for value in values)})"


_ACTIVE = f"state in ({', '.join(repr(s.value) for s in RunState if s in ACTIVE_RUN_STATES)})"
_NOW = func.now()


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads this attribute as it is
        str: Text,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[dict[str, Any]]: JSONB,
        list[str]: ARRAY(Text),
        float: Double,
        bytes: LargeBinary,
        UUID: Uuid,
    }


WAKES = Sequence("wake_seq", metadata=Base.metadata)
"""Numbers the slices that are handed to the broker."""


class Installation(Base):
    """One row: who this installation is, so that two of them can share a Redis without seeing each other.

    ``fingerprint_key`` keys the hashes that tell accounts apart in target keys.
    """

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("singleton", name="singleton"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    singleton: Mapped[bool] = mapped_column(unique=True, server_default=sql("true"))
    fingerprint_key: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class Collection(Base):
    """A set of documents that is searched together, by the vectors of one active embedding space.

    ``next_space_id``: the space that its documents are being embedded into; it becomes the active one when all are.
    ``former_space_id``: the one before the last switch, while vectors that were carried along for it are left.
    """

    __tablename__ = "collection"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    active_space_id: Mapped[int | None] = mapped_column(ForeignKey("embedding_space.id"))
    next_space_id: Mapped[int | None] = mapped_column(ForeignKey("embedding_space.id"))
    former_space_id: Mapped[int | None] = mapped_column(ForeignKey("embedding_space.id"))
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class Batch(Base):
    """What was enqueued together under one label."""

    __tablename__ = "batch"
    __table_args__ = (UniqueConstraint("collection_id", "label"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collection.id", ondelete="CASCADE"))
    label: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class Blob(Base):
    """Content-addressed bytes outside the database (originals and page images); deleted when no row refers to it."""

    __tablename__ = "blob"

    digest: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    media_type: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class Document(Base):
    """A source path in a collection. ``live_run_id`` is the generation that search sees."""

    __tablename__ = "document"
    __table_args__ = (UniqueConstraint("collection_id", "source_uri"), Index(None, "batch_id"))

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    collection_id: Mapped[int] = mapped_column(ForeignKey("collection.id", ondelete="CASCADE"))
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batch.id", ondelete="SET NULL"))
    source_uri: Mapped[str]
    title: Mapped[str | None]
    blob_digest: Mapped[str] = mapped_column(ForeignKey("blob.digest"), index=True)
    media_type: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    live_run_id: Mapped[int | None] = mapped_column(
        ForeignKey("run.id", use_alter=True, ondelete="SET NULL"), unique=True
    )
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class Run(Base):
    """One processing of one document's bytes under one recipe.

    ``primary_only``: a redo of degraded units, which parks rather than accept another fallback.
    ``redo_of_id``: the run that this one was requeued from; ``redo_from``: from this stage on nothing is reused.
    ``parked_since``: since when it has waited without progress; it is kept while a canary tries.
    """

    __tablename__ = "run"
    __table_args__ = (
        CheckConstraint(_one_of("state", RunState), name="state"),
        CheckConstraint("priority between 0 and 9", name="priority"),
        Index("uq_run_active_document", "document_id", unique=True, postgresql_where=sql(_ACTIVE)),
        Index(
            "ix_run_queued",
            "collection_id",
            sql("priority desc"),
            "queued_at",
            "id",
            postgresql_where=sql("state = 'queued'"),
        ),
        Index("ix_run_parked", "resume_at", postgresql_where=sql("state = 'parked'")),
        Index("ix_run_primary_only", "id", postgresql_where=sql("primary_only")),
        Index(None, "document_id", "id"),
        Index(None, "batch_id"),
        # Deleting a run looks here for the runs that redo it.
        Index(None, "redo_of_id", postgresql_where=sql("redo_of_id is not null")),
        Index(None, "state"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    document_id: Mapped[UUID] = mapped_column(ForeignKey("document.id", ondelete="CASCADE"))
    collection_id: Mapped[int] = mapped_column(ForeignKey("collection.id", ondelete="CASCADE"))
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batch.id", ondelete="SET NULL"))
    blob_digest: Mapped[str] = mapped_column(ForeignKey("blob.digest"), index=True)
    media_type: Mapped[str]
    recipe: Mapped[dict[str, Any]]
    recipe_digest: Mapped[str]
    space_id: Mapped[int | None] = mapped_column(ForeignKey("embedding_space.id"))
    priority: Mapped[int] = mapped_column(SmallInteger, server_default=sql("5"))
    state: Mapped[str] = mapped_column(server_default=sql("'queued'"))
    primary_only: Mapped[bool] = mapped_column(server_default=sql("false"))
    redo_from: Mapped[str | None]
    redo_of_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="SET NULL"))
    page_count: Mapped[int | None]
    incomplete: Mapped[bool] = mapped_column(server_default=sql("false"))
    failure_kind: Mapped[str | None]
    failure_detail: Mapped[str | None]
    resume_at: Mapped[datetime | None]
    parked_since: Mapped[datetime | None]
    queued_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class Page(Base):
    """What parse found on one page; the models' results are on its units."""

    __tablename__ = "page"
    __table_args__ = (CheckConstraint("state in ('ok', 'failed')", name="state"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(server_default=sql("'ok'"))
    failure_kind: Mapped[str | None]
    failure_detail: Mapped[str | None]
    text_layer: Mapped[str]
    text_format: Mapped[str]
    text_quality: Mapped[str]
    has_figures: Mapped[bool]
    blank: Mapped[bool]
    width_pt: Mapped[float]
    height_pt: Mapped[float]
    image_digest: Mapped[str | None] = mapped_column(ForeignKey("blob.digest"), index=True)
    image_media_type: Mapped[str | None]
    image_purged: Mapped[bool] = mapped_column(server_default=sql("false"))


class Unit(Base):
    """The smallest piece of work that is leased, paid for and remembered: (run, stage, ordinal).

    Ordinals: 0 for parse and chunk, the page's number for describe and format, the chunk's for retrieve and embed.
    ``wake``: the slice that last carried it; slices in the window are counted from these rows.
    ``output``: the stage's result (describe: text; format: markdown; retrieve: context, keywords, questions).
    """

    __tablename__ = "unit"
    __table_args__ = (
        UniqueConstraint("run_id", "stage", "ordinal"),
        CheckConstraint(_one_of("stage", Stage), name="stage"),
        CheckConstraint(_one_of("state", UnitState), name="state"),
        CheckConstraint("(state = 'leased') = (lease_token is not null)", name="lease"),
        Index("ix_unit_claim", "run_id", "stage", "ordinal", postgresql_where=sql("state = 'pending'")),
        Index("ix_unit_state", "run_id", "stage", "state"),
        Index(
            "ix_unit_undispatched",
            "stage",
            "collection_id",
            sql("priority desc"),
            "queued_at",
            "id",
            postgresql_where=sql("state = 'pending' and dispatched_at is null"),
        ),
        Index(
            "ix_unit_dispatched",
            "stage",
            "dispatched_at",
            postgresql_where=sql("state = 'pending' and dispatched_at is not null"),
        ),
        Index(
            "ix_unit_parked",
            "stage",
            sql("priority desc"),
            "resume_at",
            "id",
            postgresql_where=sql("state = 'parked'"),
        ),
        Index(
            "ix_unit_suspect",
            "stage",
            sql("priority desc"),
            "lost_leases",
            "queued_at",
            "id",
            postgresql_where=sql("state = 'pending' and lost_leases > 0"),
        ),
        Index("ix_unit_lease", "lease_expires_at", postgresql_where=sql("state = 'leased'")),
        # With this condition it is never taken for one that finds results, whatever statistics say.
        Index("ix_unit_finished", "finished_at", postgresql_where=sql("state = 'done' and finished_at is not null")),
        Index("ix_unit_degraded", "run_id", postgresql_where=sql("state = 'done' and degraded")),
        Index(
            "ix_unit_reuse",
            "collection_id",
            "stage",
            "input_digest",
            postgresql_where=sql("state = 'done'"),
        ),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    collection_id: Mapped[int] = mapped_column(BigInteger)
    priority: Mapped[int] = mapped_column(SmallInteger)
    queued_at: Mapped[datetime]
    stage: Mapped[str]
    ordinal: Mapped[int]
    state: Mapped[str] = mapped_column(server_default=sql("'pending'"))
    dispatched_at: Mapped[datetime | None]
    wake: Mapped[int | None] = mapped_column(BigInteger)
    lease_token: Mapped[UUID | None]
    lease_expires_at: Mapped[datetime | None]
    leased_at: Mapped[datetime | None]
    leased_by: Mapped[str | None]
    lost_leases: Mapped[int] = mapped_column(server_default=sql("0"))
    calls: Mapped[int] = mapped_column(server_default=sql("0"))
    input_digest: Mapped[str | None]
    rejected_by: Mapped[list[str]] = mapped_column(server_default=sql("'{}'"))
    degraded: Mapped[bool] = mapped_column(server_default=sql("false"))
    reused: Mapped[bool] = mapped_column(server_default=sql("false"))
    answered_by: Mapped[str | None]
    output: Mapped[dict[str, Any] | None]
    failure_kind: Mapped[str | None]
    failure_detail: Mapped[str | None]
    resume_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class Attempt(Base):
    """One call to one target, never overwritten; ``exhausted`` rows end a call without an answer.

    It has no foreign key to unit: history outlives what retention deletes, and begins are written in bulk. Where that
    has deleted its run, ``document_id`` and ``former_run_id`` say whose it was.
    """

    __tablename__ = "attempt"
    __table_args__ = (
        CheckConstraint(_one_of("outcome", Outcome), name="outcome"),
        Index(None, "run_id", "id"),
        Index(None, "target", "started_at"),
        Index(None, "document_id", postgresql_where=sql("document_id is not null")),
        Index("ix_attempt_open", "started_at", postgresql_where=sql("outcome = 'running'")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    document_id: Mapped[UUID | None] = mapped_column(ForeignKey("document.id", ondelete="CASCADE"))
    former_run_id: Mapped[int | None] = mapped_column(BigInteger)
    unit_id: Mapped[int | None] = mapped_column(BigInteger)
    stage: Mapped[str | None]
    role: Mapped[str]
    call_id: Mapped[str]
    position: Mapped[int] = mapped_column(SmallInteger)
    target: Mapped[str | None]
    preset: Mapped[str | None]
    outcome: Mapped[str] = mapped_column(server_default=sql("'running'"))
    kind: Mapped[str | None]
    status: Mapped[int | None]
    message: Mapped[str | None]
    skipped: Mapped[list[dict[str, Any]]] = mapped_column(server_default=sql("'[]'"))
    started_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    ttft_ms: Mapped[int | None]
    duration_ms: Mapped[int | None]
    tokens_in: Mapped[int | None]
    tokens_out: Mapped[int | None]
    cost_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))
    cooldown_until: Mapped[datetime | None]
    worker: Mapped[str | None]


class ChunkRow(Base):
    """A chunk and what search reads of it: ``tsv`` holds its words, its cues and, for CJK, their bigrams."""

    __tablename__ = "chunk"
    __table_args__ = (
        UniqueConstraint("run_id", "ordinal"),
        Index(None, "tsv", postgresql_using="gin"),
        Index(None, "collection_id"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    collection_id: Mapped[int] = mapped_column(BigInteger)
    ordinal: Mapped[int]
    text: Mapped[str]
    heading: Mapped[list[str]] = mapped_column(server_default=sql("'{}'"))
    page_from: Mapped[int]
    page_to: Mapped[int]
    tokens: Mapped[int]
    context: Mapped[str] = mapped_column(server_default=sql("''"))
    keywords: Mapped[list[str]] = mapped_column(server_default=sql("'{}'"))
    questions: Mapped[list[str]] = mapped_column(server_default=sql("'{}'"))
    tsv: Mapped[Any] = mapped_column(TSVECTOR, nullable=True)


class Spend(Base):
    """What a collection's model calls have cost, a row a day (UTC). It outlives the attempts that it is the sum of."""

    __tablename__ = "spend"

    collection_id: Mapped[int] = mapped_column(ForeignKey("collection.id", ondelete="CASCADE"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    cost_usd: Mapped[float] = mapped_column(Numeric(14, 8, asdecimal=False))


class EmbeddingSpace(Base):
    """A model and a dimension, with the vector of a fixed probe text that every replica's answer is compared with.

    ``embedder``: where its model is asked (``kb.embedder`` without what it leaves out; no key is in it), for the time
    when the configuration speaks of another. ``{}``: the built-in one; null: nobody has said.
    """

    __tablename__ = "embedding_space"
    __table_args__ = (UniqueConstraint("model", "dim"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    model: Mapped[str]
    dim: Mapped[int]
    reference: Mapped[list[float] | None] = mapped_column(ARRAY(Double))
    embedder: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class Embedding(Base):
    """A chunk's vector in a space. One HNSW index a space is made with the space, on an expression cast."""

    __tablename__ = "embedding"
    __table_args__ = (Index(None, "space_id", "text_digest"), Index(None, "chunk_id"))

    space_id: Mapped[int] = mapped_column(ForeignKey("embedding_space.id"), primary_key=True)
    chunk_id: Mapped[int] = mapped_column(ForeignKey("chunk.id", ondelete="CASCADE"), primary_key=True)
    text_digest: Mapped[str]
    vector: Mapped[Any] = mapped_column(VECTOR())


class TargetSwitch(Base):
    """A kill switch: a target that somebody disabled, and when."""

    __tablename__ = "target_switch"

    target: Mapped[str] = mapped_column(primary_key=True)
    disabled: Mapped[bool]
    changed_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class ChainWait(Base):
    """A chain that is closed, as last seen, and until when (null: until somebody acts).

    What waits for it keeps its own ``resume_at``, so that a long outage writes a row a cooldown, whatever waits.
    """

    __tablename__ = "chain_wait"

    stage: Mapped[str] = mapped_column(primary_key=True)
    primary_only: Mapped[bool] = mapped_column(primary_key=True)
    until: Mapped[datetime | None]


class Worker(Base):
    """One row a process: the fleet's size and the beat's pulse are read here.

    ``cpu_slots``: of its slots, those for slices that burn CPU (queue parse).
    ``draining``: it was told to end; what it holds when it is killed for being slow is no mark against that.
    """

    __tablename__ = "worker"
    __table_args__ = (Index(None, "heartbeat_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str]
    host: Mapped[str]
    pid: Mapped[int]
    queues: Mapped[list[str]] = mapped_column(server_default=sql("'{}'"))
    slots: Mapped[int] = mapped_column(server_default=sql("0"))
    cpu_slots: Mapped[int] = mapped_column(server_default=sql("0"))
    draining: Mapped[bool] = mapped_column(server_default=sql("false"))
    started_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    heartbeat_at: Mapped[datetime] = mapped_column(server_default=_NOW)
