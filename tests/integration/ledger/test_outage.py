"""Postgres goes away in the middle of a slice: what was paid for is committed when it is back, and nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, event, func, update
from sqlalchemy.orm import Session

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage, UnitState
from pipeline.endings import SliceReport
from pipeline.store.patience import Patience
from pipeline.store.schema import Page, Unit
from pipeline.store.session import Sessions
from tests.integration.ledger.harness import Harness, exhausted

AWAY = ServiceUnavailable("Postgres at the test does not answer", "wait")


class Outage:
    """Breaks transactions of this thread: before they reach the server, or after a COMMIT that went through."""

    def __init__(self, sessions: Sessions) -> None:
        self.seen = 0
        self.waits = 0
        self._at: range = range(0)
        self._unheard = False
        event.listen(sessions, "before_commit", self._before)
        event.listen(sessions, "after_commit", self._after)

    def begin(self, at: int = 0, times: int = 1, *, unheard: bool = False) -> None:
        """Break ``times`` transactions, beginning with the ``at``-th from now on."""
        self._at, self._unheard = range(self.seen + at, self.seen + at + times), unheard

    def waited(self, _: ServiceUnavailable) -> None:
        self.waits += 1

    def _before(self, _: Session) -> None:
        if threading.current_thread() is threading.main_thread():
            self.seen += 1
            self._break(unheard=False)

    def _after(self, _: Session) -> None:
        if threading.current_thread() is threading.main_thread():
            self._break(unheard=True)

    def _break(self, *, unheard: bool) -> None:
        if self.seen - 1 in self._at and unheard is self._unheard:
            raise AWAY


@pytest.fixture
def outage(harness: Harness) -> Outage:
    return Outage(harness.sessions)


def carry_out(harness: Harness, outage: Outage, stage: Stage, run_id: int) -> Callable[[], SliceReport]:
    ingest = replace(harness.ingest(), patience=Patience(limit_s=5.0, on_wait=outage.waited))
    (piece,) = [piece for piece in harness.dispatch() if (piece.stage, piece.run_id) == (stage, run_id)]
    return lambda: ingest.run_slice(piece.run_id, piece.stage, piece.ordinals)


def up_to_format(harness: Harness, outage: Outage, path: Path) -> int:
    (document,) = harness.enqueue(path)
    assert document.run is not None
    carry_out(harness, outage, Stage.PARSE, document.run)()
    return document.run


@pytest.mark.parametrize("unheard", [False, True], ids=["before COMMIT", "COMMIT unheard"])
@pytest.mark.parametrize("at", [0, 1, 2], ids=["claim", "load", "end"])
def test_a_slice_outlasts_an_outage_in_any_of_its_transactions(
    harness: Harness, outage: Outage, note: Path, unheard: bool, at: int
) -> None:
    run_id = up_to_format(harness, outage, note)
    slice_of_format = carry_out(harness, outage, Stage.FORMAT, run_id)
    outage.begin(at, times=1 if unheard else 2, unheard=unheard)
    slice_of_format()
    assert outage.waits == 1
    assert len(harness.formatter.calls) == 1, "the page was paid for once"
    assert harness.states(run_id, Stage.FORMAT) == [UnitState.DONE]
    harness.drive()
    assert harness.run(run_id).state == RunState.DONE
    assert len(harness.formatter.calls) == 1
    assert [unit.lost_leases for unit in harness.units(run_id)] == [0] * len(harness.units(run_id))


def test_a_result_that_waits_keeps_the_leases_of_its_slice(harness: Harness, outage: Outage, note: Path) -> None:
    run_id = up_to_format(harness, outage, note)
    for stage in (Stage.FORMAT, Stage.CHUNK):
        carry_out(harness, outage, stage, run_id)()
    heard: list[str] = []
    engine = harness.sessions.kw["bind"]

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread() is threading.main_thread() and statement.startswith("UPDATE unit SET"):
            heard.append("renewal" if "least(" in statement else "end")

    outage.waited = lambda _: heard.append("wait")  # type: ignore[method-assign]
    # Always due: what is to be seen is whether it is looked at.
    harness.unit = replace(harness.unit, lease_s=0.03)
    slice_of_retrieve = carry_out(harness, outage, Stage.RETRIEVE, run_id)
    outage.begin(2, times=8, unheard=True)
    event.listen(engine, "before_cursor_execute", hear)
    try:
        slice_of_retrieve()
    finally:
        event.remove(engine, "before_cursor_execute", hear)
    assert heard[heard.index("wait") + 1] == "renewal"
    assert set(harness.states(run_id, Stage.RETRIEVE)) == {UnitState.DONE}


def test_a_result_whose_postgres_stays_away_is_given_up_in_the_end(
    harness: Harness, outage: Outage, note: Path
) -> None:
    run_id = up_to_format(harness, outage, note)
    slice_of_format = carry_out(harness, outage, Stage.FORMAT, run_id)
    harness.formatter.before = lambda: outage.begin(times=1_000_000)
    with pytest.raises(ServiceUnavailable):
        slice_of_format()
    assert outage.waits == 1, "said once"
    assert harness.states(run_id, Stage.FORMAT) == [UnitState.LEASED]


def test_a_service_that_a_job_needs_gives_its_units_back_without_a_mark(
    harness: Harness, outage: Outage, note: Path
) -> None:
    run_id = up_to_format(harness, outage, note)
    harness.formatter.acts.append(ServiceUnavailable("the blob store is away", "wait"))
    with pytest.raises(ServiceUnavailable, match="blob store"):
        carry_out(harness, outage, Stage.FORMAT, run_id)()
    (unit,) = harness.units(run_id, Stage.FORMAT)
    assert (unit.state, unit.lost_leases, unit.leased_by) == (UnitState.PENDING, 0, None)
    assert harness.dispatch() == [], "a service that is away is not asked as fast as we can"
    with harness.sessions.begin() as session:
        session.execute(update(Unit).where(Unit.resume_at.is_not(None)).values(resume_at=func.now()))
    harness.drive()
    assert harness.run(run_id).state == RunState.DONE


def test_a_bug_in_reading_what_units_need_fails_them_and_loses_no_lease(
    harness: Harness, outage: Outage, note: Path
) -> None:
    run_id = up_to_format(harness, outage, note)
    slice_of_format = carry_out(harness, outage, Stage.FORMAT, run_id)
    with harness.sessions.begin() as session:
        session.execute(delete(Page).where(Page.run_id == run_id))
    slice_of_format()
    (unit,) = harness.units(run_id, Stage.FORMAT)
    assert (unit.state, unit.failure_kind, unit.lost_leases) == (UnitState.FAILED, "internal", 0)
    assert len(harness.heard.inside) == 1


def test_a_parked_slice_outlasts_an_outage_too(harness: Harness, outage: Outage, note: Path) -> None:
    run_id = up_to_format(harness, outage, note)
    slice_of_format = carry_out(harness, outage, Stage.FORMAT, run_id)
    harness.formatter.acts.append(exhausted("vlm_formatter", retry_at=4_000_000_000.0))
    harness.formatter.before = outage.begin
    slice_of_format()
    assert harness.states(run_id, Stage.FORMAT) == [UnitState.PARKED]
    assert harness.run(run_id).state == RunState.PARKED
