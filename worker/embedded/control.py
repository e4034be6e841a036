"""Starting a stack in the background, and stopping one, from another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.domain.errors import ServiceUnavailable, UsageError
from worker.embedded.home import Home
from worker.embedded.logfile import open_log, tail
from worker.embedded.orphans import end_orphans
from worker.embedded.process import ProcessId
from worker.embedded.state import Stack, load_stack, read_stack

__all__ = ["start_detached", "stop_stack"]

_POLL_S = 0.1
_STOP_S = 90.0
_ORPHANS_S = 10.0
_TETHER = Path(__file__).with_name("tether.py")


def start_detached(argv: Sequence[str], home: Path, timeout_s: float, *, env: Mapping[str, str] | None = None) -> Stack:
    """Run a supervisor in the background and wait until its stack is ready.

    The supervisor has a session of its own, holds none of the caller's descriptors, and writes to
    ``logs/supervisor.log``.

    Args:
        argv: The command that runs ``Supervisor.run`` under this home.
        home: ``TIDEGATE_HOME``.
        timeout_s: How long to wait; then, and on Ctrl-C, what was started is stopped again.
        env: The supervisor's environment; None for the caller's.

    Returns:
        The stack, ready.

    Raises:
        UsageError: One already runs here, or was faster.
        ServiceUnavailable: It does not come up; the text says why.
    """
    folder = Home(home)
    folder.prepare()
    if (running := read_stack(folder.path)) is not None:
        raise _already(running, folder)
    daemon = _launch(argv, folder, env)
    try:
        return _await_ready(daemon, folder, timeout_s)
    except BaseException:
        if daemon.send(signal.SIGTERM):
            daemon.wait_gone(_STOP_S)
        raise


def _already(running: Stack, home: Home) -> UsageError:
    return UsageError(
        f"a stack already runs under {str(home.path)!r} (pid {running.supervisor.pid}, {running.phase})",
        "to stop it:  tidegate down",
    )


def _launch(argv: Sequence[str], home: Home, env: Mapping[str, str] | None) -> ProcessId:
    log = home.log("supervisor")
    fd = open_log(log)
    try:
        home.own(log)
        started = subprocess.run(  # noqa: S603 - commands come from the program, not from input
            [sys.executable, "-I", "-S", str(_TETHER), "free", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=fd,
            env=env,
            check=True,
            close_fds=True,
        )
    finally:
        os.close(fd)
    daemon = ProcessId.of(int(started.stdout))
    if daemon is None:
        raise ServiceUnavailable("the supervisor ended at once: " + _last_words(home), f"its log:  {log}")
    return daemon


def _await_ready(daemon: ProcessId, home: Home, timeout_s: float) -> Stack:
    deadline = time.monotonic() + timeout_s
    while True:
        ended = daemon.wait_gone(_POLL_S)
        stack = load_stack(home.path)
        own = stack if stack is not None and stack.supervisor == daemon else None
        if ended:
            # Started at the same moment: the other one's words are in the log, not ours.
            if own is None and (other := read_stack(home.path)) is not None:
                raise _already(other, home)
            why = own.error if own is not None and own.error else "the supervisor ended: " + _last_words(home)
            fact, _, remedy = why.partition("\n")
            raise ServiceUnavailable(fact, remedy or f"its log:  {home.log('supervisor')}")
        if own is not None and own.is_ready:
            return own
        if time.monotonic() > deadline:
            late = ", ".join(
                f"{part.name} ({part.state})" for part in (own.parts if own else ()) if part.state != "ready"
            )
            raise ServiceUnavailable(
                f"the stack is not ready after {timeout_s:g} s; it waits for: {late or 'its supervisor'}",
                f"the logs are in  {home.logs}",
            )


def stop_stack(home: Path, timeout_s: float = _STOP_S) -> bool:
    """Stop the stack under ``home``, or what a dead supervisor left of one.

    Args:
        home: ``TIDEGATE_HOME``.
        timeout_s: How long the supervisor may take; after that it and its parts are killed.

    Returns:
        False when nothing ran.

    Raises:
        ServiceUnavailable: The stack belongs to another user, or is at its very first step and can't be told yet.
    """
    folder = Home(home)
    stack = load_stack(folder.path)
    try:
        if stack is None or not stack.supervisor.is_alive():
            _refuse_in_between(folder)
        if stack is None:
            return False
        found = stack.supervisor.send(signal.SIGTERM)
        if found and not stack.supervisor.wait_gone(timeout_s):
            stack.supervisor.send(signal.SIGKILL)
            stack.supervisor.wait_gone(_POLL_S * 50)
        left = load_stack(folder.path)
        # Not when another supervisor has taken over in the meantime: its parts are no orphans.
        if left is not None and not left.supervisor.is_alive() and not folder.is_locked:
            found = end_orphans(left, min(timeout_s, _ORPHANS_S)) or found
            folder.state.unlink(missing_ok=True)
            folder.remove_stand_in()
    except PermissionError as error:
        raise ServiceUnavailable(
            f"the stack under {str(folder.path)!r} belongs to another user", "stop it as that user:  tidegate down"
        ) from error
    return found


def _refuse_in_between(home: Home) -> None:
    """A supervisor holds the lock before it writes its state; nothing may be cleaned up under its hands then."""
    if home.is_locked:
        raise ServiceUnavailable(
            f"a stack is just starting under {str(home.path)!r}", "try again in a few seconds:  tidegate down"
        )


def _last_words(home: Home) -> str:
    return " | ".join(tail(home.log("supervisor"), 3)) or "it wrote nothing"
