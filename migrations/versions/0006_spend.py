"""What each collection has spent, a row a day: a budget holds over attempts that retention has dropped.

Revision: 0006, after 0005.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "spend",
        sa.Column("collection_id", sa.BigInteger(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("cost_usd", sa.Numeric(14, 8), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"], ["collection.id"], name="fk_spend_collection_id_collection", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("collection_id", "day", name="pk_spend"),
    )
    op.execute(
        """
        insert into spend (collection_id, day, cost_usd)
        select run.collection_id, (attempt.started_at at time zone 'UTC')::date, sum(attempt.cost_usd)
        from attempt join run on run.id = attempt.run_id
        where attempt.cost_usd > 0
        group by 1, 2
        """
    )


def downgrade() -> None:
    op.drop_table("spend")
