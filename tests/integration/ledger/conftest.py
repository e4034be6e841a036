from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from pipeline.store.file_blobs import FileBlobs
from pipeline.store.session import Sessions
from tests.integration.ledger.harness import Harness

# `make machine`, and any --hypothesis-profile long: the state machine at length, and never twice the same.
settings.register_profile("long", max_examples=1500, stateful_step_count=80, derandomize=False, print_blob=True)


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
