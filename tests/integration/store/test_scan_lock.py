"""Waiting for one's turn to dispatch, when the wait ends badly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from sqlalchemy import text

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store.session import Sessions, make_engine, make_sessions
from pipeline.store.window import scan_lock

_WAIT_S = 20.0
_WAITING = "from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'advisory'"


@pytest.fixture
def waiting(sessions: Sessions) -> Iterator[Future[bool]]:
    """Somebody who waits while another one scans."""

    def wait() -> bool:
        with sessions.begin() as session:
            return scan_lock(session)

    with ThreadPoolExecutor(1) as pool, sessions.begin() as scanning:
        assert scan_lock(scanning)
        future = pool.submit(wait)
        pause = threading.Event()
        while not _end_waiting(sessions, "count"):
            assert not future.done()
            pause.wait(0.01)
        yield future


def _end_waiting(sessions: Sessions, how: str) -> int:
    with sessions() as session:
        if how == "count":
            return int(session.execute(text(f"select count(*) {_WAITING}")).scalar_one())
        return len(session.execute(text(f"select {how}(pid) {_WAITING}")).all())


def _advisory_locks(sessions: Sessions) -> int:
    with sessions() as session:
        held = "select count(*) from pg_locks where locktype = 'advisory'"
        return int(session.execute(text(held)).scalar_one())


def test_a_connection_that_is_cut_while_it_waits_is_told_as_postgres_being_away(
    sessions: Sessions, waiting: Future[bool]
) -> None:
    assert _end_waiting(sessions, "pg_terminate_backend") == 1
    with pytest.raises(ServiceUnavailable):
        waiting.result(_WAIT_S)


def test_a_wait_that_is_cancelled_leaves_the_waiting_place_free(sessions: Sessions, waiting: Future[bool]) -> None:
    assert _end_waiting(sessions, "pg_cancel_backend") == 1
    with pytest.raises(ServiceUnavailable, match="cancel"):
        waiting.result(_WAIT_S)
    # The connection was closed; Postgres lets go of what it held when it notices.
    deadline, pause = time.monotonic() + _WAIT_S, threading.Event()
    while _advisory_locks(sessions) > 1:
        assert time.monotonic() < deadline
        pause.wait(0.01)
    assert _advisory_locks(sessions) == 1, "the one of who scans"


def test_a_dispatcher_that_stands_still_in_its_transaction_keeps_nobody_waiting(database_url: str) -> None:
    frozen, other = (make_engine(database_url, pool_size=1, stands_still_s=0.2) for _ in range(2))
    with make_sessions(frozen)() as standing:
        assert scan_lock(standing)
        with make_sessions(other).begin() as session:
            assert scan_lock(session), "after it was ended"
        with pytest.raises(ServiceUnavailable, match="stood still"):
            standing.execute(text("select 1"))
    for engine in (frozen, other):
        engine.dispose()
