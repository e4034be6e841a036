"""Taking a document out, with all that belongs to it."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from pipeline.store.schema import Document, Page, Run

__all__ = ["remove_document"]


def remove_document(session: Session, document_id: UUID) -> set[str]:
    """Delete a document's row; its runs, units, pages, chunks, vectors and attempts go with it.

    Returns:
        The digests of the blobs that it referred to, some of which nothing may refer to any more.
    """
    # Runs first, as everyone does: a unit that is being finished right now holds its run.
    runs = list(session.scalars(select(Run).where(Run.document_id == document_id).order_by(Run.id).with_for_update()))
    document = session.get(Document, document_id)
    if document is None:
        return set()
    digests = {document.blob_digest, *(run.blob_digest for run in runs)}
    digests |= {
        digest
        for digest in session.scalars(
            select(Page.image_digest).where(Page.run_id.in_([run.id for run in runs])).distinct()
        )
        if digest is not None
    }
    session.execute(delete(Document).where(Document.id == document_id).execution_options(synchronize_session=False))
    return digests
