"""What reaches Postgres is storable, whatever way it takes, and a lost server comes back by itself."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from sqlalchemy import Engine, insert, select, text
from sqlalchemy.engine import make_url

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store.schema import Attempt, Worker
from pipeline.store.session import Sessions, make_engine


def test_text_is_safe_by_every_way_into_the_database(sessions: Sessions) -> None:
    bad = "a\x00b\ud83d\ude00\udc80"
    good = "ab\N{GRINNING FACE}\ufffd"
    with sessions.begin() as session:
        session.execute(insert(Worker).values(id=bad, role="x", host=bad, pid=1, queues=[bad]))
        session.add(Attempt(role="vlm", call_id="c", position=0, message=bad, skipped=[{bad: [bad, float("inf")]}]))
        by_statement = session.scalar(text("select cast(:given as text)"), {"given": bad})
    with sessions() as session:
        worker = session.scalars(select(Worker)).one()
        attempt = session.scalars(select(Attempt)).one()
    assert by_statement == good
    assert (worker.id, worker.host, worker.queues) == (good, good, [good])
    assert attempt.message == good
    assert attempt.skipped == [{good: [good, None]}]


def test_copy_is_safe_too(engine: Engine) -> None:
    with engine.begin() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor, cursor.copy("copy target_switch (target, disabled) from stdin") as copy:
            copy.write_row(("a\x00b\udc80", True))
        assert connection.scalar(text("select target from target_switch")) == "ab\ufffd"


def test_times_are_utc_and_connections_are_named(engine: Engine) -> None:
    with engine.connect() as connection:
        assert connection.scalar(text("show timezone")) == "UTC"
        assert connection.scalar(text("show application_name")) == "tests"
        assert connection.scalar(text("show idle_in_transaction_session_timeout")) == "30s"


def test_options_of_the_url_stand_beside_ours(database_url: str) -> None:
    given = "-c search_path=tides,public -c timezone=Asia/Tokyo -c idle_in_transaction_session_timeout=5000"
    separator = "&" if "?" in database_url else "?"
    engine = make_engine(f"{database_url}{separator}{urlencode({'options': given})}")
    with engine.connect() as connection:
        assert connection.scalar(text("show search_path")) == "tides,public"
        # Times are read as UTC, whatever a URL says.
        assert connection.scalar(text("show timezone")) == "UTC"
        assert connection.scalar(text("show idle_in_transaction_session_timeout")) == "5s"
    engine.dispose()


def test_a_connection_that_died_in_the_pool_is_replaced(engine: Engine) -> None:
    with engine.connect() as first, engine.connect() as second:
        pid = first.scalar(text("select pg_backend_pid()"))
        first.rollback()
        second.execute(text("select pg_terminate_backend(:pid)"), {"pid": pid})
    for _ in range(3):
        with engine.connect() as connection:
            assert connection.scalar(text("select 1")) == 1


def test_a_pool_whose_connections_all_stay_taken_is_a_service_out_of_reach(database_url: str) -> None:
    engine = make_engine(database_url, pool_size=1, pool_timeout_s=0.05)
    with engine.connect(), pytest.raises(ServiceUnavailable, match="all 1 Postgres connections"):
        engine.connect()
    engine.dispose()


def test_a_database_that_is_not_there_is_not_a_server_that_does_not_answer(database_url: str) -> None:
    engine = make_engine(make_url(database_url).set(database="nowhere").render_as_string(hide_password=False))
    with pytest.raises(ServiceUnavailable, match="has no such database"):
        engine.connect()
    engine.dispose()
