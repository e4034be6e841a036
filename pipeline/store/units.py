"""Units: making, claiming, renewing and ending them. Each change of state is one guarded statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    Integer,
    Interval,
    Select,
    SmallInteger,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    column,
    func,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, array, insert
from sqlalchemy.orm import Session

from pipeline.domain.errors import Failure
from pipeline.domain.unit import Stage, UnitState
from pipeline.store.moves import in_state, move_units, rows_changed
from pipeline.store.schema import Base, Run, Unit

__all__ = [
    "Claimed",
    "Moment",
    "NewUnit",
    "Result",
    "add_rejections",
    "claim_units",
    "create_units",
    "fail_unit",
    "finish_units",
    "give_back",
    "held_by",
    "renew_leases",
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
    new = list(units)
    if not new:
        return 0
    values = {
        "run": run.id,
        "collection": run.collection_id,
        "its_priority": run.priority,
        "its_queued_at": run.queued_at,
        "of_stage": stage.value,
        "ordinals": [unit.ordinal for unit in new],
        "digests": [unit.digest for unit in new],
    }
    return len(session.scalars(_CREATE, values).all())


# Built once, as the statements below: at a few milliseconds each, building them is most of what they cost a worker.
_UNITS = Base.metadata.tables[Unit.__tablename__]
_NEW = (
    func.unnest(bindparam("ordinals", type_=ARRAY(Integer)), bindparam("digests", type_=ARRAY(Text)))
    .table_valued(column("ordinal", Integer), column("digest", Text))
    .render_derived(name="new")
)
_CREATE = (
    insert(_UNITS)
    .from_select(
        ["run_id", "collection_id", "priority", "queued_at", "stage", "ordinal", "input_digest"],
        select(
            bindparam("run", type_=BigInteger),
            bindparam("collection", type_=BigInteger),
            bindparam("its_priority", type_=SmallInteger),
            bindparam("its_queued_at", type_=DateTime(timezone=True)),
            bindparam("of_stage", type_=Text),
            _NEW.c.ordinal,
            _NEW.c.digest,
        ),
    )
    .on_conflict_do_nothing(index_elements=["run_id", "stage", "ordinal"])
    .returning(Unit.id)
)


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
    rows = session.execute(
        _CLAIM,
        {
            "run": run_id,
            "of_stage": stage.value,
            "ordinals": list(ordinals),
            "suspects": suspects,
            "token": token,
            "worker": worker,
            "lease": timedelta(seconds=lease_s),
        },
    )
    return [
        Claimed(r.id, run_id, stage, r.ordinal, token, r.lost_leases, r.calls, r.input_digest, tuple(r.rejected_by))
        for r in rows
    ]


def _claim() -> Select[Any]:
    claimed = (Unit.id, Unit.ordinal, Unit.lost_leases, Unit.calls, Unit.input_digest, Unit.rejected_by)
    slice_ = (
        Unit.run_id == bindparam("run"),
        Unit.stage == bindparam("of_stage"),
        Unit.ordinal == any_(bindparam("ordinals", type_=ARRAY(Integer))),
    )
    is_suspect = Unit.lost_leases > 0
    free = (
        select(Unit.id)
        .where(
            *slice_,
            Unit.state == in_state(UnitState.PENDING),
            is_suspect == func.coalesce(bindparam("suspects", type_=Boolean), is_suspect),
        )
        .order_by(Unit.ordinal)
        .with_for_update(skip_locked=True)
        .cte("free")
    )
    token = bindparam("token", type_=Uuid)
    taken = (
        move_units(
            UnitState.LEASED,
            Unit.id == free.c.id,
            lease_token=token,
            lease_expires_at=func.now() + bindparam("lease", type_=Interval),
            leased_by=bindparam("worker"),
        )
        .returning(*claimed)
        .cte("taken")
    )
    # A statement does not see its own changes: these are of the time before.
    taken_before = select(*claimed).where(*slice_, Unit.state == in_state(UnitState.LEASED), Unit.lease_token == token)
    every = union_all(select(taken), taken_before).subquery()
    return select(every).order_by(every.c.ordinal)


_CLAIM = _claim()


def still_held(session: Session, units: Sequence[Claimed]) -> set[int]:
    """The ids of those units whose leases are still ours."""
    return set(session.scalars(_STILL_HELD, _leases(units)))


def renew_leases(session: Session, units: Sequence[Claimed], *, lease_s: float, hard_deadline_s: float) -> set[int]:
    """Hold the leases for another ``lease_s``, but never past ``hard_deadline_s`` after the claim: a hang expires.

    Returns:
        The ids of the units that are still held; the others were taken away.
    """
    times = {"lease": timedelta(seconds=lease_s), "hard_deadline": timedelta(seconds=hard_deadline_s)}
    return set(session.scalars(_RENEW, _leases(units) | times))


def _leases(units: Sequence[Claimed]) -> dict[str, Any]:
    return {"ids": [unit.id for unit in units], "tokens": [unit.token for unit in units]}


_LEASE = (
    func.unnest(bindparam("ids", type_=ARRAY(BigInteger)), bindparam("tokens", type_=ARRAY(Uuid)))
    .table_valued(column("id", BigInteger), column("token", Uuid))
    .render_derived(name="lease")
)
_STILL_HELD = select(Unit.id).where(
    Unit.id == _LEASE.c.id, Unit.lease_token == _LEASE.c.token, Unit.state == in_state(UnitState.LEASED)
)
_RENEW = (
    update(_UNITS)
    .where(Unit.id == _LEASE.c.id, Unit.lease_token == _LEASE.c.token, Unit.state == in_state(UnitState.LEASED))
    .values(
        lease_expires_at=func.least(
            func.now() + bindparam("lease", type_=Interval),
            Unit.leased_at + bindparam("hard_deadline", type_=Interval),
        )
    )
    .returning(Unit.id)
)


def finish_units(session: Session, ended: Sequence[tuple[Claimed, Result]]) -> set[int]:
    """End units well.

    Returns:
        The ids of those that ended; the leases of the others are no longer ours (their late answers are dropped).
    """
    results = [result for _, result in ended]
    rows = {
        "outputs": [result.output for result in results],
        "digests": [result.digest for result in results],
        "answered_by": [result.answered_by for result in results],
        "degraded": [result.degraded for result in results],
        "calls": [result.calls for result in results],
    }
    return set(session.scalars(_FINISH, _leases([unit for unit, _ in ended]) | rows))


_RESULT = (
    func.unnest(
        bindparam("ids", type_=ARRAY(BigInteger)),
        bindparam("tokens", type_=ARRAY(Uuid)),
        bindparam("outputs", type_=ARRAY(JSONB(none_as_null=True))),
        bindparam("digests", type_=ARRAY(Text)),
        bindparam("answered_by", type_=ARRAY(Text)),
        bindparam("degraded", type_=ARRAY(Boolean)),
        bindparam("calls", type_=ARRAY(Integer)),
    )
    .table_valued(
        column("id", BigInteger),
        column("token", Uuid),
        column("output", JSONB),
        column("digest", Text),
        column("answered_by", Text),
        column("degraded", Boolean),
        column("calls", Integer),
    )
    .render_derived(name="result")
)
_FINISH = move_units(
    UnitState.DONE,
    Unit.id == _RESULT.c.id,
    Unit.lease_token == _RESULT.c.token,
    Unit.state == in_state(UnitState.LEASED),
    output=_RESULT.c.output,
    input_digest=func.coalesce(_RESULT.c.digest, Unit.input_digest),
    answered_by=_RESULT.c.answered_by,
    degraded=_RESULT.c.degraded,
    calls=Unit.calls + _RESULT.c.calls,
).returning(Unit.id)


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
