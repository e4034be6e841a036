"""What is deleted with time, and what is not."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import func, select, text, update

from pipeline.attempts import attempts
from pipeline.delete import delete
from pipeline.status import status
from pipeline.store.blob_rows import record_blobs
from pipeline.store.blobs import BlobStore
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.reader import Reads
from pipeline.store.retention import RetentionPolicy, sweep
from pipeline.store.schema import Attempt, Page, Run, Unit
from pipeline.store.session import Sessions
from tests.integration.seed import Seed

RUNS = 5


@pytest.fixture
def seed(sessions: Sessions) -> Seed:
    return Seed(sessions)


@pytest.fixture
def document(seed: Seed) -> UUID:
    """The first of its runs is live; each of the others failed after a call."""
    document = seed.document("/a.pdf")
    for number in range(RUNS):
        run = seed.run(document, "failed" if number else "done", live=not number)
        seed.page(run, 1, "text")
        seed.units(run, "describe", [1])
        seed.attempt(run, "describe", outcome="failed" if number else "ok", message=f"call {number}")
    return document


def _count(sessions: Sessions, table: type[Run] | type[Attempt] | type[Page] | type[Unit]) -> int:
    with sessions() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_the_history_of_runs_outlives_them(document: UUID, sessions: Sessions, reads: Reads) -> None:
    before = attempts(reads, str(document)).to_json()
    assert sweep(sessions, RetentionPolicy(runs_kept=2)) == RUNS - 3
    assert [_count(sessions, table) for table in (Run, Page, Unit)] == [3] * 3, "the newest two, and the live one"
    after = attempts(reads, str(document)).to_json()
    unit = {"unit": None, "ordinal": None}
    assert [one | unit for one in after["attempts"]] == [one | unit for one in before["attempts"]]
    assert len(after["attempts"]) == status(reads).documents[0].attempts == RUNS


def test_attempts_go_after_their_time(document: UUID, sessions: Sessions) -> None:
    with sessions.begin() as session:
        old = update(Attempt).where(Attempt.message.in_(["call 1", "call 4"]))
        session.execute(old.values(started_at=func.now() - text("interval '366 days'")))
    sweep(sessions, RetentionPolicy(runs_kept=1))
    with sessions() as session:
        assert set(session.scalars(select(Attempt.message))) == {"call 0", "call 2", "call 3"}


def test_page_images_go_after_their_time_a_portion_at_a_time(
    seed: Seed, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.store.retention._PORTION", 2)
    with sessions.begin() as session:
        record_blobs(session, [("image", 1, "image/jpeg")])
    document = seed.document("/a.pdf")
    old, new = (seed.run(document, "done", finished_at=func.now() - text(f"interval '{days} days'")) for days in (8, 6))
    for number in (1, 2, 3):
        seed.page(old, number, "text", image_digest="image")
    seed.page(new, 1, "text", image_digest="image")

    assert [sweep(sessions, RetentionPolicy()) for _ in range(3)] == [2, 1, 0]
    with sessions() as session:
        assert session.scalars(select(Page.run_id).where(Page.image_digest.is_not(None))).all() == [new]
        assert session.scalars(select(Page.run_id).where(Page.image_purged)).all() == [old] * 3


def test_a_document_is_deleted_with_its_whole_history(
    document: UUID, seed: Seed, sessions: Sessions, blobs: FileBlobs
) -> None:
    seed.attempt(seed.run(seed.document("/b.pdf")), "describe", message="kept")
    sweep(sessions, RetentionPolicy(runs_kept=1))
    store: BlobStore = blobs
    delete(sessions, store, [str(document)])
    with sessions() as session:
        assert session.scalars(select(Attempt.message)).all() == ["kept"]
