"""The reference of a space: the first answer stands, and an answer that has been paid for waits for Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store.references import PostgresReference
from pipeline.store.session import Sessions


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def _break(sessions: Sessions, times: int) -> list[int]:
    """Let so many transactions fail as they are committed; returns what counts those that were tried."""
    tried: list[int] = []

    def fail(_: Session) -> None:
        tried.append(1)
        if len(tried) <= times:
            raise ServiceUnavailable("Postgres at the test does not answer", "wait")

    event.listen(sessions, "before_commit", fail)
    return tried


async def test_the_first_proposal_stands(sessions: Sessions, executor: Executor) -> None:
    space = PostgresReference(sessions, executor, "m", 2, patient=True)
    assert await space.reference() is None
    assert await space.propose([1.0, 0.0]) == [1.0, 0.0]
    assert await space.propose([0.0, 1.0]) == [1.0, 0.0]
    assert await space.reference() == [1.0, 0.0]


async def test_a_proposal_outlasts_an_outage_for_its_answer_was_paid_for(
    sessions: Sessions, executor: Executor
) -> None:
    space = PostgresReference(sessions, executor, "m", 2, patient=True)
    tried = _break(sessions, 2)
    assert await space.propose([1.0, 0.0]) == [1.0, 0.0]
    assert len(tried) > 2


async def test_who_waits_at_a_terminal_is_told(sessions: Sessions, executor: Executor) -> None:
    space = PostgresReference(sessions, executor, "m", 2, patient=False)
    _break(sessions, 1)
    with pytest.raises(ServiceUnavailable):
        await space.propose([1.0, 0.0])
