"""Publish: a finished run becomes the generation that search sees, in one transaction."""

from __future__ import annotations

from sqlalchemy import func, update
from sqlalchemy.orm import Session

from pipeline.domain.run import RunState
from pipeline.store.runs import move_run
from pipeline.store.schema import Collection, Document, Run

__all__ = ["publish"]


def publish(session: Session, run: Run, *, empty: bool, incomplete: bool, title: str | None = None) -> bool:
    """Swap the document's live run for this one and end it; the caller holds the run FOR UPDATE.

    The old generation stays until retention deletes it: searchers see either all of it or all of the new one. An
    empty result is published too, or search would go on finding what the file no longer says.

    Returns:
        False when the run is no longer running (it was cancelled or superseded).
    """
    ended = move_run(session, run.id, RunState.EMPTY if empty else RunState.DONE, incomplete=incomplete, resume_at=None)
    if not ended:
        return False
    session.execute(
        update(Document)
        .where(Document.id == run.document_id)
        .values(live_run_id=run.id, title=func.coalesce(title, Document.title))
        .execution_options(synchronize_session=False)
    )
    if run.space_id is not None:
        session.execute(
            update(Collection)
            .where(Collection.id == run.collection_id, Collection.active_space_id.is_(None))
            .values(active_space_id=run.space_id)
            .execution_options(synchronize_session=False)
        )
    return True
