"""After Postgres was away, living workers renew their leases before the reconciler takes what ran out."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text, update

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.unit import Stage, UnitState
from pipeline.reconcile import ReconcilePolicy, reconcile
from pipeline.store.reprieve import Reprieve
from pipeline.store.schema import Unit
from pipeline.store.session import Engine, Sessions, make_engine, make_sessions
from pipeline.store.units import claim_units
from tests.integration.ledger.harness import Harness


class _Clock:
    """Goes on by what the test says, and by ``each_s`` whenever it is read."""

    def __init__(self) -> None:
        self.now, self.each_s = 1000.0, 0.0

    def __call__(self) -> float:
        self.now += self.each_s
        return self.now


@pytest.fixture
def nowhere(tmp_path: Path) -> Sessions:
    return make_sessions(make_engine(f"postgresql://nobody@/nothing?host={tmp_path}"))


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def _up_for_s(harness: Harness) -> float:
    with harness.sessions() as session:
        up = "select extract(epoch from clock_timestamp() - pg_postmaster_start_time())"
        return float(session.execute(text(up)).scalar_one())


def _short_lease_s(harness: Harness) -> float:
    """A lease so short that this server has been up for longer than its reprieve."""
    return min(_up_for_s(harness), 4.0)


def test_leases_that_ran_out_wait_while_postgres_has_just_been_started(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not Reprieve(_short_lease_s(harness)).holds(harness.sessions)
    monkeypatch.setattr("pipeline.store.reprieve._LONGEST_S", _up_for_s(harness) + 3600)
    assert Reprieve(2 * _up_for_s(harness) + 3600).holds(harness.sessions)


def test_they_wait_for_a_moment_after_postgres_was_out_of_reach(
    harness: Harness, nowhere: Sessions, clock: _Clock
) -> None:
    lease_s = _short_lease_s(harness)
    reprieve = Reprieve(lease_s, clock)
    assert not reprieve.holds(harness.sessions)
    with pytest.raises(ServiceUnavailable):
        reprieve.holds(nowhere)
    clock.now += 0.4 * lease_s
    assert reprieve.holds(harness.sessions)
    clock.now += 0.2 * lease_s
    assert not reprieve.holds(harness.sessions)


def test_they_wait_for_a_moment_after_postgres_took_long_to_answer(harness: Harness, clock: _Clock) -> None:
    lease_s = _short_lease_s(harness)
    reprieve = Reprieve(lease_s, clock)
    clock.each_s = 0.6 * lease_s
    assert reprieve.holds(harness.sessions)
    clock.each_s = 0.0
    assert reprieve.holds(harness.sessions)
    clock.now += 0.6 * lease_s
    assert not reprieve.holds(harness.sessions)


def test_a_pass_with_a_reprieve_takes_no_lease_and_the_next_without_one_does(
    harness: Harness, note: Path, nowhere: Sessions, clock: _Clock
) -> None:
    reprieve = Reprieve(_short_lease_s(harness), clock)
    run = _with_a_lease_that_ran_out(harness, note)
    with pytest.raises(ServiceUnavailable):
        reprieve.holds(nowhere)

    assert _expired(harness, harness.sessions, reprieve) == 0
    assert harness.states(run, Stage.PARSE) == [UnitState.LEASED]
    clock.now += 10
    assert _expired(harness, harness.sessions, reprieve) == 1


def test_a_pass_that_could_read_and_not_write_is_followed_by_a_reprieve(
    harness: Harness, engine: Engine, note: Path, clock: _Clock
) -> None:
    reprieve = Reprieve(_short_lease_s(harness), clock)
    run = _with_a_lease_that_ran_out(harness, note)
    read_only = make_sessions(engine.execution_options(postgresql_readonly=True))
    for _ in range(2):
        with pytest.raises(ServiceUnavailable, match="read-only"):
            _expired(harness, read_only, reprieve)
    assert _expired(harness, harness.sessions, reprieve) == 0
    assert harness.states(run, Stage.PARSE) == [UnitState.LEASED]
    clock.now += 10
    assert _expired(harness, harness.sessions, reprieve) == 1


def _with_a_lease_that_ran_out(harness: Harness, note: Path) -> int:
    (document,) = harness.enqueue(note)
    assert document.run is not None
    with harness.sessions.begin() as session:
        assert claim_units(session, document.run, Stage.PARSE, [0], token=uuid4(), worker="w", lease_s=30)
        session.execute(update(Unit).values(lease_expires_at=text("now() - interval '1 second'")))
    return document.run


def _expired(harness: Harness, sessions: Sessions, reprieve: Reprieve) -> int:
    policy = ReconcilePolicy(unit=harness.unit)
    done = reconcile(sessions, harness.blobs, harness.watch, policy, reprieve)
    assert done is not None
    return done.expired
