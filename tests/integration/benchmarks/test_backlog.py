"""The backlog's benchmark measures what it says: real files, real rows, and figures that can miss their bars."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text

from benchmarks.backlog import copy_rate, dispatch_times, write_documents
from benchmarks.finding import Finding
from pipeline.dispatch import DispatchPolicy, dispatch
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.session import Sessions
from tests.integration.ledger.harness import Harness


def test_documents_are_told_apart_by_their_bytes(tmp_path: Path) -> None:
    paths = list(write_documents(tmp_path, 990, 20).rglob("*.md"))
    assert len({path.read_bytes() for path in paths}) == 20
    assert {path.parent.name for path in paths} == {"0000", "0001"}


def test_each_turn_hands_out_the_one_document_whose_slot_got_free(
    sessions: Sessions, blobs: FileBlobs, tmp_path: Path
) -> None:
    harness = Harness(sessions, blobs, slots=2)
    harness.enqueue(write_documents(tmp_path / "documents", 0, 12), recursive=True)
    harness.close()
    dispatch(sessions, lambda _: None, DispatchPolicy())

    many, few = dispatch_times(sessions, sessions, turns=2)

    assert (len(many), len(few)) == (2, 2)
    with sessions() as session:
        # Four in the window at first, and one more for each free slot: three turns in both, the first not counted.
        assert session.scalar(text("select count(*) from unit where dispatched_at is not null")) == 4 + 3 * 2


def test_copy_alone_leaves_nothing_behind(
    sessions: Sessions, blobs: FileBlobs, tmp_path: Path, database_url: str
) -> None:
    harness = Harness(sessions, blobs)
    harness.enqueue(write_documents(tmp_path / "documents", 0, 1), recursive=True)
    harness.close()

    assert copy_rate(database_url, 10) > 0

    with sessions() as session:
        assert session.scalar(text("select to_regclass('copied_run')")) is None


def test_a_missed_bar_is_told_with_what_was_found() -> None:
    missed, held = Finding("rate", 1_500, 2_000, "documents/s", least=True), Finding("memory", 150, 300, "MB")
    assert str(missed) == "MISSED rate: 1,500 documents/s of at least 2,000"
    assert str(held) == "held   memory: 150.000 MB of at most 300.0"
