"""A document's way through the ledger: what is made, what is reused, what is published."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from sqlalchemy import func, select

from examples.make import Pdf
from pipeline.domain.errors import DeadlineExceeded
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage, UnitState, When
from pipeline.failover.kinds import FailureKind
from pipeline.requeue import Wanted, requeue
from pipeline.store.schema import ChunkRow, Document, Embedding
from tests.integration.ledger.harness import Harness, exhausted


def test_a_document_ends_done_and_live_with_chunks_cues_and_vectors(harness: Harness, note: Path) -> None:
    (document,) = harness.enqueue(note)
    harness.drive()
    run = harness.run(document.run)
    assert run.state == RunState.DONE
    assert not harness.heard.inside
    with harness.sessions() as session:
        assert session.get_one(Document, document.id).live_run_id == run.id
        chunks = session.scalars(select(ChunkRow).order_by(ChunkRow.ordinal)).all()
        assert [chunk.heading for chunk in chunks] == [["Tides"], ["Tides", "Gates"]]
        assert all(chunk.context and chunk.keywords for chunk in chunks)
        assert session.scalar(select(func.count()).select_from(Embedding)) == len(chunks)
    assert not harness.vlm.calls, "a good text layer needs no vision model"


def test_the_same_bytes_at_another_path_make_no_model_call(harness: Harness, note: Path, tmp_path: Path) -> None:
    harness.enqueue(note)
    harness.drive()
    calls = len(harness.formatter.calls), len(harness.retriever.calls), len(harness.embedder.calls)
    twin = tmp_path / "twin.md"
    twin.write_bytes(note.read_bytes())
    (document,) = harness.enqueue(twin)
    harness.drive()
    assert harness.run(document.run).state == RunState.DONE
    assert all(unit.reused for unit in harness.units(document.run) if unit.stage not in ("parse", "chunk"))
    assert (len(harness.formatter.calls), len(harness.retriever.calls), len(harness.embedder.calls)) == calls


def test_from_a_stage_on_the_vectors_are_made_anew_too(harness: Harness, note: Path) -> None:
    (document,) = harness.enqueue(note)
    harness.drive()
    formatted, embedded = len(harness.formatter.calls), len(harness.embedder.calls)
    wanted = Wanted(from_stage=Stage.RETRIEVE)
    (requeued,) = requeue(
        harness.sessions, wanted, recipe_of=lambda _: harness.recipe(), documents=[str(document.id)]
    ).runs
    harness.drive()
    assert requeued.run is not None
    assert harness.run(requeued.run).state == RunState.DONE
    assert [unit.stage for unit in harness.units(requeued.run) if unit.reused] == ["parse", "format"]
    assert (len(harness.formatter.calls), len(harness.embedder.calls)) == (formatted, 2 * embedded)


def test_a_changed_page_leaves_the_others_unpaid(harness: Harness, note: Path) -> None:
    harness.enqueue(note)
    harness.drive()
    before = len(harness.retriever.calls)
    note.write_text(note.read_text() + "\n# Tolls\n\nA barge pays two shillings.\n")
    (document,) = harness.enqueue(note)
    harness.drive()
    assert harness.run(document.run).state == RunState.DONE
    # The new chunk, and its one neighbour, whose surroundings changed.
    assert len(harness.retriever.calls) - before == 2


def test_an_image_is_described_then_formatted(harness: Harness, tmp_path: Path) -> None:
    picture = tmp_path / "photo.png"
    Image.radial_gradient("L").save(picture)
    (document,) = harness.enqueue(picture)
    harness.drive()
    assert harness.run(document.run).state == RunState.DONE
    assert [unit.stage for unit in harness.units(document.run)] == [
        "parse",
        "describe",
        "format",
        "chunk",
        "retrieve",
        "embed",
    ]


def test_a_page_that_shows_nothing_leaves_the_document_empty(harness: Harness, tmp_path: Path) -> None:
    picture = tmp_path / "photo.png"
    Image.radial_gradient("L").save(picture)
    harness.vlm.answer = lambda _: "BLANK"
    (document,) = harness.enqueue(picture)
    harness.drive()
    assert harness.run(document.run).state == RunState.EMPTY
    assert not harness.formatter.calls


def test_an_empty_file_ends_empty_without_a_call(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "nothing.txt"
    path.write_text(" \n")
    (document,) = harness.enqueue(path)
    harness.drive()
    assert harness.run(document.run).state == RunState.EMPTY
    assert not harness.formatter.calls
    assert not harness.retriever.calls


def test_a_corrupt_file_fails_with_its_kind_and_no_call(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "broken.pdf"
    path.write_bytes(b"%PDF-1.7\nnot really\n%%EOF\n")
    (document,) = harness.enqueue(path)
    harness.drive()
    run = harness.run(document.run)
    assert (run.state, run.failure_kind) == (RunState.FAILED, "corrupt")


def test_a_stage_that_is_never_wanted_is_left_out(harness: Harness, note: Path) -> None:
    recipe = harness.recipe(format=When.NEVER, retrieve=When.NEVER)
    (document,) = harness.enqueue(note, recipe=recipe)
    harness.drive()
    assert harness.run(document.run).state == RunState.DONE
    assert [unit.stage for unit in harness.units(document.run)] == ["parse", "chunk", "embed", "embed"]


def test_an_exhausted_chain_parks_the_run_and_waking_goes_on_at_that_unit(harness: Harness, note: Path) -> None:
    harness.retriever.acts.append(None)
    harness.retriever.always = exhausted("retrieval_llm", retry_at=4_000_000_000.0)
    (document,) = harness.enqueue(note)
    harness.drive()
    run = harness.run(document.run)
    assert run.state == RunState.PARKED
    assert run.resume_at is not None
    assert run.parked_since is not None
    assert sorted(harness.states(document.run, Stage.RETRIEVE)) == [UnitState.DONE, UnitState.PARKED]
    formatted = len(harness.formatter.calls)

    harness.retriever.always = None
    harness.make_due(run.id)
    harness.wake()
    harness.drive()
    run = harness.run(document.run)
    assert run.state == RunState.DONE
    assert run.parked_since is None
    assert len(harness.formatter.calls) == formatted


def test_a_call_that_runs_out_of_time_is_parked_and_not_failed(harness: Harness, note: Path) -> None:
    harness.formatter.acts.append(DeadlineExceeded("vlm_formatter", 300.0))
    (document,) = harness.enqueue(note)
    harness.drive()
    run = harness.run(document.run)
    assert run.state == RunState.PARKED
    assert run.resume_at is not None


def test_a_unit_that_every_target_rejects_fails_the_run_and_keeps_the_other_pages(harness: Harness, note: Path) -> None:
    harness.retriever.acts.append(exhausted("retrieval_llm", kind=FailureKind.CONTENT_POLICY))
    (document,) = harness.enqueue(note)
    harness.drive()
    run = harness.run(document.run)
    assert (run.state, run.failure_kind) == (RunState.FAILED, "content_policy")
    assert sorted(harness.states(document.run, Stage.RETRIEVE)) == [UnitState.DONE, UnitState.FAILED]


def test_keeping_what_went_well_publishes_an_incomplete_document(harness: Harness, note: Path) -> None:
    harness.retriever.acts.append(exhausted("retrieval_llm", kind=FailureKind.CONTENT_POLICY))
    (document,) = harness.enqueue(note, recipe=harness.recipe(on_page_failure="keep"))
    harness.drive()
    run = harness.run(document.run)
    assert (run.state, run.incomplete) == (RunState.DONE, True)


def test_our_own_bug_fails_its_unit_and_is_told(harness: Harness, note: Path) -> None:
    harness.formatter.acts.append(ZeroDivisionError())
    (document,) = harness.enqueue(note)
    harness.drive()
    run = harness.run(document.run)
    assert (run.state, run.failure_kind) == (RunState.FAILED, "internal")
    assert isinstance(harness.heard.inside[0], ZeroDivisionError)


@pytest.mark.parametrize("text", ["---\n", "* * *\n\n* * *\n", "\u00a0\u200b\n\u3000\n"])
def test_a_document_of_marks_alone_is_empty_and_costs_nothing(harness: Harness, tmp_path: Path, text: str) -> None:
    path = tmp_path / "marks.txt"
    path.write_text(text, encoding="utf-8")
    (document,) = harness.enqueue(path)
    harness.drive()
    assert harness.run(document.run).state == RunState.EMPTY
    assert harness.formatter.calls == harness.vlm.calls == []


def test_a_page_with_nothing_but_a_dash_keeps_no_other_from_being_found(harness: Harness, tmp_path: Path) -> None:
    pdf = Pdf("Three pages")
    for words in ("The lock keeper rows over at noon.", "-", "The lamp is lit at dusk by hand."):
        pdf.page(f"BT /F0 12 Tf 60 700 Td ({words}) Tj ET")
    path = tmp_path / "dash.pdf"
    path.write_bytes(pdf.write())
    (document,) = harness.enqueue(path)
    harness.drive()
    assert harness.run(document.run).state == RunState.DONE
    assert [unit.ordinal for unit in harness.units(document.run, Stage.FORMAT)] == [1, 3]
