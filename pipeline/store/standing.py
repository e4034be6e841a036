"""Where one run stands, in pages and chunks, and what is ahead of it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

__all__ = ["Standing", "runs_ahead", "standing_of"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How much of a run's pages and chunks is through its stages.

    Attributes:
        pages: 0 until the document has been parsed.
        leased: Units that a worker holds at this moment.
        degraded: Done units that were answered by a fallback.
        primary_only: No fallback may answer: the run was requeued for that.
    """

    pages: int
    pages_done: int
    chunks: int
    chunks_done: int
    leased: int
    degraded: int
    failed: int
    primary_only: bool


def standing_of(session: Session, run_id: int) -> Standing:
    """Count a run's units."""
    row = session.execute(_STANDING, {"run": run_id}).one()
    return Standing(
        pages=row.pages,
        pages_done=row.pages - row.open_pages,
        chunks=row.chunks,
        chunks_done=row.chunks - row.open_chunks,
        leased=row.leased,
        degraded=row.degraded,
        failed=row.failed,
        primary_only=row.primary_only,
    )


_STANDING = text(
    """
    select (select count(*) from page where page.run_id = :run) as pages,
           (select count(*) from chunk where chunk.run_id = :run) as chunks,
           (select primary_only from run where run.id = :run) as primary_only,
           count(distinct ordinal) filter (where stage in ('describe', 'format') and state <> 'done') as open_pages,
           count(distinct ordinal) filter (where stage in ('retrieve', 'embed') and state <> 'done') as open_chunks,
           count(*) filter (where state = 'leased') as leased,
           count(*) filter (where state = 'done' and degraded) as degraded,
           count(*) filter (where state = 'failed') as failed
    from unit where run_id = :run
    """
)


def runs_ahead(session: Session, run_id: int) -> int:
    """Queued runs of the same collection that are dispatched before this one."""
    return int(session.execute(_AHEAD, {"run": run_id}).scalar_one())


_AHEAD = text(
    """
    select count(*)
    from run this
    join run other on other.collection_id = this.collection_id and other.state = 'queued'
    where this.id = :run
      and (-other.priority, other.queued_at, other.id) < (-this.priority, this.queued_at, this.id)
    """
)
