"""A backlog that is longer than the window: who comes next, and how much the broker holds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.domain.unit import Stage
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.session import Sessions
from pipeline.store.window import Slice
from tests.integration.ledger.harness import Harness

SLOTS = 2
WINDOW = 2 * SLOTS


@pytest.fixture
def work(sessions: Sessions, blobs: FileBlobs) -> Iterator[Harness]:
    made = Harness(sessions, blobs, slots=SLOTS)
    yield made
    made.close()


class Fleet:
    """Works the slices off one by one, in the order in which a stage's queue got them, and dispatches after each."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.queues: dict[Stage, deque[Slice]] = {stage: deque() for stage in Stage}
        self.done: list[Slice] = []
        self.longest = 0

    def step(self) -> bool:
        """Hand out, then carry out one slice of each stage that has any; False when nothing is left."""
        self._hand_out()
        working = [queue for queue in self.queues.values() if queue]
        for queue in working:
            piece = queue.popleft()
            self.harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
            self.done.append(piece)
            # A slot is free: the next one is handed out at once, and not with the others.
            self._hand_out()
        return bool(working)

    def _hand_out(self) -> None:
        for piece in self.harness.dispatch():
            self.queues[piece.stage].append(piece)
        self.longest = max(self.longest, *(len(queue) for queue in self.queues.values()))


def test_two_collections_with_equal_backlogs_share_the_fleet(work: Harness, tmp_path: Path) -> None:
    collection_of = {}
    for name in ("older", "newer"):
        for document in work.enqueue(_folder(tmp_path / name, 12), collection=name):
            collection_of[document.id] = name
    fleet = Fleet(work)

    while len(fleet.done) < 20:
        assert fleet.step()

    shares = Counter(collection_of[piece.document_id] for piece in fleet.done)
    assert 0.4 <= shares["newer"] / len(fleet.done) <= 0.6, shares


def test_an_urgent_document_is_called_for_within_two_windows_of_slices(work: Harness, tmp_path: Path) -> None:
    work.enqueue(_folder(tmp_path / "many", 20))
    fleet = Fleet(work)
    while len(fleet.done) < 2 * WINDOW:
        assert fleet.step()
    (urgent,) = work.enqueue(_folder(tmp_path / "one", 1), priority=9)
    before = Counter(piece.stage for piece in fleet.done)
    calls = len(work.formatter.calls)

    while not any(piece.document_id == urgent.id and piece.stage is Stage.FORMAT for piece in fleet.done):
        assert fleet.step()

    since = Counter(piece.stage for piece in fleet.done) - before
    assert since[Stage.PARSE] <= 2 * WINDOW
    assert len(work.formatter.calls) - calls <= 2 * WINDOW


def test_the_broker_holds_at_most_the_window(work: Harness, tmp_path: Path) -> None:
    work.enqueue(_folder(tmp_path / "many", 3 * WINDOW))
    fleet = Fleet(work)

    while fleet.step():
        pass

    assert fleet.longest == WINDOW
    assert {piece.stage for piece in fleet.done} == set(Stage) - {Stage.DESCRIBE}


def _folder(folder: Path, files: int) -> Path:
    folder.mkdir()
    for number in range(files):
        (folder / f"{number:03}.md").write_text(f"# Note {number}\n\nIn {folder.name}.\n")
    return folder
