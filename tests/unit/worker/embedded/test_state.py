from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from worker.embedded import Home, ProcessId, Stack, StackPart, read_stack
from worker.embedded.state import load_stack, write_stack


def _stack(home: Path) -> Stack:
    me = ProcessId.of(os.getpid())
    assert me is not None
    gone = dataclasses.replace(me, start_ticks=1)
    return Stack(
        home=str(home),
        phase="ready",
        supervisor=me,
        database_url="postgresql+psycopg://tidegate:secret@/tidegate",
        redis_url="unix:///x",
        parts=(
            StackPart("worker.parse", "worker", "ready", me, ("parse",), None, 2, "killed by SIGKILL", "parse.log"),
            StackPart("beat", "beat", "ready", gone),
        ),
        started_at=1.5,
    )


def test_a_stack_is_read_back_and_parts_that_died_since_are_shown_so(tmp_path: Path) -> None:
    write_stack(Home(tmp_path), _stack(tmp_path))
    found = read_stack(tmp_path)
    assert found is not None
    assert found.parts[0] == _stack(tmp_path).parts[0]
    assert (found.parts[1].process, found.parts[1].state) == (None, "waiting")
    assert (tmp_path / "stack.json").stat().st_mode & 0o777 == 0o600


def test_a_stack_whose_supervisor_is_gone_is_none(tmp_path: Path) -> None:
    stack = _stack(tmp_path)
    gone = dataclasses.replace(stack.supervisor, boot_id="before the power cut")
    write_stack(Home(tmp_path), dataclasses.replace(stack, supervisor=gone))
    assert read_stack(tmp_path) is None
    assert load_stack(tmp_path) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1, "parts": []}'])
def test_a_torn_or_foreign_file_is_no_stack(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    assert read_stack(tmp_path) is None


def test_no_file_is_no_stack(tmp_path: Path) -> None:
    assert read_stack(tmp_path / "none") is None


def test_a_stack_does_not_show_its_urls(tmp_path: Path) -> None:
    assert "secret" not in repr(_stack(tmp_path))
