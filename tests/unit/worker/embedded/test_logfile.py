from __future__ import annotations

import os
from pathlib import Path

from worker.embedded.logfile import KEPT, open_log, rotate, tail, trim


def test_a_log_is_rotated_when_it_is_opened_and_has_grown(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("x" * 11)
    os.close(open_log(log, max_bytes=10))
    assert log.read_text() == ""
    assert (tmp_path / "part.log.1").read_text() == "x" * 11
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_small_log_is_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    for _ in range(2):
        fd = open_log(log, max_bytes=10)
        os.write(fd, b"abc\n")
        os.close(fd)
    assert log.read_text() == "abc\nabc\n"


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    for number in range(KEPT + 3):
        log.write_text(f"{number}" * 11)
        assert rotate(log, max_bytes=10)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"part.log.{n}" for n in range(1, KEPT + 1)]
    assert (tmp_path / "part.log.1").read_text().startswith(f"{KEPT + 2}")


def test_a_log_in_use_is_emptied_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    fd = open_log(log)
    os.write(fd, b"y" * 11)
    assert trim(log, max_bytes=10)
    os.write(fd, b"after")
    os.close(fd)
    assert log.read_text() == "after"
    assert (tmp_path / "part.log.1").read_text() == "y" * 11


def test_the_tail_skips_empty_lines_and_survives_bad_bytes(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_bytes(b"one\n\ntwo \xff\n\n")
    assert tail(log, 1) == ["two �"]
    assert tail(tmp_path / "none.log") == []
