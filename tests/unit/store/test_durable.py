"""Files on the disk for good: one by one, and a file system's at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.store import durable
from pipeline.store.durable import make_durable


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: names.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name))
    return names


def test_a_few_files_are_synced_one_by_one(tmp_path: Path, synced: list[str]) -> None:
    make_durable(_files(tmp_path, 3), str(tmp_path))
    assert synced == ["0", "1", "2"]


def test_many_files_are_synced_with_their_file_system(tmp_path: Path, synced: list[str]) -> None:
    make_durable(_files(tmp_path, 100), str(tmp_path))
    assert synced == []


def test_many_files_are_synced_one_by_one_where_there_is_no_other_way(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_syncfs", lambda: None)
    make_durable(_files(tmp_path, 100), str(tmp_path))
    assert sorted(synced, key=int) == [str(number) for number in range(100)]


def test_a_file_system_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_syncfs", lambda: lambda _: -1)
    with pytest.raises(OSError):
        make_durable(_files(tmp_path, 100), str(tmp_path))


def _files(folder: Path, count: int) -> list[str]:
    for number in range(count):
        (folder / str(number)).write_bytes(b"x")
    return [str(folder / str(number)) for number in range(count)]
