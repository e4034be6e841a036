"""Run a command tied to its parent, or free of it. Started as a script, so it imports nothing of Tidegate.

    tether.py leash PARENT_PID SIGNAL COMMAND…   COMMAND gets SIGNAL when PARENT_PID's thread ends
    tether.py free COMMAND…                      COMMAND runs in its own session; its pid is printed

A ``preexec_fn`` would do the first in fewer lines, but it runs Python between fork and exec, which can deadlock
in a process that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_CANNOT_RUN = 127


def main(words: list[str]) -> int:
    mode, rest = words[0], words[1:]
    if mode == "free":
        return _free(rest)
    parent, signum, command = int(rest[0]), int(rest[1]), rest[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signum) != 0:
        sys.stderr.write(f"cannot tie to the parent: {os.strerror(ctypes.get_errno())}\n")
        return _CANNOT_RUN
    if os.getppid() != parent:
        return 0  # it ended before the tie was made
    return _become(command)


def _free(command: list[str]) -> int:
    os.setsid()
    child = os.fork()
    if child:
        os.write(1, f"{child}\n".encode())
        return 0
    # The pipe on stdout is the caller's: whoever holds it keeps the caller waiting.
    os.dup2(2, 1)
    return _become(command)


def _become(command: list[str]) -> int:
    # What the starter blocks or ignores is its own affair; an ignored signal would outlive the exec.
    for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]!r}: {error.strerror}\n")
    return _CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
