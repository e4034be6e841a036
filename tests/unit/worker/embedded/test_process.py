from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from worker.embedded import ProcessId
from worker.embedded.child import describe_exit, end, poll
from worker.embedded.process import command_line, find_processes

_IGNORES_SIGTERM = (
    "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    end(process, ((signal.SIGKILL, 5.0),))


def test_a_process_is_known_by_pid_and_start(sleeper: subprocess.Popen[bytes]) -> None:
    identity = ProcessId.of(sleeper.pid)
    assert identity is not None
    assert identity.is_alive()
    assert command_line(sleeper.pid) == ["sleep", "60"]
    assert find_processes(lambda words: words == ["sleep", "60"]).count(identity) == 1


def test_a_reused_pid_is_neither_alive_nor_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    identity = ProcessId.of(sleeper.pid)
    assert identity is not None
    earlier = dataclasses.replace(identity, start_ticks=identity.start_ticks - 1)
    other_boot = dataclasses.replace(identity, boot_id="another")
    for stranger in (earlier, other_boot):
        assert not stranger.is_alive()
        assert not stranger.send(signal.SIGKILL)
        assert stranger.wait_gone(0)
    assert identity.is_alive()


def test_waiting_ends_with_the_process_or_with_the_time(sleeper: subprocess.Popen[bytes]) -> None:
    identity = ProcessId.of(sleeper.pid)
    assert identity is not None
    assert not identity.wait_gone(0.05)
    assert identity.send(signal.SIGTERM)
    assert identity.wait_gone(5)
    assert ProcessId.of(sleeper.pid) is None, "a zombie is no process"


def test_a_process_that_does_not_listen_is_killed_with_its_children() -> None:
    process = subprocess.Popen([sys.executable, "-c", _IGNORES_SIGTERM], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    grandchild = ProcessId.of(int(process.stdout.readline()))
    process.stdout.close()
    assert grandchild is not None
    assert end(process, ((signal.SIGTERM, 0.2),)) == -signal.SIGKILL
    assert grandchild.wait_gone(5)


def test_children_left_by_a_dead_process_are_ended() -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    grandchild = ProcessId.of(int(process.stdout.readline()))
    process.stdout.close()
    assert grandchild is not None
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert poll(process) == 0
    assert grandchild.wait_gone(5)


@pytest.mark.parametrize(
    ("status", "text"),
    [(0, "exit code 0"), (3, "exit code 3"), (-9, "killed by SIGKILL"), (-99, "killed by signal 99")],
)
def test_an_exit_status_is_told_in_words(status: int, text: str) -> None:
    assert describe_exit(status) == text
