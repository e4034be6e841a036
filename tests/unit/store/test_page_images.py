"""Page images are stored in portions, each with one call of the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store import page_images
from pipeline.store.blobs import BlobSource, StoredBlob
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.page_images import put_images


class Counting(FileBlobs):
    portions: list[int]

    def put_all(self, sources: Sequence[BlobSource]) -> list[StoredBlob | OSError]:
        self.portions.append(len(sources))
        return super().put_all(sources)


@pytest.fixture
def blobs(tmp_path: Path) -> Counting:
    made = Counting(tmp_path / "blobs")
    made.portions = []
    return made


def images(folder: Path, count: int) -> list[tuple[int, Path]]:
    # Two pages alike: the third is the first once more.
    paths = [folder / f"{number}.jpg" for number in range(1, count + 1)]
    for number, path in enumerate(paths):
        path.write_bytes(b"image %d" % (number % 2))
    return list(enumerate(paths, 1))


def test_images_are_stored_by_their_page_and_the_same_one_once(blobs: Counting, tmp_path: Path) -> None:
    stored = put_images(blobs, images(tmp_path, 3))
    assert [blobs.read(stored[number].digest) for number in (1, 2, 3)] == [b"image 0", b"image 1", b"image 0"]
    assert [stored[number].created for number in (1, 2, 3)] == [True, True, False]
    assert blobs.portions == [3]


@pytest.mark.parametrize(("limit", "most"), [("_PORTION_FILES", 2), ("_PORTION_BYTES", 14)])
def test_no_more_is_held_than_fits(
    blobs: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(page_images, limit, most)
    assert sorted(put_images(blobs, images(tmp_path, 5))) == [1, 2, 3, 4, 5]
    assert blobs.portions == [2, 2, 1]


def test_a_store_that_is_full_says_so(blobs: Counting, tmp_path: Path) -> None:
    class Full(FileBlobs):
        def put_all(self, sources: Sequence[BlobSource]) -> list[StoredBlob | OSError]:
            raise ServiceUnavailable("no space left", "free some")

    with pytest.raises(ServiceUnavailable, match="no space"):
        put_images(Full(tmp_path / "full"), images(tmp_path, 1))


def test_no_images_ask_nothing_of_the_store(blobs: Counting) -> None:
    assert put_images(blobs, []) == {}
    assert blobs.portions == []
