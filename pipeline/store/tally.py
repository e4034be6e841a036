"""How targets did lately, from their attempts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pipeline.domain.call import Outcome
from pipeline.store.schema import Attempt

__all__ = ["Tally", "tally_by_target"]


@dataclass(frozen=True, slots=True)
class Tally:
    """Attempts that ended well, and that did not."""

    ok: int = 0
    failed: int = 0


def tally_by_target(session: Session, since_s: float) -> dict[str, Tally]:
    """Count the attempts of the last ``since_s`` seconds, by target key."""
    good = func.count().filter(Attempt.outcome == Outcome.OK.value)
    bad = func.count().filter(Attempt.outcome.in_((Outcome.FAILED.value, Outcome.LOST.value)))
    rows = session.execute(
        select(Attempt.target, good.label("ok"), bad.label("failed"))
        .where(Attempt.target.is_not(None), Attempt.started_at > func.now() - timedelta(seconds=since_s))
        .group_by(Attempt.target)
    )
    return {row.target: Tally(row.ok, row.failed) for row in rows}
