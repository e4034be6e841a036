"""``enqueue --wait``: what ends the waiting, over real rows."""

from __future__ import annotations

import io

import pytest
from sqlalchemy import text

from pipeline.domain.unit import Queue
from pipeline.store.session import Sessions
from pipeline.store.workers import beat
from tests.integration.seed import Seed
from worker.cli import waiting
from worker.cli.terminal import Terminal
from worker.cli.waiting import Ending, Waited, wait_for_runs


@pytest.fixture
def run(sessions: Sessions) -> int:
    seed = Seed(sessions)
    return seed.run(seed.document("a.pdf"))


def _wait(sessions: Sessions, run: int, timeout_s: float | None = None) -> Waited:
    return wait_for_runs(Terminal(as_json=True, out=io.StringIO()), sessions, [run], timeout_s)


def _start_worker(sessions: Sessions) -> None:
    with sessions.begin() as session:
        beat(session, "w", role="worker", host="here", pid=1, queues=["parse"], slots=1)


def test_the_time_is_up_whether_or_not_a_worker_is_there(sessions: Sessions, run: int) -> None:
    waited = _wait(sessions, run, timeout_s=0)
    assert (waited.ending, waited.has_worker) == (Ending.TIMEOUT, False)
    _start_worker(sessions)
    waited = _wait(sessions, run, timeout_s=0)
    assert (waited.ending, waited.has_worker) == (Ending.TIMEOUT, True)


def test_without_a_worker_nobody_is_kept_waiting(sessions: Sessions, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_NO_WORKER_S", 0.0)
    waited = _wait(sessions, run)
    assert (waited.ending, waited.has_worker) == (Ending.NO_WORKER, False)


def test_a_worker_of_other_queues_is_none(sessions: Sessions, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_RESTARTED_S", 0.0)
    _start_worker(sessions)
    seed = Seed(sessions)
    with sessions.begin() as session:
        session.execute(text("update run set state = 'running'"))
    seed.units(run, "parse", [0])
    seed.units(run, "format", [1, 2], "pending")
    waited = _wait(sessions, run, timeout_s=20)
    assert (waited.ending, waited.unattended) == (Ending.NO_WORKER, (Queue.FORMAT,))


def test_runs_that_are_all_parked_for_later_are_not_waited_for(
    sessions: Sessions, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_PARKED_S", 0.0)
    _start_worker(sessions)
    with sessions.begin() as session:
        session.execute(text("update run set state = 'parked', resume_at = now() + interval '1 hour'"))
    assert _wait(sessions, run).ending is Ending.PARKED


def test_a_run_that_has_ended_is_what_was_waited_for(sessions: Sessions, run: int) -> None:
    with sessions.begin() as session:
        session.execute(text("update run set state = 'done', finished_at = now()"))
    assert _wait(sessions, run).ending is Ending.ENDED
