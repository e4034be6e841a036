"""Units that are claimed and end together cost as many statements as one of them, and each keeps its own fate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, event

from pipeline.domain.document import Cues
from pipeline.domain.unit import Stage, UnitState
from pipeline.endings import Endings, SliceReport
from pipeline.store.chunks import NewVector, chunks_of
from pipeline.store.patience import Patience
from pipeline.store.runs import lock_running
from pipeline.store.units import Claimed, Result, claim_units, finish_units
from pipeline.work import Done
from tests.integration.ledger.harness import DIM, Harness

_PARTS = 40
_MOST_A_GROUP = 7
"""Lock, finish, store, read and make and look up what follows, look at the barriers."""
_MOST_A_CLAIM = 10
"""Whom to ask; hold and claim; lock, look up, look whose it is still, and read what the stage needs."""


@pytest.fixture
def run_id(harness: Harness, tmp_path: Path) -> int:
    """A run whose chunks wait for their cues."""
    path = tmp_path / "book.md"
    path.write_text("\n\n".join(f"# Part {n}\n\nThe sluice stood open at half tide {n}." for n in range(_PARTS)))
    (document,) = harness.enqueue(path)
    while not harness.units(document.run, Stage.RETRIEVE):
        for piece in harness.dispatch():
            harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    assert document.run is not None
    return document.run


@contextmanager
def counted(engine: Engine) -> Iterator[list[str]]:
    """The statements that were sent meanwhile; one that is sent for many rows counts once."""
    said: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        said.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(engine, "before_cursor_execute", note)


def claim(harness: Harness, run_id: int, stage: Stage, ordinals: range) -> list[Claimed]:
    with harness.sessions.begin() as session:
        assert lock_running(session, run_id)
        return claim_units(session, run_id, stage, ordinals, token=uuid4(), worker="w", lease_s=30)


def endings(harness: Harness) -> Endings:
    return Endings(harness.sessions, harness.ingest().shop, harness.heard, harness.unit, SliceReport(), Patience())


def end(harness: Harness, run_id: int, stage: Stage, ordinals: range) -> list[str]:
    """Units end together; returns what was said to Postgres for it."""
    units = claim(harness, run_id, stage, ordinals)
    assert [unit.ordinal for unit in units] == list(ordinals)
    ended = [(unit, Done(Result(calls=1, answered_by="primary"), value)) for unit, value in _values(harness, units)]
    ending = endings(harness)
    with counted(harness.sessions.kw["bind"]) as said:
        ending.done(ended)
    assert ending.report.counts == {"done": len(units)}, ending.report
    return said


def _values(harness: Harness, units: list[Claimed]) -> list[tuple[Claimed, object]]:
    if units[0].stage is Stage.RETRIEVE:
        return [(unit, Cues(f"About {unit.ordinal}.", ("tide",), ())) for unit in units]
    with harness.sessions() as session:
        chunks = chunks_of(session, units[0].run_id, [unit.ordinal for unit in units])
    vector = [1.0] + [0.0] * (DIM - 1)
    return [(unit, NewVector(chunk.id, unit.digest or "", vector)) for unit, chunk in zip(units, chunks, strict=True)]


def test_a_group_of_units_ends_in_as_many_statements_as_one(harness: Harness, run_id: int) -> None:
    for stage in (Stage.RETRIEVE, Stage.EMBED):
        alone = end(harness, run_id, stage, range(1, 2))
        together = end(harness, run_id, stage, range(2, 30))
        assert len(together) == len(alone), together
        assert len(together) <= _MOST_A_GROUP, together


def test_a_slice_is_claimed_and_read_in_as_many_statements_as_one_unit(harness: Harness, run_id: int) -> None:
    counts = []
    for ordinals in (range(1, 2), range(2, 30)):
        with counted(harness.sessions.kw["bind"]) as said:
            at_first_call: list[int] = []
            harness.retriever.before = lambda said=said, at=at_first_call: at.append(len(said))  # type: ignore[misc]
            report = harness.ingest().run_slice(run_id, Stage.RETRIEVE, ordinals)
        assert report.counts == {"done": len(ordinals)}
        counts.append(at_first_call[0])
    assert counts[0] == counts[1] <= _MOST_A_CLAIM


def test_of_a_group_those_units_end_whose_leases_are_still_ours(harness: Harness, run_id: int) -> None:
    lost, *kept = claim(harness, run_id, Stage.RETRIEVE, range(1, 4))
    with harness.sessions.begin() as session:
        stale = Claimed(lost.id, run_id, lost.stage, lost.ordinal, uuid4())
        results = [Result({"context": f"of {unit.ordinal}\0"}, f"by {unit.ordinal}", calls=2) for unit in (lost, *kept)]
        ended = finish_units(session, list(zip((stale, *kept), results, strict=True)))
    assert ended == {unit.id for unit in kept}
    rows = harness.units(run_id, Stage.RETRIEVE)[:3]
    assert [UnitState(row.state) for row in rows] == [UnitState.LEASED, UnitState.DONE, UnitState.DONE]
    assert [(row.output, row.answered_by, row.calls) for row in rows[1:]] == [
        ({"context": f"of {unit.ordinal}"}, f"by {unit.ordinal}", 2) for unit in kept
    ]


def test_a_claim_that_is_repeated_returns_what_it_held_and_what_has_come_free(harness: Harness, run_id: int) -> None:
    token = uuid4()
    other = claim(harness, run_id, Stage.RETRIEVE, range(5, 6))
    found = []
    for ordinals in ([3, 1], [1, 2, 3, 5]):
        with harness.sessions.begin() as session:
            found.append(claim_units(session, run_id, Stage.RETRIEVE, ordinals, token=token, worker="w", lease_s=30))
    assert [[unit.ordinal for unit in units] for units in found] == [[1, 3], [1, 2, 3]]
    assert other[0].token != token
