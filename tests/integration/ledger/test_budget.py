"""A collection's budget: paid targets are left out once it is used up, and nothing that was paid for is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from pipeline.budgets import budget_standing
from pipeline.domain.run import RunState
from pipeline.failover.target import Price
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.parked import make_timeless_due
from pipeline.store.reader import Reads, reader_of
from pipeline.store.schema import Attempt
from pipeline.store.session import Sessions, make_sessions
from pipeline.store.spend import spent_usd
from pipeline.why import why
from tests.integration.ledger.harness import Harness
from tests.integration.ledger.simulated import Outage, simulated_engine
from tests.integration.ledger.test_parked import scan
from tests.integration.seed import Seed

PAGES = 5
BUDGET_USD = 0.25
A_CALL_USD = 0.1
WITHIN = 3
"""Calls until the budget is used up: the third is begun with a little left."""

Made = Callable[..., Outage]


@pytest.fixture
def seed(sessions: Sessions) -> Seed:
    return Seed(sessions)


@pytest.fixture
def made(database_url: str, blobs: FileBlobs) -> Iterator[Made]:
    """Makes an outage whose first target costs something."""
    ends: list[Any] = []
    with simulated_engine(database_url) as engine:

        def make(*prices: Price) -> Outage:
            sessions = make_sessions(engine)
            outage = Outage(Harness(sessions, blobs, slots=1, slice_units=1), engine, sessions, prices)
            outage.servers.up = {"first", "second"}
            outage.servers.cost_usd = {"first": A_CALL_USD}
            outage.harness.budget_usd = BUDGET_USD
            ends.extend([outage.harness.close, outage.close])
            return outage

        yield make
        for end in reversed(ends):
            end()


def _none(_collection: str) -> float | None:
    return None


def _one_by_one(outage: Outage) -> None:
    """One slice after the other, as a single worker with one slot takes them."""
    while slices := outage.harness.dispatch():
        for piece in slices:
            outage.carry_out(piece)


def test_a_used_up_budget_parks_what_is_left_without_a_call_until_it_is_raised(
    made: Made, tmp_path: Path, reads: Reads
) -> None:
    outage = made()
    harness, servers = outage.harness, outage.servers
    (document,) = harness.enqueue(scan(tmp_path, "paid", PAGES))
    _one_by_one(outage)

    assert [called for called, _, _ in servers.calls] == ["first"] * WITHIN
    assert harness.run(document.run).state == RunState.PARKED
    with outage.sessions() as session:
        assert spent_usd(reader_of(session), "default") == pytest.approx(WITHIN * A_CALL_USD)
        outcomes = session.scalars(select(Attempt.outcome)).all()
    assert outcomes == ["ok"] * WITHIN, "nobody was asked, so there is nothing to tell of the rest"
    (standing,) = budget_standing(reads, lambda _: BUDGET_USD)
    said = why(reads, str(document.id), budgets={standing.collection: standing})
    assert "default has spent $0.30 of its budget of $0.25" in said.lines[1]
    assert any(line.startswith("It waits without a time") for line in said.lines)

    outage.settle()
    assert len(servers.calls) == WITHIN, "nothing wakes it"

    harness.budget_usd = 10.0
    with outage.sessions.begin() as session:
        assert make_timeless_due(session) == PAGES - WITHIN
    outage.settle()
    assert harness.run(document.run).state == RunState.DONE
    assert len(servers.described) == len(set(servers.described)) == PAGES


def test_a_free_fallback_goes_on_where_the_budget_ends(made: Made, tmp_path: Path) -> None:
    outage = made(Price(1.0, 1.0), Price(0.0, 0.0))
    (document,) = outage.harness.enqueue(scan(tmp_path, "mixed", PAGES))
    _one_by_one(outage)
    outage.settle()

    called = [target for target, _, _ in outage.servers.calls]
    assert called == ["first"] * WITHIN + ["second"] * (PAGES - WITHIN)
    assert outage.harness.run(document.run).state == RunState.DONE
    with outage.sessions() as session:
        skipped = session.scalars(select(Attempt.skipped).where(Attempt.target == "second@host")).all()
    assert [[skip["reason"] for skip in skips] for skips in skipped] == [["over_budget"]] * (PAGES - WITHIN)


def test_what_was_spent_is_summed_over_days_and_held_against_the_budget(
    seed: Seed, sessions: Sessions, reads: Reads
) -> None:
    seed.run(seed.document("/a", collection="sea"))
    assert budget_standing(reads, _none) == []
    with sessions.begin() as session:
        session.execute(
            text(
                "insert into spend (collection_id, day, cost_usd)"
                " select collection_id, day, 1.5 from run, (values (date '2030-01-01'), (date '2030-01-02')) d (day)"
            )
        )
    (standing,) = budget_standing(reads, lambda _: 3.0)
    assert standing.to_json() == {"collection": "sea", "spent_usd": 3.0, "budget_usd": 3.0}
    assert standing.is_used_up
    assert [one.note for one in budget_standing(reads, _none)] == [""], "without a bound there is nothing to say"
    assert budget_standing(reads, _none, "land") == []
