"""Attempts are durable as they happen, and what makes writing them cheap stays with them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, select, text, update

from pipeline.domain.call import Outcome, Skip, SkipReason, TryRecord, Usage
from pipeline.domain.errors import ServiceUnavailable
from pipeline.failover.records import AttemptStart, CallContext
from pipeline.store.attempt_sink import PostgresAttemptSink
from pipeline.store.schema import Attempt, Spend
from pipeline.store.session import Sessions, make_engine, make_sessions
from tests.integration.seed import Seed

CONTEXT = CallContext("call", stage="describe", worker="w")
COOLING = Skip("first@a", SkipReason.COOLING, until=1_800_000_000.0, detail="rate_limit")
START = AttemptStart(CONTEXT, "vlm", "second@b", "second", 1, (COOLING,))
ENDED = TryRecord("second@b", 1, Outcome.OK, ttft_s=0.25, duration_s=1.5, usage=Usage(10, 20, 0.001))


@pytest.fixture
def one_connection(database_url: str) -> Iterator[Sessions]:
    """Sessions that all get the same connection, one after the other."""
    engine = make_engine(database_url, pool_size=1, pool_timeout_s=5)
    yield make_sessions(engine)
    engine.dispose()


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as made:
        yield made


async def test_a_begun_attempt_is_there_for_everyone_before_the_call(
    sessions: Sessions, one_connection: Sessions, executor: Executor
) -> None:
    attempt_id = await PostgresAttemptSink(one_connection, executor).begin(START)
    with sessions() as session:
        row = session.scalars(select(Attempt)).one()
    assert (row.id, row.outcome, row.target, row.position) == (attempt_id, "running", "second@b", 1)
    assert row.skipped == [{"target": "first@a", "reason": "cooling", "until": 1_800_000_000.0, "detail": "rate_limit"}]


async def test_an_ended_attempt_holds_its_times_and_its_usage(
    sessions: Sessions, one_connection: Sessions, executor: Executor
) -> None:
    sink = PostgresAttemptSink(one_connection, executor)
    await sink.end(await sink.begin(START), ENDED)
    with sessions() as session:
        row = session.scalars(select(Attempt)).one()
    assert (row.outcome, row.ttft_ms, row.duration_ms) == ("ok", 250, 1500)
    assert (row.tokens_in, row.tokens_out, row.cost_usd) == (10, 20, 0.001)


async def test_an_attempt_that_was_closed_as_lost_stays_lost(
    sessions: Sessions, one_connection: Sessions, executor: Executor
) -> None:
    sink = PostgresAttemptSink(one_connection, executor)
    attempt_id = await sink.begin(START)
    with sessions.begin() as session:
        session.execute(update(Attempt).values(outcome=Outcome.LOST.value))
    await sink.end(attempt_id, ENDED)
    with sessions() as session:
        assert session.scalars(select(Attempt.outcome)).one() == "lost"


async def test_what_a_call_cost_is_added_to_its_collections_day_once_and_whether_it_answered_or_not(
    sessions: Sessions, one_connection: Sessions, executor: Executor
) -> None:
    seed = Seed(sessions)
    run = seed.run(seed.document("/a", collection="sea"))
    start = replace(START, context=replace(CONTEXT, run_id=run))
    refused = replace(ENDED, outcome=Outcome.FAILED, kind="invalid_output")
    sink = PostgresAttemptSink(one_connection, executor)
    for record in (ENDED, refused, replace(ENDED, usage=None), replace(ENDED, usage=Usage(1, 1, 0.0))):
        await sink.end(await sink.begin(start), record)
    again = await sink.begin(start)
    await sink.end(again, ENDED)
    await sink.end(again, ENDED)
    await sink.end(await sink.begin(START), ENDED)
    with sessions() as session:
        (day,) = session.scalars(select(Spend)).all()
    assert day.cost_usd == pytest.approx(3 * 0.001), "of its runs' calls, each once; a question is nobody's document"


async def test_a_call_without_an_answer_leaves_a_row_with_its_skips(
    sessions: Sessions, one_connection: Sessions, executor: Executor
) -> None:
    await PostgresAttemptSink(one_connection, executor).exhausted(CONTEXT, "vlm", 2, (COOLING,))
    with sessions() as session:
        row = session.scalars(select(Attempt)).one()
    assert (row.outcome, row.position, row.target, len(row.skipped)) == ("exhausted", 2, None, 1)


async def test_the_connection_goes_back_as_it_came(one_connection: Sessions, executor: Executor) -> None:
    await PostgresAttemptSink(one_connection, executor).begin(START)
    with one_connection() as session:
        assert session.scalar(text("show synchronous_commit")) == "on"
        session.execute(update(Attempt).values(message="undone"))
        session.rollback()
        assert session.scalars(select(Attempt.message)).one() is None


async def test_an_answer_is_not_lost_for_a_row_that_can_not_be_written(
    sessions: Sessions, one_connection: Sessions, executor: Executor
) -> None:
    sink = PostgresAttemptSink(one_connection, executor)
    attempt_id = await sink.begin(START)
    down = True

    def away(*_: Any) -> None:
        if down:
            raise ServiceUnavailable("Postgres at the test does not answer", "wait")

    event.listen(one_connection.kw["bind"], "before_cursor_execute", away)
    with pytest.raises(ServiceUnavailable):
        await sink.begin(START)
    await sink.end(attempt_id, ENDED)
    await sink.exhausted(CONTEXT, "vlm", 2, (COOLING,))
    with sessions() as session:
        assert session.scalars(select(Attempt.outcome)).all() == ["running"]
    down = False
    await sink.aclose(patience_s=30)
    with sessions() as session:
        assert sorted(session.scalars(select(Attempt.outcome))) == ["exhausted", "ok"]


async def test_rows_that_stay_late_do_not_hold_up_the_end(one_connection: Sessions, executor: Executor) -> None:
    sink = PostgresAttemptSink(one_connection, executor)
    attempt_id = await sink.begin(START)

    def away(*_: Any) -> None:
        raise ServiceUnavailable("Postgres at the test does not answer", "wait")

    event.listen(one_connection.kw["bind"], "before_cursor_execute", away)
    await sink.end(attempt_id, ENDED)
    await sink.aclose(patience_s=0)
