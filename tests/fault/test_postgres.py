"""Postgres restarted, crashed, cut off and frozen under work: what was paid for is stored when it is back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.fault.checks import check, paid_again
from tests.fault.heard import Heard
from tests.fault.proxy import PostgresProxy
from tests.fault.servers import Servers
from tests.fault.stack import Stack
from tests.upstream import UpstreamProcess

_SLOW_S = 2.0
_LEASE_S = 3
_ATTEMPTS_FORGOTTEN = 20
"""Attempts are committed asynchronously: those of the last moment go with a server that crashes."""
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def stack(servers: Servers, models: UpstreamProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A worker and a beat that live through everything that is done to Postgres."""
    made = Stack(servers, models, tmp_path_factory.mktemp("stack"), config={"unit": {"lease_s": _LEASE_S}})
    _start(made)
    yield made
    made.close()


def _start(stack: Stack) -> None:
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)


def _with_answers_to_come(stack: Stack, calls: int = 4) -> list[int]:
    """Documents of which so many calls are open at the server, to be answered in a moment; the runs' ids."""
    stack.models.clear()
    stack.models.behave("cues", {"first_content_s": _SLOW_S}, calls=calls)
    runs = stack.enqueue(*stack.papers.notes(2))
    stack.wait_until(lambda: len(stack.open_calls("cues")) >= calls, timeout_s=_PATIENCE_S)
    return runs


def _nothing_was_repeated(stack: Stack, *, forgotten: int = 0) -> None:
    stack.wait_ended(timeout_s=_PATIENCE_S)
    check(stack, forgotten_attempts=forgotten)
    assert not paid_again(stack)
    assert not stack.rows("select id from unit where lost_leases > 0")
    for program in stack.programs:
        assert program.alive
        assert "Traceback" not in program.said(), program.said()


def test_an_outage_longer_than_the_lease_repeats_nothing(stack: Stack) -> None:
    worker = Heard(stack.programs[0])
    _with_answers_to_come(stack)
    stack.servers.postgres.stop()
    try:
        # Answers arrive and leases run out while it is away.
        threading.Event().wait(_SLOW_S + 2 * _LEASE_S)
        assert not stack.open_calls("cues")
    finally:
        stack.servers.postgres.start()
    _nothing_was_repeated(stack)
    assert worker.events.count("postgres.awaited") == 1
    assert worker.events.count("heartbeat.missed") <= 1


def test_postgres_frozen_for_longer_than_the_lease_repeats_nothing(stack: Stack) -> None:
    _with_answers_to_come(stack)
    stack.servers.postgres.freeze()
    try:
        threading.Event().wait(_SLOW_S + 2 * _LEASE_S)
        assert not stack.open_calls("cues")
    finally:
        stack.servers.postgres.thaw()
    _nothing_was_repeated(stack)


def test_a_postgres_that_is_read_only_for_longer_than_the_lease_repeats_nothing(stack: Stack) -> None:
    _with_answers_to_come(stack)
    _set_read_only(stack, "on")
    try:
        threading.Event().wait(_SLOW_S + 2 * _LEASE_S)
        assert not stack.open_calls("cues")
    finally:
        _set_read_only(stack, "off")
    _nothing_was_repeated(stack, forgotten=_ATTEMPTS_FORGOTTEN)


@pytest.mark.parametrize("how", ["restart", "immediate"])
def test_a_restart_under_open_calls_repeats_none(stack: Stack, how: str) -> None:
    _with_answers_to_come(stack)
    if how == "restart":
        stack.servers.postgres.restart()
    else:
        stack.servers.postgres.kill()
        stack.servers.postgres.start()
    _nothing_was_repeated(stack, forgotten=_ATTEMPTS_FORGOTTEN)


def test_connections_cut_in_the_middle_of_units_repeat_nothing(stack: Stack) -> None:
    _with_answers_to_come(stack)
    for _ in range(5):
        _cut_all(stack)
        threading.Event().wait(_SLOW_S / 4)
    _nothing_was_repeated(stack, forgotten=_ATTEMPTS_FORGOTTEN)


def _cut_all(stack: Stack) -> None:
    """``pg_terminate_backend`` of every client that is connected to the stack's database."""
    with _beside(stack) as connection:
        _end_backends(connection, stack)


def _set_read_only(stack: Stack, state: str) -> None:
    """As a server is that was demoted: it answers every question and takes no write."""
    name = make_url(stack.database_url).database
    with _beside(stack) as connection:
        connection.execute(f"alter database {name} set default_transaction_read_only = {state}".encode())
        _end_backends(connection, stack)


def _beside(stack: Stack) -> psycopg.Connection[Any]:
    """A connection to another database of the same server."""
    url = make_url(stack.database_url).set(drivername="postgresql", database="postgres")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


def _end_backends(connection: psycopg.Connection[Any], stack: Stack) -> None:
    connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
        (make_url(stack.database_url).database,),
    )


def test_commits_whose_replies_are_lost_count_once(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack(config={"unit": {"lease_s": _LEASE_S}})
    with PostgresProxy(stack.database_url) as proxy:
        stack.environment["TIDEGATE_DATABASE_URL"] = proxy.url
        _start(stack)
        _with_answers_to_come(stack)
        # First those of the four units' ends, and of whatever else commits then; later all sorts: claims, hand-outs.
        for _ in range(4):
            before = proxy.lost
            proxy.lose_commits(8)
            stack.wait_until(lambda before=before: proxy.lost == before + 8)  # type: ignore[misc]
            if not stack.count("run where state <> 'done'"):
                stack.enqueue(stack.papers.note())
        _nothing_was_repeated(stack, forgotten=_ATTEMPTS_FORGOTTEN)
        stack.close()
