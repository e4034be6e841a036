"""What the paths of an enqueue stand for."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from pipeline.sources import BadSource, Source, find_sources, source_uri, words_to_enqueue


def _found(*paths: str | Path, recursive: bool = False) -> list[tuple[str, str | None]]:
    return [
        (one.uri, one.reason if isinstance(one, BadSource) else None)
        for one in find_sources(paths, recursive=recursive)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "sub" / "deep").mkdir(parents=True)
    for name in ("b.txt", "a.txt", ".hidden", "sub/c.txt", "sub/deep/d.txt"):
        (root / name).write_text(name)
    return root


def test_a_folder_stands_for_its_own_files_by_name(folder: Path) -> None:
    assert _found(folder) == [(f"{folder}/a.txt", None), (f"{folder}/b.txt", None)]


def test_recursion_takes_subfolders_and_leaves_hidden_files(folder: Path) -> None:
    names = [Path(uri).name for uri, _ in _found(folder, recursive=True)]
    assert names == ["a.txt", "b.txt", "c.txt", "d.txt"]


def test_a_file_named_twice_is_found_once(folder: Path) -> None:
    assert len(_found(folder / "a.txt", folder, folder / "sub" / ".." / "a.txt")) == 2


def test_bad_paths_are_told_apart(folder: Path) -> None:
    (folder / "loose").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe")
    (folder / "void").mkdir()
    assert _found(folder / "nope", folder / "loose", folder / "pipe", folder / "void", "", "nul\x00") == [
        (f"{folder}/nope", "no such file"),
        (f"{folder}/loose", "a link to nothing"),
        (f"{folder}/pipe", "not a regular file"),
        (f"{folder}/void", "a folder without files"),
        ("", "an empty path"),
        ("nul\\x00", "embedded null byte"),
    ]


def test_a_folder_of_folders_says_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "only" / "inner").mkdir(parents=True)
    assert _found(tmp_path / "only")[0][1] == "holds only folders; add --recursive"


def test_a_loop_of_links_ends(folder: Path) -> None:
    (folder / "sub" / "again").symlink_to(folder)
    assert len(_found(folder, recursive=True)) == 4


def test_a_link_to_a_file_is_a_document_of_its_own_name(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder / "sub" / "c.txt")
    assert (f"{folder}/link.txt", None) in _found(folder)


def test_dots_after_a_link_lead_where_the_file_system_leads(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "sub" / "deep")
    assert source_uri(tmp_path / "link" / ".." / "c.txt") == f"{folder}/sub/c.txt"


def test_names_that_are_no_text_stay_apart(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    names = [b"a\xff.txt", b"a\xfe.txt", b"a\\xff.txt", b"new\nline.txt", "ü.txt".encode()]
    for name in names:
        Path(os.fsdecode(root + b"/" + name)).write_text("x")

    found = list(find_sources([tmp_path]))

    uris = [Path(one.uri).name for one in found]
    assert sorted(uris) == sorted(["a\\xff.txt", "a\\xfe.txt", "a\\x5cxff.txt", "new\\x0aline.txt", "ü.txt"])
    assert all(isinstance(one, Source) and one.path.read_text() == "x" for one in found)


def test_a_closed_folder_is_rejected_and_the_others_go_on() -> None:
    # Outside pytest's own folder, which is closed to the ordinary user that root turns into here.
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    (root / "open.txt").write_text("x")
    (root / "closed").mkdir(mode=0o700)
    (root / "closed").chmod(0)
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(65534)
        found = _found(root, recursive=True)
    finally:
        os.seteuid(before)
        (root / "closed").chmod(0o700)
        shutil.rmtree(root)
    assert (f"{root}/closed", "permission denied") in found
    assert any(str(root / "open.txt") in str(one) for one in found)


def test_a_path_too_long_to_be_kept_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path
    for number in range(9):
        folder /= f"{number}" * 240
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    ((uri, reason),) = _found(folder)
    assert uri == f"{folder}/a.txt"
    assert reason == "its path is longer than 2,048 bytes"


def test_a_member_is_enqueued_again_with_its_container(tmp_path: Path) -> None:
    assert words_to_enqueue("/a b/c.zip!/d.txt") == "'/a b/c.zip' --expand"
    assert words_to_enqueue("/a/m.eml!/b.zip!/d.txt") == "/a/m.eml --expand"
    plain = tmp_path / "odd!" / "a.txt"
    plain.parent.mkdir()
    plain.write_text("a")
    assert words_to_enqueue(str(plain)) == f"'{plain}'"
