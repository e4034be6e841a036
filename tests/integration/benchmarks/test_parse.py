"""The parse stage's benchmark measures what it says: full pages, real rows, and an image a page where it asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from benchmarks.parse import digital_pdf, images_alone, stage_seconds, text_alone
from pipeline.documents import media
from pipeline.documents.job import Job
from pipeline.documents.pdf import read
from pipeline.domain.document import Limits, ParsedPage, TextQuality
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.schema import Page
from pipeline.store.session import Sessions
from tests.integration.ledger.harness import Harness


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.pdf"
    path.write_bytes(digital_pdf(3, 7))
    return path


def test_its_pages_are_full_digital_and_never_the_same(book: Path, tmp_path: Path) -> None:
    assert digital_pdf(3, 7) == book.read_bytes()
    assert digital_pdf(3, 8) != book.read_bytes()
    pages = [one for one in read(Job(book, media.PDF, Limits(), tmp_path)) if isinstance(one, ParsedPage)]
    assert len(pages) == 3
    for page in pages:
        assert page.text_quality is TextQuality.GOOD
        assert page.image is None
        assert len(page.text.split()) > 450


def test_the_limits_do_the_work_that_they_stand_for(book: Path) -> None:
    assert images_alone(book) > text_alone(book) > 0


@pytest.mark.parametrize("images", [True, False])
def test_the_stage_is_measured_with_its_rows(sessions: Sessions, blobs: FileBlobs, book: Path, *, images: bool) -> None:
    harness = Harness(sessions, blobs)
    try:
        assert stage_seconds(harness, book, images=images) > 0
        with sessions() as session:
            seen = session.scalars(select(Page.image_digest).order_by(Page.number)).all()
        assert [digest is not None for digest in seen] == [images] * 3
        # The next one is handed out though nobody has described the first one's pages.
        for seed in range(harness.policy.slice_units):
            book.write_bytes(digital_pdf(3, 100 + seed))
            assert stage_seconds(harness, book, images=images) > 0
    finally:
        harness.close()
