"""Two last units that end at the same moment: one fan-in, never two and never none, whatever the threads do."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from pipeline.domain.document import Limits
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage
from pipeline.endings import Endings, SliceReport, UnitPolicy
from pipeline.store.chunks import NewVector
from pipeline.store.patience import Patience
from pipeline.store.runs import lock_running
from pipeline.store.units import Claimed, Result, claim_units
from pipeline.work import Done, Models, Workshop
from tests.integration.ledger.harness import DIM, Harness

pytestmark = pytest.mark.heavy

_TIMES = 500
"""Of each of the two barriers: a thousand in all."""


class Finisher:
    """One of two workers, which ends its unit of each run the moment that the other does; it is its own events."""

    def __init__(self, harness: Harness, moment: threading.Barrier) -> None:
        self.report = SliceReport()
        self.published: list[int] = []
        self._moment = moment
        shop = Workshop(
            blobs=harness.blobs,
            models=Models(harness.vlm, harness.formatter, harness.retriever, harness.embedder),
            limits=Limits(),
            count_tokens=lambda words: len(words.split()),
            worker="finisher",
            allowed=lambda collection, stage: None,
        )
        self._endings = Endings(harness.sessions, shop, self, UnitPolicy(), self.report, Patience())

    def end(self, units: Sequence[Claimed], found: Callable[[Claimed], Done]) -> None:
        for unit in units:
            self._moment.wait(60)
            self._endings.done([(unit, found(unit))])

    def unit_finished(self, unit: Claimed, outcome: str, detail: str) -> None: ...

    def run_moved(self, run_id: int, document_id: str, state: RunState, detail: str) -> None:
        assert state is RunState.DONE
        self.published.append(run_id)

    def failed_inside(self, unit: Claimed, error: BaseException) -> None:
        raise AssertionError(unit) from error


@pytest.fixture
def runs(harness: Harness, note: Path) -> list[int]:
    """Running runs of as many documents, parsed, and with nothing else to do yet."""
    (document,) = harness.enqueue(note)
    first = {"run": document.run, "n": _TIMES}
    with harness.sessions.begin() as session:
        for sql in (
            "insert into document (collection_id, source_uri, blob_digest, media_type, size_bytes) "
            "select collection_id, source_uri || n, blob_digest, media_type, size_bytes "
            "from document, generate_series(2, :n) n",
            "update run set state = 'running' where id = :run",
            "insert into run "
            "(document_id, collection_id, blob_digest, media_type, recipe, recipe_digest, space_id, state) "
            "select document.id, run.collection_id, run.blob_digest, run.media_type, recipe, recipe_digest, space_id, "
            "'running' from run, document where run.id = :run and document.id <> run.document_id",
            "delete from unit",
        ):
            session.execute(text(sql), first)
        _units(session, Stage.PARSE, "done", [0])
        return list(session.scalars(text("select id from run order by id")))


def test_two_last_pages_make_one_chunk_unit(harness: Harness, runs: list[int]) -> None:
    with harness.sessions.begin() as session:
        _units(session, Stage.FORMAT, "pending", [1, 2])
    both_end(harness, runs, Stage.FORMAT, lambda _: Done(Result(output={"markdown": "# Tides"}, calls=1)))
    with harness.sessions() as session:
        made = session.execute(text("select run_id, count(*) from unit where stage = 'chunk' group by 1")).all()
    assert sorted(tuple(row) for row in made) == [(run, 1) for run in runs]


def test_two_last_vectors_publish_once(harness: Harness, runs: list[int]) -> None:
    with harness.sessions.begin() as session:
        _units(session, Stage.CHUNK, "done", [0])
        _units(session, Stage.EMBED, "pending", [1, 2])
        session.execute(
            text(
                "insert into chunk (run_id, collection_id, ordinal, text, page_from, page_to, tokens) "
                "select id, collection_id, n, 'tide ' || n, 1, 1, 2 from run, generate_series(1, 2) n"
            )
        )
        chunks = {(row.run_id, row.ordinal): row.id for row in session.execute(text("select * from chunk"))}
    vector = [1.0] + [0.0] * (DIM - 1)

    def found(unit: Claimed) -> Done:
        return Done(Result(calls=1), NewVector(chunks[unit.run_id, unit.ordinal], f"{unit.id}", vector))

    finishers = both_end(harness, runs, Stage.EMBED, found)
    published = Counter(run for finisher in finishers for run in finisher.published)
    assert published == Counter(runs)
    with harness.sessions() as session:
        live = session.scalars(text("select live_run_id from document order by live_run_id")).all()
        ended = session.scalars(text("select count(*) from run where state = 'done' and finished_at is not null")).one()
    assert (list(live), ended) == (runs, len(runs))


def both_end(harness: Harness, runs: Sequence[int], stage: Stage, found: Callable[[Claimed], Done]) -> list[Finisher]:
    """Claim two units of each run for two finishers, which end them together."""
    sides: tuple[list[Claimed], list[Claimed]] = ([], [])
    with harness.sessions.begin() as session:
        for run in runs:
            assert lock_running(session, run)
            units = claim_units(session, run, stage, [1, 2], token=uuid4(), worker="finisher", lease_s=600)
            for side, unit in zip(sides, units, strict=True):
                side.append(unit)
    moment = threading.Barrier(2)
    finishers = [Finisher(harness, moment) for _ in sides]
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(one.end, units, found) for one, units in zip(finishers, sides, strict=True)]
        for end in ends:
            end.result()
    for finisher in finishers:
        assert finisher.report.counts == {"done": len(runs)}, finisher.report
    return finishers


def _units(session: Session, stage: Stage, state: str, ordinals: Sequence[int]) -> None:
    """Units of every run."""
    session.execute(
        text(
            "insert into unit (run_id, collection_id, priority, queued_at, stage, ordinal, state) "
            "select id, collection_id, priority, queued_at, :stage, ordinal, :state "
            "from run, unnest(cast(:ordinals as int[])) ordinal"
        ),
        {"stage": stage.value, "state": state, "ordinals": list(ordinals)},
    )
