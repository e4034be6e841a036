from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.store.blobs import FileBlobs
from pipeline.store.session import Sessions
from tests.integration.ledger.harness import Harness


@pytest.fixture
def harness(sessions: Sessions, blobs: FileBlobs) -> Iterator[Harness]:
    made = Harness(sessions, blobs)
    yield made
    made.close()


@pytest.fixture
def note(tmp_path: Path) -> Path:
    path = tmp_path / "note.md"
    path.write_text("# Tides\n\nHigh water is at six.\n\n# Gates\n\nThe gate opens at half tide.\n")
    return path
