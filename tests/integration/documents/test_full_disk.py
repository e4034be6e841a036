"""A disk that is full while a document is parsed is no fault of the document."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.make import notice_png, scan_pdf
from pipeline.documents import media
from pipeline.domain.document import Limits
from pipeline.domain.errors import ServiceUnavailable
from pipeline.stages.parse import parse


@pytest.mark.parametrize(
    ("content", "media_type", "endings"), [(scan_pdf, media.PDF, ("jpg",)), (notice_png, "image/png", ("png", "jpg"))]
)
def test_a_page_image_that_finds_no_space_rejects_nothing(
    tmp_path: Path, content: Callable[[], bytes], media_type: str, endings: tuple[str, ...]
) -> None:
    path, workdir = tmp_path / f"file.{endings[0]}", tmp_path / "work"
    path.write_bytes(content())
    workdir.mkdir()
    for ending in endings:
        # Whoever writes there finds the disk full.
        (workdir / f"page-00001.{ending}").symlink_to("/dev/full")
    with pytest.raises(ServiceUnavailable, match="no space left"):
        parse(path, media_type, Limits(), workdir=workdir, image_policy="all")
