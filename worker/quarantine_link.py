"""A worker's end of the pipes to its quarantine: slices go in as JSON lines, and what became of them comes out."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from worker.embedded.child import describe_exit, leashed

__all__ = ["Gone", "Link"]

_READ_BYTES = 1 << 16
_EXIT_WAIT_S = 2.0


class Gone(Exception):
    """The quarantine has ended; the text says how."""


class Link:
    """One quarantine process and the pipes to it. It belongs to the thread that makes it, and is told to end with it.

    Args:
        argv: The program.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        # SIGTERM, so that it gives back what it holds: that its parent was killed is no mark against the unit.
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            leashed(argv, signal.SIGTERM), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._heard = b""
        self._selector = selectors.DefaultSelector()
        if self._process.stdout is None:
            msg = "a quarantine's stdout was asked for and is not there"
            raise RuntimeError(msg)
        self._out = self._process.stdout.fileno()
        self._selector.register(self._out, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def send(self, order: Mapping[str, Any]) -> None:
        """Give it a slice. One that has ended is noticed by ``hear``."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                self._process.stdin.flush()

    def hear(self, timeout_s: float) -> dict[str, Any] | None:
        """Its next line; None when there is none in this time.

        Raises:
            Gone: It has ended, and everything that it said was heard.
        """
        while b"\n" not in self._heard:
            if not self._selector.select(timeout_s):
                return None
            data = os.read(self._out, _READ_BYTES)
            if not data:
                raise Gone(self._exit())
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """Have it finish or give back what it holds, and end."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; ``hear`` then says that it is gone."""
        self._signal(signal.SIGKILL)

    def close(self, patience_s: float) -> str:
        """End it, by force after ``patience_s``, and close the pipes; returns how it ended."""
        self.stop()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
        end = describe_exit(self._process.wait())
        self._selector.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return end

    def _exit(self) -> str:
        """How it ended; one that closed its pipe and stayed is killed."""
        try:
            return describe_exit(self._process.wait(_EXIT_WAIT_S))
        except subprocess.TimeoutExpired:
            self.kill()
            return f"closed its pipe and stayed: {describe_exit(self._process.wait())}"

    def _signal(self, signum: int) -> None:
        # send_signal looks whether it has ended, and its number is not another's while it is not reaped.
        self._process.send_signal(signum)
