"""The units that lost a lease, found without a look at the others that wait.

Revision: 0002, after 0001.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Dozens of rows among millions: the build is one scan, and nothing older uses it.
    op.create_index(
        "ix_unit_suspect",
        "unit",
        ["stage", sa.text("priority desc"), "lost_leases", "queued_at", "id"],
        postgresql_where=sa.text("state = 'pending' and lost_leases > 0"),
    )


def downgrade() -> None:
    op.drop_index("ix_unit_suspect", table_name="unit")
