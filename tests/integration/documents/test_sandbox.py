"""The parse child: limited, told apart by how it ends, and dead when the conversation is over."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from pipeline.documents import media, sandbox
from pipeline.documents.job import Ended, Event, Opened, Rejected
from pipeline.domain.document import Limits, ParsedPage
from pipeline.domain.errors import ChildDied, RejectedInput
from tests.unit.documents.conftest import MakeJob

BAD = "tests.integration.documents.bad_children"


def heard(make_job: MakeJob, behaviour: str, *, seconds: float = 20, silence_s: float | None = None) -> list[Event]:
    job = make_job(behaviour, media.PLAIN, limits=Limits(max_bytes=1_000_000))
    return list(sandbox.run(job, seconds=seconds, silence_s=silence_s, module=BAD))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def all_end(pids: Iterable[int], patience_s: float = 5.0) -> bool:
    """Whether these processes are gone within a bound: SIGKILL is sent at once, but dying takes a turn."""
    deadline = time.monotonic() + patience_s
    waiting = set(pids)
    while waiting and time.monotonic() < deadline:
        waiting = {pid for pid in waiting if is_alive(pid)}
        select.select([], [], [], 0.01)
    return not waiting


def test_a_file_is_parsed_and_its_events_come_in_order(make_job: MakeJob) -> None:
    opened, _, page, ended = sandbox.run(make_job("Two words.", media.PLAIN), seconds=20)
    assert opened == Opened(1, None)
    assert isinstance(page, ParsedPage)
    assert page.text == "Two words."
    assert ended == Ended(None)


def test_a_crash_is_told_with_its_signal_and_the_last_line_of_stderr(make_job: MakeJob) -> None:
    with pytest.raises(ChildDied) as died:
        heard(make_job, "crash")
    assert died.value.kind == "crashed"
    assert died.value.detail == "SIGSEGV: boom in the library"


def test_a_kill_from_outside_is_told_from_a_crash(make_job: MakeJob) -> None:
    with pytest.raises(ChildDied) as died:
        heard(make_job, "die")
    assert died.value.kind == "killed"


def test_an_exit_without_an_answer_is_a_death(make_job: MakeJob) -> None:
    with pytest.raises(ChildDied, match="status 7: leaving"):
        heard(make_job, "leave")


def test_a_child_that_hangs_on_a_page_is_killed_with_its_own_children_though_it_ignores_sigterm(
    make_job: MakeJob, tmp_path: Path
) -> None:
    with pytest.raises(sandbox.PageStuck):
        heard(make_job, "hang", silence_s=0.3)
    pids = [int(pid) for pid in (tmp_path / "work" / "pids").read_text().split()]
    assert all_end(pids)


def test_a_child_that_overstays_is_killed_and_the_file_is_unsafe(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput) as refused:
        heard(make_job, "hang", seconds=1)
    assert refused.value.kind == "unsafe"
    assert "limits.parse_seconds" in refused.value.detail


def test_a_child_that_reports_without_end_is_stopped(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput) as refused:
        heard(make_job, "flood", seconds=60)
    assert refused.value.kind == "unsafe"


def test_a_child_that_speaks_no_sense_is_a_death_and_no_traceback(make_job: MakeJob) -> None:
    with pytest.raises(ChildDied, match="not a line of a parse child"):
        heard(make_job, "babble")


def test_leaving_the_conversation_early_ends_the_child(make_job: MakeJob, tmp_path: Path) -> None:
    conversation = sandbox.run(make_job("hang", media.PLAIN), seconds=20, module=BAD)
    assert next(conversation) == Opened(3, None)
    conversation.close()  # type: ignore[attr-defined]
    assert all_end(int(pid) for pid in (tmp_path / "work" / "pids").read_text().split())


def test_the_child_sees_nothing_of_the_parents_environment(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    (opened,) = heard(make_job, "environment")
    assert isinstance(opened, Opened)
    assert opened.title is not None
    assert "OPENAI_API_KEY" not in opened.title
    assert set(os.environ) & set(opened.title.split()) <= {"PATH", "LANG", "HOME", "TMPDIR", "PYTHONPATH", "LC_CTYPE"}


def test_too_little_memory_is_told_as_such(make_job: MakeJob) -> None:
    job = make_job(b"x " * 20_000_000, media.PLAIN, limits=Limits(parse_memory_mb=64))
    *_, last = sandbox.run(job, seconds=60)
    assert last == Rejected("unsafe", "needs more memory than limits.parse_memory_mb = 64")


def test_a_child_whose_document_nobody_waits_for_any_more_is_ended_at_once(make_job: MakeJob) -> None:
    job = make_job("hang", media.PLAIN, limits=Limits(max_bytes=1_000_000))
    heard: list[Event] = []
    began = time.monotonic()
    with pytest.raises(CancelledError):
        heard.extend(sandbox.run(job, seconds=60, stopped=lambda: time.monotonic() > began + 1, module=BAD))
    assert time.monotonic() - began < 30
