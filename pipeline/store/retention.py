"""Retention: what is deleted with time. Bounded portions, so that no pass holds anything up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, select, tuple_, update
from sqlalchemy.orm import Session, sessionmaker

from pipeline.domain.run import ENDED_RUN_STATES
from pipeline.store.runs import delete_superseded_runs
from pipeline.store.schema import Attempt, Page, Run

__all__ = ["RetentionPolicy", "sweep"]

_PORTION = 500


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The config's ``retention``: days and counts."""

    attempts_days: float = 365.0
    runs_kept: int = 3
    page_images_days: float = 7.0


def sweep(sessions: sessionmaker[Session], policy: RetentionPolicy) -> int:
    """Delete a portion of what has had its time; returns the rows touched."""
    touched = 0
    with sessions.begin() as session:
        old = select(Attempt.id).where(Attempt.started_at < func.now() - timedelta(days=policy.attempts_days))
        touched += len(
            session.scalars(delete(Attempt).where(Attempt.id.in_(old.limit(_PORTION))).returning(Attempt.id)).all()
        )
    with sessions.begin() as session:
        touched += delete_superseded_runs(session, policy.runs_kept, _PORTION)
    with sessions.begin() as session:
        seen = (
            select(Page.run_id, Page.number)
            .join(Run, Run.id == Page.run_id)
            .where(
                Page.image_digest.is_not(None),
                Run.state.in_([state.value for state in ENDED_RUN_STATES]),
                Run.finished_at < func.now() - timedelta(days=policy.page_images_days),
            )
            .limit(_PORTION)
        )
        touched += len(
            session.scalars(
                update(Page)
                .where(tuple_(Page.run_id, Page.number).in_(seen))
                .values(image_digest=None, image_purged=True)
                .returning(Page.number)
                .execution_options(synchronize_session=False)
            ).all()
        )
    return touched
