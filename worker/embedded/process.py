"""A process, told apart from a later one that was given the same number."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessId", "command_line", "find_processes"]

_POLL_S = 0.05
_START_FIELD = 19  # proc(5), stat: field 22 counted from the field after the name
_DEAD_STATES = "ZXx"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid with the moment its process began, so that a reused pid is never signalled.

    Attributes:
        pid: The number in the caller's pid namespace.
        start_ticks: Clock ticks between the boot and the process's start.
        boot_id: The kernel's id of this boot; ticks of different boots can't be compared.
    """

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that now has this pid; None when there is none or when it is a zombie."""
        ticks = _start_ticks(pid)
        return None if ticks is None else cls(pid, ticks, _boot_id())

    def is_alive(self) -> bool:
        return _start_ticks(self.pid) == self.start_ticks and _boot_id() == self.boot_id

    def send(self, signum: int, *, group: bool = False) -> bool:
        """Send a signal to this very process, or to the group it leads.

        Args:
            signum: The signal.
            group: Also signal everything in the process's own group. Only for processes that lead one.

        Returns:
            False when the process is gone.

        Raises:
            PermissionError: The process belongs to somebody else.
        """
        with _pidfd(self.pid) as fd:
            if not self.is_alive():
                return False
            try:
                if group:
                    os.killpg(self.pid, signum)
                elif fd is None:
                    os.kill(self.pid, signum)
                else:
                    signal.pidfd_send_signal(fd, signum)
            except ProcessLookupError:
                return False
        return True

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the process has ended (zombie or reaped); False when the time is over first."""
        deadline = time.monotonic() + timeout_s
        with _pidfd(self.pid) as fd:
            poller = select.poll()
            if fd is not None:
                poller.register(fd, select.POLLIN)
            while self.is_alive():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                poller.poll(1000 * min(left_s, _POLL_S if fd is None else left_s))
        return True


def find_processes(matches: Callable[[list[str]], bool]) -> list[ProcessId]:
    """Every running process whose command line matches; those that may not be looked at are left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        pid = int(entry.name)
        identity = ProcessId.of(pid)
        # Read after the identity: were the pid reused in between, the identity would be the older process's.
        if identity is not None and matches(command_line(pid)):
            found.append(identity)
    return found


def command_line(pid: int) -> list[str]:
    """The process's arguments, or its title as one string where it has set one; empty when it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in raw.rstrip(b"\0 ").split(b"\0")] if raw else []


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may hold anything, parentheses too.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in _DEAD_STATES:
        return None
    return int(fields[_START_FIELD])


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@contextmanager
def _pidfd(pid: int) -> Iterator[int | None]:
    """A descriptor that stays with the process; None where the process is gone or the kernel is older than 5.3."""
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.ENOSYS, errno.EPERM, errno.EINVAL):
            raise
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)
