"""``tidegate`` as its users run it: another process, a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
EXAMPLES = REPO / "examples"


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its one JSON document; anything else on stdout fails the test."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


@dataclass(frozen=True)
class Tidegate:
    """The command in one working folder, with ``.tidegate`` in it as its home."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 240

    @property
    def home(self) -> Path:
        return self.folder / ".tidegate"

    @property
    def env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TIDEGATE_", "MODEL_"))}
        return {**kept, "TIDEGATE_HOME": str(self.home), **self.variables}

    def run(self, *words: str | Path, code: int | None = 0) -> Ran:
        """Run a command to its end; it must end with ``code`` (None for any), and show no traceback."""
        done = subprocess.run(
            self.argv(*words), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=self.timeout_s
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert code is None or ran.code == code, f"exit {ran.code}, not {code}\n{ran.out}\n{ran.err}"
        assert "Traceback" not in ran.out + ran.err, ran.out + ran.err
        return ran

    def json(self, *words: str | Path, code: int | None = 0) -> dict[str, Any]:
        """Run a command with ``--json``, and return its document."""
        return self.run(*words, "--json", code=code).json

    def argv(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-P", "-m", "worker", *map(str, words)]

    @contextmanager
    def up(self, *words: str) -> Iterator[dict[str, Any]]:
        """A stack for the time of the block."""
        try:
            yield self.json("up", "--detach", *words)
        finally:
            self.run("down")

    @contextmanager
    def background(self, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on while the block runs; it is told to end with the block."""
        with _heeding_interrupts():
            process = subprocess.Popen(
                self.argv(*words),
                cwd=self.folder,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        with process:
            try:
                yield process
            finally:
                process.terminate()
                process.communicate(timeout=60)


@contextmanager
def _heeding_interrupts() -> Iterator[None]:
    """What is started meanwhile heeds SIGINT, also where a shell runs these tests in the background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
