"""Suspects: units that have lost a lease. Each is handed to a quarantine by itself, never through the window.

What a suspect did to its worker it may do again, so it is worked on where nothing else can die with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.orm import Session

from pipeline.domain.unit import Stage
from pipeline.store.window import Slice

__all__ = ["SUSPECT_WAKE_S", "any_suspect", "next_suspect"]

SUSPECT_WAKE_S = 10.0
"""A suspect that its quarantine has not claimed for this long is given to another: no broker lies between them."""

_WAITING = """
    from unit join run on run.id = unit.run_id
    where unit.stage = any(:stages) and unit.state = 'pending' and unit.lost_leases > 0
      and (unit.dispatched_at is null or unit.dispatched_at < now() - make_interval(secs => :ttl_s))
      and (unit.resume_at is null or unit.resume_at <= now())
      and run.state in ('queued', 'running')
"""

_ANY = text(f"select exists (select 1 {_WAITING})")

# Whoever has died least often goes first: innocents are not kept waiting by the one that killed them.
_NEXT = text(
    f"""
    with next as materialized (
        select unit.id {_WAITING}
        order by unit.priority desc, unit.lost_leases, unit.queued_at, unit.id
        limit 1 for update of unit skip locked
    )
    update unit set dispatched_at = now(), wake = nextval('wake_seq')
    from next, run
    where unit.id = next.id and run.id = unit.run_id
    returning unit.run_id, run.document_id, unit.stage, unit.ordinal, unit.wake, unit.priority
    """  # noqa: S608 - our own words
)


def any_suspect(session: Session, stages: Sequence[Stage]) -> bool:
    """Whether a suspect of these stages waits."""
    return bool(session.execute(_ANY, _values(stages)).scalar_one())


def next_suspect(session: Session, stages: Sequence[Stage]) -> Slice | None:
    """Take the next suspect out of the reach of other quarantines; None when there is none."""
    row = session.execute(_NEXT, _values(stages)).one_or_none()
    if row is None:
        return None
    return Slice(row.run_id, row.document_id, Stage(row.stage), (row.ordinal,), row.wake, row.priority)


def _values(stages: Sequence[Stage]) -> dict[str, object]:
    return {"stages": [stage.value for stage in stages], "ttl_s": SUSPECT_WAKE_S}
