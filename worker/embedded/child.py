"""Starting and ending one child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from worker.embedded.home import Home
from worker.embedded.logfile import open_log
from worker.embedded.process import ProcessId

__all__ = ["Ladder", "describe_exit", "end", "kill", "leashed", "poll", "run_logged", "send", "spawn", "tethered"]

Ladder = Sequence[tuple[int, float]]
"""Signals that ask a process to end, each with the seconds it is given; SIGKILL follows the last one."""

_TETHER = Path(__file__).with_name("tether.py")
# Seconds for the kernel to take away a process that was killed; one stuck in a disk or network wait stays longer.
_KILL_WAIT_S = 10.0


def tethered(argv: Sequence[str], death_signal: int) -> list[str]:
    """The command that runs ``argv`` so that it gets ``death_signal`` when this process dies.

    The kernel ties it to the *thread*, so a start from any other thread than the main one goes without.
    """
    if threading.current_thread() is not threading.main_thread():
        return list(argv)
    return leashed(argv, death_signal)


def leashed(argv: Sequence[str], death_signal: int) -> list[str]:
    """The same from any thread: ``argv`` gets ``death_signal`` when the thread that starts it ends."""
    # Isolated and without site packages: half the start time, and nothing in the working folder can shadow a module.
    return [sys.executable, "-I", "-S", str(_TETHER), "leash", str(os.getpid()), str(int(death_signal)), *argv]


def spawn(
    argv: Sequence[str], *, home: Home, name: str, death_signal: int, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, its output going to the log of that name.

    A terminal's Ctrl-C then reaches the supervisor alone, which ends the others in order.
    """
    log = home.log(name)
    fd = open_log(log)
    try:
        home.own(log)
        return subprocess.Popen(  # noqa: S603 - commands come from the program, not from input
            tethered(argv, death_signal),
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            env=env,
            start_new_session=True,
        )
    finally:
        os.close(fd)


def run_logged(
    argv: Sequence[str],
    *,
    home: Home,
    name: str,
    timeout_s: float,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> int:
    """Run a command to its end, output to the log of that name.

    Returns:
        Its exit status, negative for a signal; a command that takes too long is killed.
    """
    log = home.log(name)
    fd = open_log(log)
    try:
        home.own(log)
        finished = subprocess.run(  # noqa: S603 - commands come from the program, not from input
            tethered(argv, signal.SIGKILL),
            input=stdin,
            stdout=fd,
            stderr=fd,
            env=env,
            timeout=timeout_s,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        os.close(fd)
    return finished.returncode


def poll(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status once the process has ended; what it left behind in its group is then killed."""
    if process.returncode is not None:
        return process.returncode
    # Looked at without reaping: while the zombie stands, nobody else can be given its number.
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return None
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def end(process: subprocess.Popen[bytes], ladder: Ladder) -> int:
    """Ask a process to end with each signal in turn, and kill it with its group when none helps.

    Returns:
        Its exit status.
    """
    for signum, patience_s in ladder:
        if poll(process) is not None:
            break
        send(process, signum)
        _wait(process, patience_s)
    if poll(process) is None:
        kill(process)
    return process.wait()


def send(process: subprocess.Popen[bytes], signum: int) -> None:
    """Signal a process that has not been reaped; ``Popen.send_signal`` would reap it, and leave its group behind."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signum)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its group at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _wait(process, _KILL_WAIT_S)


def describe_exit(status: int) -> str:
    """An exit status for people: ``exit code 1``, ``killed by SIGKILL``."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    # Not process.wait(): it would reap before the group is cleaned up.
    identity = ProcessId.of(process.pid)
    if identity is not None:
        identity.wait_gone(timeout_s)
    poll(process)
