"""Attempts outlive the runs that retention deletes: they keep their document, and their run's number.

Revision: 0007, after 0006.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_OF_DELETED_RUNS = sa.text("document_id is not null")


def upgrade() -> None:
    op.add_column("attempt", sa.Column("document_id", sa.Uuid(), nullable=True))
    op.add_column("attempt", sa.Column("former_run_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(
        "fk_attempt_document_id_document", "attempt", "document", ["document_id"], ["id"], ondelete="CASCADE"
    )
    op.create_index("ix_attempt_document_id", "attempt", ["document_id"], postgresql_where=_OF_DELETED_RUNS)


def downgrade() -> None:
    op.drop_index("ix_attempt_document_id", "attempt")
    op.drop_constraint("fk_attempt_document_id_document", "attempt")
    op.drop_column("attempt", "former_run_id")
    op.drop_column("attempt", "document_id")
