"""What was done lately, and what a fallback answered, found without a look at all that is done.

Revision: 0004, after 0003.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_unit_finished", "unit", ["finished_at"], postgresql_where=sa.text("state = 'done'"))
    op.create_index("ix_unit_degraded", "unit", ["run_id"], postgresql_where=sa.text("state = 'done' and degraded"))


def downgrade() -> None:
    op.drop_index("ix_unit_degraded", table_name="unit")
    op.drop_index("ix_unit_finished", table_name="unit")
