"""Units: making, claiming, renewing and ending them. Each change of state is one guarded statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, or_, select, true, update
from sqlalchemy.dialects.postgresql import array, insert
from sqlalchemy.orm import Session, aliased

from pipeline.domain.errors import Failure
from pipeline.domain.unit import Stage, UnitState
from pipeline.store.moves import move_units, rows_changed
from pipeline.store.schema import Run, Unit

__all__ = [
    "Claimed",
    "Moment",
    "NewUnit",
    "Result",
    "add_rejections",
    "claim_units",
    "create_units",
    "fail_unit",
    "finish_unit",
    "free_or_held",
    "give_back",
    "held_by",
    "is_redone",
    "mark_reused",
    "renew_leases",
    "reuse_units",
    "seconds_from_now",
    "still_held",
]


@dataclass(frozen=True, slots=True)
class NewUnit:
    """A unit to make; ``digest`` identifies its input under the run's recipe (None where nothing is reused)."""

    ordinal: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A unit that this worker holds the lease of."""

    id: int
    run_id: int
    stage: Stage
    ordinal: int
    token: UUID
    lost_leases: int = 0
    calls: int = 0
    digest: str | None = None
    rejected_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What ended a unit well.

    Attributes:
        output: Kept on the row, for reuse by digest; None where the result lives in other tables.
        calls: Calls of this lease that returned content.
        digest: The input's digest, where it was not known when the unit was made.
        rejecting: Targets that rejected the input before another one took it.
    """

    output: dict[str, Any] | None = None
    answered_by: str | None = None
    degraded: bool = False
    calls: int = 0
    digest: str | None = None
    rejecting: frozenset[str] = frozenset()


Moment = datetime | ColumnElement[datetime]
"""A time, or an expression of one on the database's clock."""


def seconds_from_now(delay_s: float) -> ColumnElement[datetime]:
    """A time to come, on the database's clock."""
    return func.now() + timedelta(seconds=delay_s)


def held_by(unit: Claimed) -> ColumnElement[bool]:
    """True of a unit's row while the claimer still holds its lease."""
    return and_(Unit.id == unit.id, Unit.lease_token == unit.token, Unit.state == UnitState.LEASED.value)


def create_units(session: Session, run: Run, stage: Stage, units: Iterable[NewUnit]) -> int:
    """Make pending units of a run; those that exist already are left alone. Returns how many are new."""
    rows = [
        {
            "run_id": run.id,
            "collection_id": run.collection_id,
            "priority": run.priority,
            "queued_at": run.queued_at,
            "stage": stage.value,
            "ordinal": unit.ordinal,
            "input_digest": unit.digest,
        }
        for unit in units
    ]
    if not rows:
        return 0
    made = session.scalars(
        insert(Unit).on_conflict_do_nothing(index_elements=["run_id", "stage", "ordinal"]).returning(Unit.id), rows
    )
    return len(made.all())


def free_or_held(held: Sequence[int]) -> ColumnElement[bool]:
    """Pending units, and those leased ones whose ordinals the caller says that it holds."""
    leased = and_(Unit.state == UnitState.LEASED.value, Unit.ordinal.in_(held))
    return or_(Unit.state == UnitState.PENDING.value, leased)


def is_redone(run: Run, stage: Stage) -> bool:
    """Whether a run was requeued to do a stage anew, so that nothing of it may be reused."""
    stages = list(Stage)
    return run.redo_from is not None and stages.index(stage) >= stages.index(Stage(run.redo_from))


def reuse_units(session: Session, run: Run, stage: Stage, held: Sequence[int] = ()) -> list[Unit]:
    """End pending units, and held ones, whose result is already known in this collection; returns them, in order.

    A degraded result is not good enough for a run that redoes degraded units, and nothing is reused from the stage
    that a run was requeued from.
    """
    if is_redone(run, stage):
        return []
    waiting = (Unit.run_id == run.id, Unit.stage == stage.value, free_or_held(held))
    source = aliased(Unit)
    best = (
        select(source.output, source.degraded, source.answered_by)
        .where(
            source.collection_id == run.collection_id,
            source.stage == stage.value,
            source.input_digest == Unit.input_digest,
            source.state == UnitState.DONE.value,
            source.output.is_not(None),
            ~source.degraded if run.primary_only else true(),
        )
        .order_by(source.degraded, source.id)
        .limit(1)
        .correlate(Unit)
        .lateral("best")
    )
    # Looked up once for each unit, whatever the planner thinks of tables that it has no statistics of yet: joined as
    # they were, all results of a run were sorted anew for each of its units, seconds at a few hundred of them.
    known = (
        select(Unit.id, best.c.output, best.c.degraded, best.c.answered_by)
        .join(best, true())
        .where(*waiting)
        .cte("known")
        .prefix_with("materialized")
    )
    rows = session.scalars(
        move_units(
            UnitState.DONE,
            *waiting,
            Unit.id == known.c.id,
            output=known.c.output,
            degraded=known.c.degraded,
            answered_by=known.c.answered_by,
            reused=True,
        )
        .returning(Unit)
        .execution_options(populate_existing=True)
    ).all()
    return sorted(rows, key=lambda unit: unit.ordinal)


def mark_reused(session: Session, run_id: int, stage: Stage, ordinals: Sequence[int], **kept: Any) -> None:
    """End pending or leased units whose result another table already holds (pages, vectors).

    Args:
        kept: What their rows say of it: columns' values.
    """
    which = (Unit.run_id == run_id, Unit.stage == stage.value, Unit.ordinal.in_(ordinals))
    rows_changed(session, move_units(UnitState.DONE, *which, reused=True, **kept))


def claim_units(
    session: Session,
    run_id: int,
    stage: Stage,
    ordinals: Sequence[int],
    *,
    token: UUID,
    worker: str,
    lease_s: float,
    suspects: bool | None = None,
) -> list[Claimed]:
    """Lease the pending units among ``ordinals``. The caller holds the run FOR SHARE and has seen it running.

    Args:
        token: The claim's own. Claiming with it again returns what was claimed before as well, so that a claim whose
            COMMIT was not heard of can be repeated.
        suspects: Only units that have lost a lease, or only those that have not; None for both.
    """
    mine = (Unit.run_id == run_id, Unit.stage == stage.value, Unit.ordinal.in_(ordinals))
    wanted = [] if suspects is None else [Unit.lost_leases > 0 if suspects else Unit.lost_leases == 0]
    free = (
        select(Unit.id)
        .where(*mine, Unit.state == UnitState.PENDING.value, *wanted)
        .order_by(Unit.ordinal)
        .with_for_update(skip_locked=True)
        .cte("free")
    )
    expiry = func.now() + timedelta(seconds=lease_s)
    rows_changed(
        session,
        move_units(
            UnitState.LEASED, Unit.id == free.c.id, lease_token=token, lease_expires_at=expiry, leased_by=worker
        ),
    )
    rows = session.execute(
        select(Unit.id, Unit.ordinal, Unit.lost_leases, Unit.calls, Unit.input_digest, Unit.rejected_by)
        .where(*mine, Unit.state == UnitState.LEASED.value, Unit.lease_token == token)
        .order_by(Unit.ordinal)
    )
    return [
        Claimed(r.id, run_id, stage, r.ordinal, token, r.lost_leases, r.calls, r.input_digest, tuple(r.rejected_by))
        for r in rows
    ]


def still_held(session: Session, units: Sequence[Claimed]) -> set[int]:
    """The ids of those units whose leases are still ours."""
    return set(session.scalars(select(Unit.id).where(or_(*[held_by(unit) for unit in units])))) if units else set()


def renew_leases(session: Session, units: Sequence[Claimed], *, lease_s: float, hard_deadline_s: float) -> set[int]:
    """Hold the leases for another ``lease_s``, but never past ``hard_deadline_s`` after the claim: a hang expires.

    Returns:
        The ids of the units that are still held; the others were taken away.
    """
    if not units:
        return set()
    held = or_(*[held_by(unit) for unit in units])
    limit = Unit.leased_at + timedelta(seconds=hard_deadline_s)
    return set(
        session.scalars(
            update(Unit)
            .where(held)
            .values(lease_expires_at=func.least(func.now() + timedelta(seconds=lease_s), limit))
            .returning(Unit.id)
            .execution_options(synchronize_session=False)
        )
    )


def finish_unit(session: Session, unit: Claimed, result: Result) -> bool:
    """End a unit well; False when the lease is no longer ours (the late answer is dropped)."""
    return bool(
        rows_changed(
            session,
            move_units(
                UnitState.DONE,
                held_by(unit),
                output=result.output,
                input_digest=func.coalesce(result.digest, Unit.input_digest),
                answered_by=result.answered_by,
                degraded=result.degraded,
                calls=Unit.calls + result.calls,
            ),
        )
    )


def fail_unit(session: Session, unit: Claimed, failure: Failure, calls: int = 0) -> bool:
    """End a unit for good without a result; False when the lease is no longer ours."""
    return bool(
        rows_changed(
            session,
            move_units(
                UnitState.FAILED,
                held_by(unit),
                failure_kind=failure.kind,
                failure_detail=failure.detail,
                calls=Unit.calls + calls,
            ),
        )
    )


def add_rejections(session: Session, unit: Claimed, targets: Iterable[str]) -> None:
    """Remember the targets that rejected this very input: it is never paid for there again."""
    fresh = sorted(set(targets) - set(unit.rejected_by))
    if fresh:
        rows_changed(
            session,
            update(Unit).where(Unit.id == unit.id).values(rejected_by=Unit.rejected_by.op("||")(array(fresh))),
        )


def give_back(session: Session, units: Sequence[Claimed], *, not_before: Moment | None = None) -> int:
    """Return unfinished units to the pending ones, without a mark against them (drain, full target, shutdown).

    Args:
        not_before: When they may be handed out again; None for at once.
    """
    if not units:
        return 0
    held = or_(*[held_by(unit) for unit in units])
    return rows_changed(session, move_units(UnitState.PENDING, held, resume_at=not_before))
