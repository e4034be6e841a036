"""Children that misbehave in the way that their file names; run instead of ``pipeline.documents.child``."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from pipeline.documents.job import Begun, Event, Job, Opened, job_from_line, to_line


def say(*events: Event) -> None:
    for event in events:
        sys.stdout.buffer.write(to_line(event))
    sys.stdout.buffer.flush()


def crash(job: Job) -> None:
    del job
    print("boom in the library", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def die(job: Job) -> None:
    del job
    os.kill(os.getpid(), signal.SIGKILL)


def leave(job: Job) -> None:
    del job
    print("leaving", file=sys.stderr)
    sys.exit(7)


def hang(job: Job) -> None:
    """Hang on a page, deaf to SIGTERM, with a child of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = os.fork()
    if grandchild:
        (job.workdir / "pids").write_text(f"{os.getpid()} {grandchild}")
        say(Opened(3, None), Begun(2))
    time.sleep(600)


def flood(job: Job) -> None:
    del job
    while True:
        say(Opened(1, "x" * 1_000_000))


def babble(job: Job) -> None:
    del job
    sys.stdout.write("this is no event\n")


def tell_environment(job: Job) -> None:
    del job
    say(Opened(0, "\n".join(sorted(os.environ))))


CHILDREN: dict[str, Callable[[Job], None]] = {
    "crash": crash,
    "die": die,
    "leave": leave,
    "hang": hang,
    "flood": flood,
    "babble": babble,
    "environment": tell_environment,
}

if __name__ == "__main__":
    the_job = job_from_line(sys.stdin.buffer.readline())
    CHILDREN[the_job.path.read_text()](the_job)
