"""Which chains are closed, in a row each instead of in every row that waits; and collections between two spaces.

Revision: 0003, after 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Published under another embedding model than the one that the collection is searched by.
_BEGUN = """
    update collection set next_space_id = begun.space_id
    from (
        select document.collection_id, max(run.space_id) as space_id
        from document
        join run on run.id = document.live_run_id and run.state = 'done'
        join collection on collection.id = document.collection_id and collection.active_space_id <> run.space_id
        group by document.collection_id
    ) begun
    where begun.collection_id = collection.id
"""


def upgrade() -> None:
    op.create_table(
        "chain_wait",
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("primary_only", sa.Boolean(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("stage", "primary_only", name="pk_chain_wait"),
    )
    # What is parked is few beside what is done, and the index holds nothing else.
    op.drop_index("ix_unit_parked", "unit")
    op.create_index(
        "ix_unit_parked",
        "unit",
        ["stage", sa.text("priority desc"), "resume_at", "id"],
        postgresql_where=sa.text("state = 'parked'"),
    )
    op.create_index("ix_run_primary_only", "run", ["id"], postgresql_where=sa.text("primary_only"))
    op.add_column("embedding_space", sa.Column("embedder", postgresql.JSONB(), nullable=True))
    for column in ("next_space_id", "former_space_id"):
        op.add_column("collection", sa.Column(column, sa.BigInteger(), nullable=True))
        op.create_foreign_key(
            f"fk_collection_{column}_embedding_space", "collection", "embedding_space", [column], ["id"]
        )
    op.execute(_BEGUN)


def downgrade() -> None:
    for column in ("former_space_id", "next_space_id"):
        op.drop_constraint(f"fk_collection_{column}_embedding_space", "collection")
        op.drop_column("collection", column)
    op.drop_column("embedding_space", "embedder")
    op.drop_index("ix_run_primary_only", "run")
    op.drop_index("ix_unit_parked", "unit")
    op.create_index("ix_unit_parked", "unit", ["stage", "resume_at"], postgresql_where=sa.text("state = 'parked'"))
    op.drop_table("chain_wait")
