"""Publish: a finished run becomes the generation that search sees, in one transaction."""

from __future__ import annotations

from pipeline.domain.run import RunState
from pipeline.store.runs import make_live, move_run
from pipeline.store.schema import Run
from pipeline.store.session import Session
from pipeline.store.space_switch import enter_space

__all__ = ["publish"]


def publish(session: Session, run: Run, *, empty: bool, incomplete: bool) -> bool:
    """Swap the document's live run for this one and end it; the caller holds the run FOR UPDATE.

    The old generation stays until retention deletes it: searchers see either all of it or all of the new one. An
    empty result is published too, or search would go on finding what the file no longer says. Under another embedding
    model than the collection is searched by, the vectors come along by which it is found until the collection switches.

    Returns:
        False when the run is no longer running (it was cancelled or superseded).
    """
    ended = move_run(session, run.id, RunState.EMPTY if empty else RunState.DONE, incomplete=incomplete)
    if not ended:
        return False
    make_live(session, run)
    if not empty:
        enter_space(session, run)
    return True
