"""The window: which units have been handed to the broker, and which are next.

Slices are counted from rows (``dispatched_at`` with a time to live, and leases), never from a counter or from Redis.
The query walks an index per collection, so its cost does not grow with the backlog. Units that have lost a lease are
left out of all this: they don't go through the broker (``suspects.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import any_, func, literal, select, text, update
from sqlalchemy.orm import Session

from pipeline.domain.unit import Stage, UnitState, queue_of
from pipeline.store.fleet import FRESH_S
from pipeline.store.schema import Unit, Worker

__all__ = [
    "Ready",
    "Slice",
    "forget_stale_wakes",
    "keep_in_window",
    "mark_dispatched",
    "outstanding_slices",
    "ready_units",
    "reconcile_lock",
    "scan_lock",
    "unmark_dispatched",
    "waiting_wakes",
]

_SCAN_LOCK = 0x71DE6A7E01
_WAIT_LOCK = 0x71DE6A7E02
_RECONCILE_LOCK = 0x71DE6A7E03

_HEARD_OF_S = 10.0
"""A worker lived for at most so long after the last heartbeat that came through."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What a message carries: ids only. Losing it loses nothing; a duplicate finds nothing to claim."""

    run_id: int
    document_id: UUID
    stage: Stage
    ordinals: tuple[int, ...]
    wake: int
    priority: int = 5


@dataclass(frozen=True, slots=True)
class Ready:
    """A unit that is pending and not in the window."""

    id: int
    run_id: int
    document_id: UUID
    ordinal: int
    priority: int


def scan_lock(session: Session) -> bool:
    """Become the one dispatcher that scans, until the transaction ends; False when another will scan after us.

    One scans and one waits; whoever comes while somebody waits may leave, since the waiting one has not looked yet
    and will see what we committed. (Four scanning at once gave no duplicates but mostly short batches.)
    """
    if session.scalar(select(func.pg_try_advisory_xact_lock(_SCAN_LOCK))):
        return True
    if not session.scalar(select(func.pg_try_advisory_lock(_WAIT_LOCK))):
        return False
    try:
        session.execute(select(func.pg_advisory_xact_lock(_SCAN_LOCK)))
    except BaseException:
        # The waiting place belongs to the connection, on which no more can be said: it goes with it.
        session.invalidate()
        raise
    # Let go before looking, so that who commits from now on finds a free waiting place.
    session.execute(select(func.pg_advisory_unlock(_WAIT_LOCK)))
    return True


def reconcile_lock(session: Session) -> bool:
    """Become the one reconciler until the transaction ends; False when another is at it."""
    return bool(session.scalar(select(func.pg_try_advisory_xact_lock(_RECONCILE_LOCK))))


_OUTSTANDING = text(
    """
    select count(distinct wake) from (
        select wake from unit
        where stage = :stage and state = 'pending' and dispatched_at > now() - make_interval(secs => :ttl_s)
          and lost_leases = 0
        union all
        select wake from unit where stage = :stage and state = 'leased' and lost_leases = 0
    ) handed_out
    """
)

# A collection's turns begin after what it has under way: a window that has room for one slice at a time would else be
# the oldest collection's alone.
_READY = text(
    """
    with under_way as (
        select collection_id, count(*) as units from (
            select collection_id from unit
            where stage = :stage and state = 'pending' and dispatched_at is not null and lost_leases = 0
            union all
            select collection_id from unit where stage = :stage and state = 'leased' and lost_leases = 0
        ) handed_out
        group by collection_id
    )
    select ready.id, ready.run_id, run.document_id, ready.ordinal, ready.priority
    from collection
    left join under_way on under_way.collection_id = collection.id
    cross join lateral (
        select unit.*,
               coalesce(under_way.units, 0) + row_number() over (order by unit.priority desc, unit.queued_at, unit.id)
                   as turn
        from (
            select id, run_id, ordinal, priority, queued_at from unit
            where stage = :stage and collection_id = collection.id and state = 'pending' and dispatched_at is null
              and lost_leases = 0 and (resume_at is null or resume_at <= now())
            order by priority desc, queued_at, id
            limit :most
        ) unit
    ) ready
    join run on run.id = ready.run_id
    order by ready.priority desc, ready.turn, ready.queued_at, ready.id
    limit :most
    """
)


def outstanding_slices(session: Session, stage: Stage, wake_ttl_s: float) -> int:
    """Slices of a stage that were handed out and have neither ended nor outlived their wake."""
    count: int = session.execute(_OUTSTANDING, {"stage": stage.value, "ttl_s": wake_ttl_s}).scalar_one()
    return count


def ready_units(session: Session, stage: Stage, most: int) -> list[Ready]:
    """The next units: priority first, then round-robin over collections (what is under way counts), then age."""
    rows = session.execute(_READY, {"stage": stage.value, "most": most})
    return [Ready(r.id, r.run_id, r.document_id, r.ordinal, r.priority) for r in rows]


def mark_dispatched(session: Session, unit_ids: Sequence[int]) -> int:
    """Put units into the window under a new wake number, which it returns."""
    wake: int = session.execute(_MARK, {"ids": list(unit_ids)}).scalar_one()
    return wake


_MARK = text(
    """
    with next as materialized (select nextval('wake_seq') as wake),
    marked as (
        update unit set dispatched_at = now(), wake = next.wake from next
        where unit.id = any(:ids) and unit.state = 'pending'
    )
    select wake from next
    """
)


def unmark_dispatched(session: Session, wakes: Sequence[int]) -> None:
    """Take slices out of the window that could not be published."""
    session.execute(
        update(Unit)
        .where(Unit.wake.in_(wakes), Unit.state == UnitState.PENDING.value, Unit.dispatched_at.is_not(None))
        .values(dispatched_at=None)
        .execution_options(synchronize_session=False)
    )


def waiting_wakes(session: Session, older_than_s: float) -> set[int]:
    """The slices that were handed out longer ago than that and of which some unit has not been claimed."""
    return set(
        session.scalars(
            select(Unit.wake)
            .where(
                Unit.stage.in_([stage.value for stage in Stage]),
                Unit.state == UnitState.PENDING.value,
                Unit.dispatched_at < func.now() - timedelta(seconds=older_than_s),
                Unit.lost_leases == 0,
                Unit.wake.is_not(None),
            )
            .distinct()
        )
    )


def keep_in_window(session: Session, wakes: Sequence[int], wake_ttl_s: float) -> None:
    """Slices whose messages the broker still holds stay in the window, however long nobody takes them."""
    session.execute(
        update(Unit)
        .where(
            Unit.wake.in_(wakes),
            Unit.state == UnitState.PENDING.value,
            Unit.dispatched_at < func.now() - timedelta(seconds=wake_ttl_s / 2),
        )
        .values(dispatched_at=func.now())
        .execution_options(synchronize_session=False)
    )


def forget_stale_wakes(session: Session, stage: Stage, wake_ttl_s: float) -> int:
    """Make units dispatchable again whose message was not heard of for too long; returns how many.

    A worker that died took the messages with it that it had fetched and not begun. Which these were nobody knows, so
    what was under way to its queues at its death counts as not heard of, once: a duplicate finds nothing to claim.
    """
    taken_along = (
        select(Worker.id)
        .where(
            Worker.role == "worker",
            literal(queue_of(stage).value) == any_(Worker.queues),
            Worker.heartbeat_at < func.now() - timedelta(seconds=FRESH_S),
            Unit.dispatched_at < Worker.heartbeat_at + timedelta(seconds=_HEARD_OF_S),
        )
        .exists()
    )
    rows = session.scalars(
        update(Unit)
        .where(
            Unit.stage == stage.value,
            Unit.state == UnitState.PENDING.value,
            (Unit.dispatched_at < func.now() - timedelta(seconds=wake_ttl_s)) | taken_along,
        )
        .values(dispatched_at=None)
        .returning(Unit.id)
        .execution_options(synchronize_session=False)
    )
    return len(rows.all())
