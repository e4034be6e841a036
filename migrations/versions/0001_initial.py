"""Every table, pgvector, and the row that says who this installation is.

Revision: 0001, the first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# 256 bits out of three random UUIDs: a stock server has no function that gives random bytes.
_INSTALLATION = """
    insert into installation (fingerprint_key)
    values (sha256(convert_to(
        concat(gen_random_uuid(), gen_random_uuid(), gen_random_uuid()), 'UTF8'
    )))
"""


def upgrade() -> None:
    op.execute("create extension if not exists vector")
    op.execute(sa.schema.CreateSequence(sa.Sequence("wake_seq")))
    op.create_table(
        "blob",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_blob"),
    )
    op.create_table(
        "embedding_space",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("dim", sa.Integer(), nullable=False),
        sa.Column("reference", sa.ARRAY(sa.Double()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_embedding_space"),
        sa.UniqueConstraint("model", "dim", name="uq_embedding_space_model_dim"),
    )
    op.create_table(
        "installation",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("singleton", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("fingerprint_key", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("singleton", name="ck_installation_singleton"),
        sa.PrimaryKeyConstraint("id", name="pk_installation"),
        sa.UniqueConstraint("singleton", name="uq_installation_singleton"),
    )
    op.create_table(
        "target_switch",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("target", name="pk_target_switch"),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("queues", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("slots", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cpu_slots", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_worker"),
    )
    op.create_index("ix_worker_heartbeat_at", "worker", ["heartbeat_at"])
    op.create_table(
        "collection",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("active_space_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["active_space_id"], ["embedding_space.id"], name="fk_collection_active_space_id_embedding_space"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_collection"),
        sa.UniqueConstraint("name", name="uq_collection_name"),
    )
    op.create_table(
        "batch",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("collection_id", sa.BigInteger(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"], ["collection.id"], name="fk_batch_collection_id_collection", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_batch"),
        sa.UniqueConstraint("collection_id", "label", name="uq_batch_collection_id_label"),
    )
    op.create_table(
        "document",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("collection_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("source_uri", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("blob_digest", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("live_run_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name="fk_document_batch_id_batch", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["blob_digest"], ["blob.digest"], name="fk_document_blob_digest_blob"),
        sa.ForeignKeyConstraint(
            ["collection_id"], ["collection.id"], name="fk_document_collection_id_collection", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_document"),
        sa.UniqueConstraint("collection_id", "source_uri", name="uq_document_collection_id_source_uri"),
        sa.UniqueConstraint("live_run_id", name="uq_document_live_run_id"),
    )
    op.create_index("ix_document_batch_id", "document", ["batch_id"])
    op.create_index("ix_document_blob_digest", "document", ["blob_digest"])
    op.create_table(
        "run",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("collection_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("blob_digest", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("recipe", postgresql.JSONB(), nullable=False),
        sa.Column("recipe_digest", sa.Text(), nullable=False),
        sa.Column("space_id", sa.BigInteger(), nullable=True),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("5"), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("primary_only", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("redo_from", sa.Text(), nullable=True),
        sa.Column("redo_of_id", sa.BigInteger(), nullable=True),
        sa.Column("page_count", sa.Integer(), nullable=True),
        sa.Column("incomplete", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("failure_detail", sa.Text(), nullable=True),
        sa.Column("resume_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("parked_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("queued_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state in ('queued', 'running', 'parked', 'done', 'empty', 'failed', 'cancelled')", name="ck_run_state"
        ),
        sa.CheckConstraint("priority between 0 and 9", name="ck_run_priority"),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name="fk_run_batch_id_batch", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["blob_digest"], ["blob.digest"], name="fk_run_blob_digest_blob"),
        sa.ForeignKeyConstraint(
            ["collection_id"], ["collection.id"], name="fk_run_collection_id_collection", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["document_id"], ["document.id"], name="fk_run_document_id_document", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["redo_of_id"], ["run.id"], name="fk_run_redo_of_id_run", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["space_id"], ["embedding_space.id"], name="fk_run_space_id_embedding_space"),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
    )
    op.create_index("ix_run_batch_id", "run", ["batch_id"])
    op.create_index("ix_run_blob_digest", "run", ["blob_digest"])
    op.create_index("ix_run_document_id_id", "run", ["document_id", "id"])
    op.create_index("ix_run_parked", "run", ["resume_at"], postgresql_where=sa.text("state = 'parked'"))
    op.create_index(
        "ix_run_queued",
        "run",
        ["collection_id", sa.text("priority desc"), "queued_at", "id"],
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index("ix_run_redo_of_id", "run", ["redo_of_id"], postgresql_where=sa.text("redo_of_id is not null"))
    op.create_index("ix_run_state", "run", ["state"])
    op.create_index(
        "uq_run_active_document",
        "run",
        ["document_id"],
        unique=True,
        postgresql_where=sa.text("state in ('queued', 'running', 'parked')"),
    )
    op.create_table(
        "attempt",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("unit_id", sa.BigInteger(), nullable=True),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("preset", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("skipped", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("ttft_ms", sa.Integer(), nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("tokens_in", sa.Integer(), nullable=True),
        sa.Column("tokens_out", sa.Integer(), nullable=True),
        sa.Column("cost_usd", sa.Numeric(precision=14, scale=8, asdecimal=False), nullable=True),
        sa.Column("cooldown_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "outcome in ('running', 'ok', 'failed', 'cancelled', 'lost', 'exhausted')", name="ck_attempt_outcome"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_attempt_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
    )
    op.create_index("ix_attempt_open", "attempt", ["started_at"], postgresql_where=sa.text("outcome = 'running'"))
    op.create_index("ix_attempt_run_id_id", "attempt", ["run_id", "id"])
    op.create_index("ix_attempt_target_started_at", "attempt", ["target", "started_at"])
    op.create_table(
        "chunk",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("collection_id", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("heading", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("page_from", sa.Integer(), nullable=False),
        sa.Column("page_to", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("context", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("keywords", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("questions", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("tsv", postgresql.TSVECTOR(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_chunk_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_chunk"),
        sa.UniqueConstraint("run_id", "ordinal", name="uq_chunk_run_id_ordinal"),
    )
    op.create_index("ix_chunk_collection_id", "chunk", ["collection_id"])
    op.create_index("ix_chunk_tsv", "chunk", ["tsv"], postgresql_using="gin")
    op.create_table(
        "page",
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'ok'"), nullable=False),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("failure_detail", sa.Text(), nullable=True),
        sa.Column("text_layer", sa.Text(), nullable=False),
        sa.Column("text_format", sa.Text(), nullable=False),
        sa.Column("text_quality", sa.Text(), nullable=False),
        sa.Column("has_figures", sa.Boolean(), nullable=False),
        sa.Column("blank", sa.Boolean(), nullable=False),
        sa.Column("width_pt", sa.Double(), nullable=False),
        sa.Column("height_pt", sa.Double(), nullable=False),
        sa.Column("image_digest", sa.Text(), nullable=True),
        sa.Column("image_media_type", sa.Text(), nullable=True),
        sa.Column("image_purged", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint("state in ('ok', 'failed')", name="ck_page_state"),
        sa.ForeignKeyConstraint(["image_digest"], ["blob.digest"], name="fk_page_image_digest_blob"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_page_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_page"),
    )
    op.create_index("ix_page_image_digest", "page", ["image_digest"])
    op.create_table(
        "unit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("collection_id", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("dispatched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wake", sa.BigInteger(), nullable=True),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("leased_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("leased_by", sa.Text(), nullable=True),
        sa.Column("lost_leases", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("input_digest", sa.Text(), nullable=True),
        sa.Column("rejected_by", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("degraded", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("reused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("answered_by", sa.Text(), nullable=True),
        sa.Column("output", postgresql.JSONB(), nullable=True),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("failure_detail", sa.Text(), nullable=True),
        sa.Column("resume_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'leased') = (lease_token is not null)", name="ck_unit_lease"),
        sa.CheckConstraint(
            "stage in ('parse', 'describe', 'format', 'chunk', 'retrieve', 'embed')", name="ck_unit_stage"
        ),
        sa.CheckConstraint("state in ('pending', 'leased', 'done', 'parked', 'failed')", name="ck_unit_state"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_unit_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_unit"),
        sa.UniqueConstraint("run_id", "stage", "ordinal", name="uq_unit_run_id_stage_ordinal"),
    )
    op.create_index(
        "ix_unit_claim", "unit", ["run_id", "stage", "ordinal"], postgresql_where=sa.text("state = 'pending'")
    )
    op.create_index(
        "ix_unit_dispatched",
        "unit",
        ["stage", "dispatched_at"],
        postgresql_where=sa.text("state = 'pending' and dispatched_at is not null"),
    )
    op.create_index("ix_unit_lease", "unit", ["lease_expires_at"], postgresql_where=sa.text("state = 'leased'"))
    op.create_index("ix_unit_parked", "unit", ["stage", "resume_at"], postgresql_where=sa.text("state = 'parked'"))
    op.create_index(
        "ix_unit_reuse", "unit", ["collection_id", "stage", "input_digest"], postgresql_where=sa.text("state = 'done'")
    )
    op.create_index("ix_unit_state", "unit", ["run_id", "stage", "state"])
    op.create_index(
        "ix_unit_undispatched",
        "unit",
        ["stage", "collection_id", sa.text("priority desc"), "queued_at", "id"],
        postgresql_where=sa.text("state = 'pending' and dispatched_at is null"),
    )
    op.create_table(
        "embedding",
        sa.Column("space_id", sa.BigInteger(), nullable=False),
        sa.Column("chunk_id", sa.BigInteger(), nullable=False),
        sa.Column("text_digest", sa.Text(), nullable=False),
        sa.Column("vector", VECTOR(), nullable=False),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunk.id"], name="fk_embedding_chunk_id_chunk", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["space_id"], ["embedding_space.id"], name="fk_embedding_space_id_embedding_space"),
        sa.PrimaryKeyConstraint("space_id", "chunk_id", name="pk_embedding"),
    )
    op.create_index("ix_embedding_chunk_id", "embedding", ["chunk_id"])
    op.create_index("ix_embedding_space_id_text_digest", "embedding", ["space_id", "text_digest"])

    # Documents and runs refer to each other.
    op.create_foreign_key(
        "fk_document_live_run_id_run", "document", "run", ["live_run_id"], ["id"], ondelete="SET NULL"
    )
    op.execute(_INSTALLATION)


def downgrade() -> None:
    op.drop_constraint("fk_document_live_run_id_run", "document", type_="foreignkey")
    for table in (
        "embedding",
        "unit",
        "page",
        "chunk",
        "attempt",
        "run",
        "document",
        "batch",
        "collection",
        "worker",
        "target_switch",
        "installation",
        "embedding_space",
        "blob",
    ):
        op.drop_table(table)
    op.execute(sa.schema.DropSequence(sa.Sequence("wake_seq")))
