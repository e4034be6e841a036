"""The simulated primaries' process: started, told to begin, asked for its log, ended."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from pipeline.domain.errors import ServiceUnavailable
from worker.embedded import Home
from worker.embedded.child import end, poll, spawn
from worker.outage.primary import Served
from worker.outage.script import Script
from worker.stack import LOOPBACK

__all__ = ["Primaries", "serving"]

_START_S = 60.0
_ANSWER_S = 5.0
_END = ((signal.SIGTERM, 5.0),)


@dataclass(frozen=True, slots=True)
class Primaries:
    """The server, as the demo speaks to it."""

    port: int

    def begin(self) -> None:
        """Start the script's clock."""
        self._ask("POST", "/outage/begin")

    def calls(self) -> list[Served]:
        """Every call that came, in order."""
        return [Served(**call) for call in self._ask("GET", "/outage/calls")["calls"]]

    def _ask(self, method: str, path: str) -> Any:
        connection = HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_S)
        try:
            connection.request(method, path)
            return json.load(connection.getresponse())
        except (OSError, HTTPException, ValueError) as error:
            raise ServiceUnavailable(f"the simulated primaries at port {self.port} do not answer: {error}") from error
        finally:
            connection.close()


@contextmanager
def serving(home: Path, port: int, script: Script) -> Iterator[Primaries]:
    """The server for the time of the block; it ends with this process, whatever ends that.

    Raises:
        ServiceUnavailable: It does not come up.
    """
    folder = Home(home)
    argv = [sys.executable, "-P", "-m", "worker.outage.primary", str(port), str(script)]
    process = spawn(argv, home=folder, name="primary", death_signal=signal.SIGTERM)
    primaries = Primaries(port)
    pause, deadline = threading.Event(), time.monotonic() + _START_S
    try:
        while True:
            try:
                primaries.calls()
                break
            except ServiceUnavailable:
                if poll(process) is not None or time.monotonic() > deadline:
                    raise ServiceUnavailable(
                        "the simulated primaries did not start", f"their log:  {folder.log('primary')}"
                    ) from None
            pause.wait(0.1)
        yield primaries
    finally:
        end(process, _END)
