"""A worker that dies takes messages with it that it had fetched and not begun; they are not waited for."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update

from pipeline.domain.unit import Queue, Stage, UnitState
from pipeline.reconcile import ReconcilePolicy, reconcile
from pipeline.store.fleet import slots_by_queue
from pipeline.store.reader import reader_of
from pipeline.store.runs import lock_running
from pipeline.store.schema import Attempt, Unit, Worker
from pipeline.store.units import claim_units, seconds_from_now
from pipeline.store.workers import beat
from tests.integration.ledger.harness import Harness


@pytest.fixture
def handed_out(harness: Harness, note: Path) -> int:
    """A run whose one message is under way, with two workers that may have fetched it."""
    with harness.sessions.begin() as session:
        beat(session, "parse-2", role="worker", host="here", pid=2, queues=["parse"], slots=4, cpu_slots=4)
    (document,) = harness.enqueue(note)
    assert document.run is not None
    assert len(harness.dispatch()) == 1
    return document.run


def ages(harness: Harness, run_id: int, *, message_s: float, **heartbeats_s: float) -> None:
    """Let the message have been sent, and workers have last been heard of, so long ago."""
    with harness.sessions.begin() as session:
        session.execute(update(Unit).where(Unit.run_id == run_id).values(dispatched_at=seconds_from_now(-message_s)))
        for worker, age_s in heartbeats_s.items():
            session.execute(update(Worker).where(Worker.id == worker).values(heartbeat_at=seconds_from_now(-age_s)))


def forgotten(harness: Harness) -> int:
    done = reconcile(harness.sessions, harness.blobs, harness.watch, ReconcilePolicy(unit=harness.unit))
    assert done is not None
    return done.stale_wakes


def test_what_a_dead_worker_had_fetched_is_handed_out_again(harness: Harness, handed_out: int) -> None:
    ages(harness, handed_out, message_s=45, parse=40)
    assert forgotten(harness) == 1
    assert [piece.run_id for piece in harness.dispatch()] == [handed_out]
    # Once for each death: what was handed out since was never the dead worker's.
    assert forgotten(harness) == 0


def test_what_was_sent_after_a_death_is_waited_for(harness: Harness, handed_out: int) -> None:
    ages(harness, handed_out, message_s=25, parse=40)
    assert forgotten(harness) == 0


def test_the_death_of_a_worker_of_another_queue_changes_nothing(harness: Harness, handed_out: int) -> None:
    ages(harness, handed_out, message_s=45, embed=40)
    assert forgotten(harness) == 0


def test_a_message_that_living_workers_may_hold_is_waited_for(harness: Harness, handed_out: int) -> None:
    ages(harness, handed_out, message_s=100, parse=20)
    assert forgotten(harness) == 0
    with harness.sessions() as session:
        assert session.scalar(select(func.count(Unit.dispatched_at))) == 1


@pytest.mark.parametrize("draining", [False, True])
def test_what_a_worker_held_that_was_killed_for_draining_too_slowly_is_no_mark_against_it(
    harness: Harness, handed_out: int, draining: bool
) -> None:
    with harness.sessions.begin() as session:
        beat(session, "worker-1", role="worker", host="here", pid=3, queues=["parse"], draining=draining)
        assert lock_running(session, handed_out)
        claim_units(session, handed_out, Stage.PARSE, [0], token=uuid4(), worker="worker-1", lease_s=30)
    with harness.sessions.begin() as session:
        session.execute(update(Unit).values(lease_expires_at=seconds_from_now(-1)))
    done = reconcile(harness.sessions, harness.blobs, harness.watch, ReconcilePolicy(unit=harness.unit))
    assert done is not None
    assert done.expired == 1
    (unit,) = harness.units(handed_out)
    assert (unit.state, unit.lost_leases) == (UnitState.PENDING, int(not draining))
    with harness.sessions() as session:
        assert session.scalars(select(Attempt.outcome)).all() == ["lost"], "history has it either way"


def test_a_worker_that_drains_is_sent_nothing_more(harness: Harness, handed_out: int) -> None:
    with harness.sessions.begin() as session:
        before = slots_by_queue(reader_of(session))[Queue.PARSE]
        beat(session, "parse-2", role="worker", host="here", pid=2, queues=["parse"], cpu_slots=4, draining=True)
        assert slots_by_queue(reader_of(session))[Queue.PARSE] == before - 4
