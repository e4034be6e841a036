"""Where one run stands, in pages and chunks, and what is ahead of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.store.reader import Reader

__all__ = ["Standing", "runs_ahead", "standing_of"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How much of a run's pages and chunks is through its stages.

    Attributes:
        pages: 0 until the document has been parsed.
        leased: Units that a worker holds at this moment.
        degraded: Done units that were answered by a fallback.
        failure: Why the first of the failed units failed, and which one that is; None where none has.
        rejected_by: By the key of a target, the open units that it turned down and is not asked for again.
        primary_only: No fallback may answer: the run was requeued for that.
    """

    pages: int
    pages_done: int
    chunks: int
    chunks_done: int
    leased: int
    degraded: int
    failed: int
    failure: str | None
    rejected_by: Mapping[str, int]
    primary_only: bool


def standing_of(reader: Reader, run_id: int) -> Standing:
    """Count a run's units."""
    (row,) = reader.rows(_STANDING, {"run": run_id})
    return Standing(
        pages=row.pages,
        pages_done=row.pages - row.open_pages,
        chunks=row.chunks,
        chunks_done=row.chunks - row.open_chunks,
        leased=row.leased,
        degraded=row.degraded,
        failed=row.failed,
        failure=row.failure,
        rejected_by={rejected.target: rejected.units for rejected in reader.rows(_REJECTED, {"run": run_id})},
        primary_only=row.primary_only,
    )


_STANDING = """
    select (select count(*) from page where page.run_id = %(run)s) as pages,
           (select count(*) from chunk where chunk.run_id = %(run)s) as chunks,
           (select concat_ws(' ', stage, ordinal, 'failed with', concat_ws(': ', failure_kind, failure_detail))
            from unit where unit.run_id = %(run)s and state = 'failed' order by ordinal, id limit 1) as failure,
           (select primary_only from run where run.id = %(run)s) as primary_only,
           count(distinct ordinal) filter (where stage in ('describe', 'format') and state <> 'done') as open_pages,
           count(distinct ordinal) filter (where stage in ('retrieve', 'embed') and state <> 'done') as open_chunks,
           count(*) filter (where state = 'leased') as leased,
           count(*) filter (where state = 'done' and degraded) as degraded,
           count(*) filter (where state = 'failed') as failed
    from unit where run_id = %(run)s
"""


_REJECTED = """
    select target, count(*) as units
    from unit, unnest(rejected_by) as target
    where run_id = %(run)s and state not in ('done', 'failed')
    group by target
"""


def runs_ahead(reader: Reader, run_id: int) -> int:
    """Queued runs of the same collection that are dispatched before this one."""
    (row,) = reader.rows(_AHEAD, {"run": run_id})
    return int(row.runs)


_AHEAD = """
    select count(*) as runs
    from run this
    join run other on other.collection_id = this.collection_id and other.state = 'queued'
    where this.id = %(run)s
      and (-other.priority, other.queued_at, other.id) < (-this.priority, this.queued_at, this.id)
"""
