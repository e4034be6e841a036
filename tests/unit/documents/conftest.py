"""Jobs and small files for the readers' tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.documents.job import Job
from pipeline.domain.document import Limits

MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """``make_job(content, media_type, **changes)``: a job on a file with that content."""

    def make(content: bytes | str, media_type: str, **changes: object) -> Job:
        path, workdir = tmp_path / "file", tmp_path / "work"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        workdir.mkdir(exist_ok=True)
        job = Job(path, media_type, Limits(), workdir)
        return replace(job, **changes)  # type: ignore[arg-type]

    return make
