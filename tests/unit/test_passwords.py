"""Passwords from a file: which fits what, and nothing of them in what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.domain.errors import UsageError
from pipeline.passwords import Passwords, read_passwords


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords.txt"
    path.touch(mode=0o600)
    return path


def test_names_patterns_and_paths_are_held_against_a_document(file: Path) -> None:
    file.write_text(
        "# comment: not a line\n\nplan.pdf: with space \n*.pdf:any\nminutes/may.pdf\ta:b\r\nodd:name.txt\tc\n"
        "2026/*:year\nplan (v2) [final].pdf:d\n./own.doc:e\n"
    )
    passwords = read_passwords(file, default="else")

    assert passwords.of("/x/plan.pdf") == " with space "
    assert passwords.of("/x/other.pdf") == "any"
    assert passwords.of("/x/minutes/may.pdf") == "a:b"
    assert passwords.of("/x/odd:name.txt") == "c"
    assert passwords.of("/x/2026/a.doc") == "year"
    assert passwords.of("/x/plan (v2) [final].pdf") == "d"
    assert passwords.of("/x/y/own.doc") == "e"
    assert passwords.of("/x/letters.zip!/plan.pdf") == " with space "
    assert passwords.of("/x/notplan.doc") == "else"
    assert not passwords.exposed
    assert "any" not in repr(passwords)


def test_a_name_counts_before_a_pattern_that_comes_first(file: Path) -> None:
    file.write_text("*:any\nplan.pdf:own\n")
    assert read_passwords(file).of("/x/plan.pdf") == "own"
    assert read_passwords(file).of("/x/else") == "any"


def test_nothing_given_is_nothing(file: Path) -> None:
    assert not Passwords()
    assert Passwords().of("/x") is None
    assert Passwords(default="p")
    assert not read_passwords(file)


@pytest.mark.parametrize("line", ["secretword", ":secretword", "secretword:", "\tsecretword", "\xffsecretword:\t"])
def test_a_line_that_is_off_is_named_by_its_number_and_never_shown(file: Path, line: str) -> None:
    file.write_text(f"a:b\n{line}\n")
    with pytest.raises(UsageError, match="line 2") as off:
        read_passwords(file)
    assert "secretword" not in str(off.value)


def test_a_file_that_cannot_be_read_is_a_mistake_of_the_command(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_passwords(tmp_path / "missing")
    with pytest.raises(UsageError, match="directory"):
        read_passwords(tmp_path)
    file.write_bytes(b"a:\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        read_passwords(file)


def test_a_file_that_others_can_read_is_told(file: Path) -> None:
    file.write_text("a:b")
    file.chmod(0o644)
    assert read_passwords(file).exposed
