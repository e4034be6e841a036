"""Small programs that tests run as real processes, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from worker.embedded import Stack, StackPart, read_stack, stop_stack
from worker.embedded.child import end

T = TypeVar("T")

REPO = Path(__file__).parents[3]

_IMPORTS = """
import sys
from pathlib import Path
from worker.embedded import EmbeddedPostgres, EmbeddedValkey, Part, Step, Supervisor

def yes() -> bool:
    return True

def no() -> bool:
    return False
"""

# Sleepers die on SIGTERM, as a part should.
SLEEPERS = f"""{_IMPORTS}
home = Path(sys.argv[1])
Supervisor(home, [
    Part(name="worker.parse", role="worker", argv=["sleep", "600"], queues=("parse",), is_ready=yes),
    Part(name="beat", role="beat", argv=["sleep", "600"], is_ready=yes),
]).run()
"""

FULL = f"""{_IMPORTS}
home = Path(sys.argv[1])
postgres, valkey = EmbeddedPostgres(home, durable=False), EmbeddedValkey(home)
Supervisor(home, [
    postgres.part(),
    valkey.part(),
    Step(name="migrate", action=["sh", "-c", "echo migrated"]),
    Part(name="worker.parse", role="worker", argv=["sleep", "600"], queues=("parse",)),
], database_url=postgres.url, redis_url=valkey.url).run()
"""


def command(program: str, home: Path) -> list[str]:
    return [sys.executable, "-c", program, str(home)]


@contextmanager
def running(program: str, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor in the foreground, ready; ended at the latest when the block ends."""
    process = subprocess.Popen(command(program, home), cwd=REPO, stderr=subprocess.STDOUT, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: (stack := read_stack(home)) is not None and stack.is_ready, process=process)
        yield process
    finally:
        end(process, ((signal.SIGTERM, 30.0),))
        stop_stack(home)


def stack_of(home: Path) -> Stack:
    stack = read_stack(home)
    assert stack is not None
    return stack


def part_of(home: Path, name: str) -> StackPart:
    return next(part for part in stack_of(home).parts if part.name == name)


def eventually(condition: Callable[[], T], timeout_s: float = 30, process: subprocess.Popen[bytes] | None = None) -> T:
    """The condition's first true value; fails when there is none in time, or when the process ends before."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert process is None or process.poll() is None, f"the process ended with {process.returncode}"
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return value


def open_files(pid: int) -> list[str]:
    return [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
