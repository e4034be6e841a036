"""Every pair of states, through every function that moves a unit or a run: what the tables allow happens, no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from pipeline.domain.errors import Failure
from pipeline.domain.run import ACTIVE_RUN_STATES, ENDED_RUN_STATES, RUN_MOVES, RunState
from pipeline.domain.unit import UNIT_MOVES, Stage, UnitState
from pipeline.publish import publish
from pipeline.store.losses import lose_lease, lose_leases, release_leases
from pipeline.store.moves import move_units, rows_changed
from pipeline.store.parked import park_pending, park_unit, wake_parked
from pipeline.store.reuse import mark_reused, reuse_units
from pipeline.store.runs import cancel_active_runs, give_up_parked, lock_run, lock_running, move_run, park_run
from pipeline.store.schema import Document, Run, Unit
from pipeline.store.session import Session, Sessions
from pipeline.store.units import (
    Claimed,
    Result,
    claim_units,
    fail_unit,
    finish_units,
    give_back,
    seconds_from_now,
)
from tests.integration.seed import Seed

MAX_LOST = 3
WHY = "its worker died"
TOKEN = UUID(int=1)
STALE = UUID(int=2)


@dataclass
class Ledger:
    """One document, with a run and a unit in whatever state a case asks for."""

    sessions: Sessions
    document: UUID
    run_id: int
    unit_id: int

    def put(self, unit: UnitState | None = None, run: RunState = RunState.RUNNING, *, lost: int = 0) -> None:
        """Set the states directly, with what goes with them."""
        with self.sessions.begin() as session:
            ended = func.now() if run in ENDED_RUN_STATES else None
            parked = func.now() if run is RunState.PARKED else None
            session.execute(
                update(Run)
                .where(Run.id == self.run_id)
                .values(state=run.value, finished_at=ended, resume_at=parked, parked_since=parked, failure_kind=None)
            )
            if unit is not None:
                session.execute(
                    update(Unit)
                    .where(Unit.id == self.unit_id)
                    .values(
                        state=unit.value,
                        lost_leases=lost,
                        lease_token=TOKEN if unit is UnitState.LEASED else None,
                        lease_expires_at=seconds_from_now(-1) if unit is UnitState.LEASED else None,
                        leased_by="w" if unit is UnitState.LEASED else None,
                        leased_at=func.now() if unit is UnitState.LEASED else None,
                        resume_at=func.now() + timedelta(hours=1) if unit is UnitState.PARKED else None,
                        finished_at=func.now() if not UNIT_MOVES[unit] else None,
                        failure_kind="old" if unit is UnitState.FAILED else None,
                        output={"markdown": "old"} if unit is UnitState.DONE else None,
                        input_digest="same",
                    )
                )

    def claimed(self, token: UUID = TOKEN) -> Claimed:
        return Claimed(self.unit_id, self.run_id, Stage.FORMAT, 1, token)

    @property
    def unit(self) -> Unit:
        with self.sessions() as session:
            return session.get_one(Unit, self.unit_id)

    @property
    def run(self) -> Run:
        with self.sessions() as session:
            return session.get_one(Run, self.run_id)

    def locked(self, session: Session) -> Run:
        run = lock_run(session, self.run_id)
        assert run is not None
        return run


@pytest.fixture
def ledger(sessions: Sessions) -> Ledger:
    seed = Seed(sessions)
    document = seed.document("/a")
    run_id = seed.run(document, "running", recipe={"stages": {}, "on_page_failure": "fail"})
    seed.units(run_id, "format", [1], "pending")
    # A result of the same input, for what reuses results.
    other = seed.run(seed.document("/b"), "done")
    seed.units(other, "format", [1], "done", input_digest="same", output={"markdown": "known"}, finished_at=func.now())
    with sessions() as session:
        unit_id = session.scalars(select(Unit.id).where(Unit.run_id == run_id)).one()
    return Ledger(sessions, document, run_id, unit_id)


@pytest.mark.parametrize("after", UnitState)
def test_a_unit_moves_where_the_table_says_so_and_nowhere_else(ledger: Ledger, after: UnitState) -> None:
    values = {"lease_token": TOKEN} if after is UnitState.LEASED else {}
    for before in UnitState:
        ledger.put(before)
        old = row(ledger.unit)
        with ledger.sessions.begin() as session:
            changed = rows_changed(session, move_units(after, Unit.id == ledger.unit_id, **values))
        assert changed == (after in UNIT_MOVES[before]), f"{before} to {after}"
        if changed:
            assert ledger.unit.state == after
            assert (ledger.unit.lease_token is not None) == (after is UnitState.LEASED)
            assert (ledger.unit.finished_at is not None) == (not UNIT_MOVES[after])
        else:
            assert row(ledger.unit) == old, f"{before} to {after}"


@pytest.mark.parametrize("after", RunState)
def test_a_run_moves_where_the_table_says_so_and_nowhere_else(ledger: Ledger, after: RunState) -> None:
    for before in RunState:
        ledger.put(None, before)
        old = row(ledger.run)
        with ledger.sessions.begin() as session:
            moved = move_run(session, ledger.run_id, after)
        assert moved == (after in RUN_MOVES[before]), f"{before} to {after}"
        if moved:
            assert ledger.run.state == after
            assert (ledger.run.finished_at is not None) == (after in ENDED_RUN_STATES)
        else:
            assert row(ledger.run) == old, f"{before} to {after}"


UnitAct = Callable[[Session, Ledger], object]


def _claim(session: Session, ledger: Ledger) -> object:
    return claim_units(session, ledger.run_id, Stage.FORMAT, [1], token=UUID(int=3), worker="new", lease_s=30)


def _reuse(session: Session, ledger: Ledger, ordinals: list[int] | None = None, *, held: bool = False) -> object:
    return reuse_units(session, ledger.locked(session), Stage.FORMAT, ordinals, held=held)


LEASED, PENDING, PARKED = {UnitState.LEASED}, {UnitState.PENDING}, {UnitState.PARKED}
UNIT_ACTS: dict[str, tuple[UnitState, set[UnitState], UnitAct]] = {
    "claim": (UnitState.LEASED, PENDING, _claim),
    "finish": (UnitState.DONE, LEASED, lambda s, it: finish_units(s, [(it.claimed(), Result({"markdown": "new"}))])),
    "finish, stale": (UnitState.DONE, set(), lambda s, it: finish_units(s, [(it.claimed(STALE), Result())])),
    "fail": (UnitState.FAILED, LEASED, lambda s, it: fail_unit(s, it.claimed(), Failure("corrupt", "no"))),
    "fail, stale": (UnitState.FAILED, set(), lambda s, it: fail_unit(s, it.claimed(STALE), Failure("corrupt", "no"))),
    "give back": (UnitState.PENDING, LEASED, lambda s, it: give_back(s, [it.claimed()])),
    "give back, stale": (UnitState.PENDING, set(), lambda s, it: give_back(s, [it.claimed(STALE)])),
    "lose": (UnitState.PENDING, LEASED, lambda s, it: lose_lease(s, it.claimed(), MAX_LOST, WHY)),
    "lose, stale": (UnitState.PENDING, set(), lambda s, it: lose_lease(s, it.claimed(STALE), MAX_LOST, WHY)),
    "lose the last": (UnitState.FAILED, LEASED, lambda s, it: lose_lease(s, it.claimed(), 1, WHY)),
    "expire": (UnitState.PENDING, LEASED, lambda s, it: lose_leases(s, it.run_id, MAX_LOST, cause=WHY)),
    "expire the last": (UnitState.FAILED, LEASED, lambda s, it: lose_leases(s, it.run_id, 1, cause=WHY)),
    "lose a worker's": (
        UnitState.PENDING,
        LEASED,
        lambda s, it: lose_leases(s, it.run_id, MAX_LOST, cause=WHY, worker="w"),
    ),
    "lose another's": (UnitState.PENDING, set(), lambda s, it: lose_leases(s, it.run_id, 1, cause=WHY, worker="x")),
    "release": (UnitState.PENDING, LEASED, lambda s, it: release_leases(s, it.run_id, "w")),
    "release another's": (UnitState.PENDING, set(), lambda s, it: release_leases(s, it.run_id, "x")),
    "park": (UnitState.PARKED, LEASED, lambda s, it: park_unit(s, it.claimed(), None)),
    "park, stale": (UnitState.PARKED, set(), lambda s, it: park_unit(s, it.claimed(STALE), None)),
    "park the slice": (UnitState.PARKED, PENDING, lambda s, it: park_pending(s, it.run_id, Stage.FORMAT, [1], None)),
    "wake": (UnitState.PENDING, PARKED, lambda s, it: wake_parked(s, it.run_id)),
    "reuse": (UnitState.DONE, PENDING, _reuse),
    "reuse, these": (UnitState.DONE, PENDING, partial(_reuse, ordinals=[1])),
    "reuse, others": (UnitState.DONE, set(), partial(_reuse, ordinals=[2], held=True)),
    "reuse, held": (UnitState.DONE, PENDING | LEASED, partial(_reuse, ordinals=[1], held=True)),
    "mark reused": (UnitState.DONE, PENDING | LEASED, lambda s, it: mark_reused(s, it.run_id, Stage.FORMAT, [1])),
}


@pytest.mark.parametrize("name", UNIT_ACTS)
def test_each_unit_function_moves_from_its_own_states_alone(ledger: Ledger, name: str) -> None:
    after, allowed, act = UNIT_ACTS[name]
    for before in UnitState:
        ledger.put(before, RunState.RUNNING)
        old = row(ledger.unit)
        with ledger.sessions.begin() as session:
            act(session, ledger)
        if before in allowed:
            assert ledger.unit.state == after, f"{name} from {before}"
            assert ledger.unit.lost_leases == (1 if name.startswith(("lose", "expire")) else 0)
        else:
            assert row(ledger.unit) == old, f"{name} from {before}"


def _publish(empty: bool, session: Session, ledger: Ledger) -> object:
    return publish(session, ledger.locked(session), empty=empty, incomplete=False)


RUN_ACTS: dict[str, tuple[RunState, set[RunState], UnitAct]] = {
    "start": (RunState.RUNNING, {RunState.QUEUED}, lambda s, it: lock_running(s, it.run_id)),
    "park": (RunState.PARKED, {RunState.RUNNING}, lambda s, it: park_run(s, it.run_id, None)),
    "publish": (RunState.DONE, {RunState.RUNNING}, partial(_publish, False)),
    "publish empty": (RunState.EMPTY, {RunState.RUNNING}, partial(_publish, True)),
    "cancel": (
        RunState.CANCELLED,
        set(ACTIVE_RUN_STATES),
        lambda s, it: cancel_active_runs(s, Run.id == it.run_id, "by hand"),
    ),
    "give up": (RunState.FAILED, {RunState.PARKED}, lambda s, it: give_up_parked(s, -1, 9)),
}


@pytest.mark.parametrize("name", RUN_ACTS)
def test_each_run_function_moves_from_its_own_states_alone(ledger: Ledger, name: str) -> None:
    after, allowed, act = RUN_ACTS[name]
    for before in RunState:
        ledger.put(None, before)
        old = row(ledger.run)
        with ledger.sessions.begin() as session:
            act(session, ledger)
        if before in allowed:
            assert ledger.run.state == after, f"{name} from {before}"
        else:
            assert row(ledger.run) == old, f"{name} from {before}"
        with ledger.sessions() as session:
            live = session.get_one(Document, ledger.document).live_run_id
        assert live == (ledger.run_id if name.startswith("publish") and before in allowed else None), before
        with ledger.sessions.begin() as session:
            session.execute(update(Document).values(live_run_id=None))


def test_what_cancel_and_give_up_leave_behind_holds_nothing_open(ledger: Ledger) -> None:
    for before in UnitState:
        ledger.put(before, RunState.PARKED)
        with ledger.sessions.begin() as session:
            give_up_parked(session, -1, 9)
        assert ledger.unit.state == (before if not UNIT_MOVES[before] else UnitState.FAILED)
    ledger.put(UnitState.PENDING, RunState.RUNNING)
    with ledger.sessions.begin() as session:
        assert cancel_active_runs(session, Run.id == ledger.run_id, "by hand") == [ledger.run_id]
    with ledger.sessions() as session:
        assert session.get(Unit, ledger.unit_id) is None


def row(of: Unit | Run) -> dict[str, object]:
    """What a row holds."""
    return {column.key: getattr(of, column.key) for column in of.__table__.columns}
