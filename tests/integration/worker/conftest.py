"""Real worker and beat processes over the session's services, with a configuration of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text

from pipeline.documents.sniff import sniff
from pipeline.enqueue import enqueue
from pipeline.settings import Settings, read_settings
from pipeline.store.session import Sessions
from worker.bootstrap import Container

_CALL = {
    "worker": "run_worker(read_settings(), {queues!r}, {threads})",
    "beat": "run_beat(read_settings())",
    "flower": "run_flower(read_settings(), {port})",
}
_ENDED = ("done", "empty", "failed", "cancelled")


class Fleet:
    """The processes of one test, and what they work on."""

    def __init__(self, environment: Mapping[str, str], folder: Path, sessions: Sessions) -> None:
        self._environment = environment
        self._folder = folder
        self.sessions = sessions
        self.processes: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []

    def configure(self, config: Mapping[str, Any]) -> None:
        """What the processes that start from now on read."""
        Path(self._environment["TIDEGATE_CONFIG"]).write_text(yaml.safe_dump(dict(config)), encoding="utf-8")

    def start(self, kind: str, **values: Any) -> subprocess.Popen[bytes]:
        """Start a process; it need not be ready yet."""
        call = _CALL[kind].format(**{"queues": None, "threads": 8, "port": 0} | values)
        code = f"from pipeline.settings import read_settings\nfrom worker.processes import *\n{call}"
        log = self._folder / f"{len(self.processes)}-{kind}.log"
        environment = dict(self._environment) | values.get("env", {})
        with log.open("wb") as file:
            process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=file, stderr=file)
        self.processes.append(process)
        self.logs.append(log)
        return process

    def container(self) -> Container:
        """The light half, as a command has it; close it."""
        settings: Settings = read_settings()
        return Container(settings)

    def enqueue(self, *paths: Path) -> None:
        """Accept files and hand them out."""
        container = self.container()
        try:
            enqueue(
                container.sessions,
                container.blobs,
                paths,
                recipe=container.recipe_for("default"),
                limits=container.config.limits.to_domain(),
                sniff=sniff,
            )
            container.dispatch()
        finally:
            container.close()

    def query(self, sql: str) -> list[Any]:
        with self.sessions() as session:
            return list(session.execute(text(sql)).all())

    def wait(self, what: Callable[[], object], timeout_s: float = 120.0) -> None:
        """Wait until ``what`` is true; the processes' logs are shown when it does not get so."""
        if not _await(what, timeout_s):
            pytest.fail(f"not within {timeout_s:g} s\n{self.state()}\n{self.said()}")

    def wait_ended(self, timeout_s: float = 120.0) -> list[str]:
        """Wait until every run has ended; their states in order."""
        self.wait(lambda: all(row.state in _ENDED for row in self.query("select state from run")), timeout_s)
        return [row.state for row in self.query("select state from run order by id")]

    def state(self) -> str:
        runs = self.query("select id, state, failure_kind, failure_detail from run order by id")
        units = self.query("select stage, state, count(*) from unit group by 1, 2 order by 1, 2")
        return f"runs {runs}\nunits {units}"

    def said(self) -> str:
        """Everything that the processes logged."""
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for log in self.logs)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(what: Callable[[], object], timeout_s: float) -> bool:
    import threading
    import time

    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not what():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.1)
    return True


@pytest.fixture
def fleet(
    database_url: str,
    redis_url: str,
    sessions: Sessions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Fleet]:
    """Processes on a fresh database; what a test has started is ended with it."""
    own = {
        "TIDEGATE_DATABASE_URL": database_url,
        "TIDEGATE_REDIS_URL": redis_url,
        "TIDEGATE_HOME": str(tmp_path / "home"),
        "TIDEGATE_CONFIG": str(tmp_path / "tidegate.yaml"),
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    # Many processes start; none should compile what another has.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    made = Fleet({**inherited, **own}, tmp_path, sessions)
    made.configure({"dispatch": {"period_s": 0.5}})
    yield made
    made.end()


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    """A small document of one section."""
    path = tmp_path / "handbook.md"
    path.write_text(
        "# Tide gates\n\nA tide gate opens when the water inside stands higher than the water outside.\n\n"
        "## Maintenance\n\nGrease the hinges twice a year and look for driftwood after storms.\n",
        encoding="utf-8",
    )
    return path
