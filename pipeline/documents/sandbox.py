"""Runs a parse in a process of its own, with limits, and ends it when it overstays.

The child is spawned, never forked from a threaded worker; it gets no environment of ours, so no secret is in reach of a
hostile file, and its process group is killed on every way out.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pipeline
from pipeline.documents.job import Event, Job, from_line, to_line
from pipeline.domain.errors import ChildDied, RejectedInput

__all__ = ["OutOfMemory", "PageStuck", "run"]

_CHILD = "pipeline.documents.child"

_READ_BYTES = 1 << 16
_LOOK_S = 0.25
_STDERR_TAIL_BYTES = 4096
# A report is text only (images are files): a file's text may be larger than the file, but not without end.
_REPORT_FLOOR_BYTES = 64 << 20
_REPORT_TIMES_INPUT = 4
_GRACE_S = 2.0
# What a page needed is kept for the next: asking anew is a tenth of a text page's time, a quarter of an image's. Only
# larger blocks than the first (no page at the default size is) and free memory beyond the second go back to the system.
_KEPT_BLOCK_BYTES = 32 << 20
_KEPT_BYTES = 64 << 20
_GROW_BYTES = 4 << 20
_OUT_OF_MEMORY = ("memory allocation of", "out of memory", "bad_alloc", "MemoryError")


class PageStuck(Exception):
    """The child said nothing for longer than one page may take; only raised once a page was begun."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class OutOfMemory(RejectedInput):
    """The child wanted more memory than it may have, and its library ended it for that; ``unsafe``."""


def run(
    job: Job,
    *,
    seconds: float,
    silence_s: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
    module: str = _CHILD,
) -> Iterator[Event]:
    """Parse in a child and yield what it reports, as it reports it.

    The child is dead when this ends, however it ends; leave the iterator by exhausting or closing it.

    Args:
        job: What to parse.
        seconds: Wall-clock time for the whole child.
        silence_s: Longest time between two events after the first one; None for no such limit.
        stopped: Asked a few times a second whether nobody waits for the document any more.
        module: What the child runs.

    Raises:
        CancelledError: It was stopped.
        RejectedInput: ``unsafe``: it took longer than ``seconds``, or reported without end.
        OutOfMemory: It died of more memory than allowed.
        PageStuck: It was silent for longer than ``silence_s``.
        ChildDied: It ended without an answer.
    """
    child = subprocess.Popen(  # noqa: S603
        # Our own interpreter and module, no shell, and the file's name is not among the words.
        [sys.executable, "-S", "-P", "-m", module, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=job.workdir,
        env=_environment(job.workdir),
        process_group=0,
    )
    try:
        yield from _converse(child, job, _Watch(job, seconds, silence_s, stopped))
    finally:
        _end(child)


def _environment(workdir: Path) -> dict[str, str]:
    root = str(Path(pipeline.__file__).parents[1])
    return {
        # -S skips the site machinery (40 ms of a 150 ms start); what it would have found is passed on.
        "PYTHONPATH": os.pathsep.join([root, *(entry for entry in sys.path if entry and entry != root)]),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(workdir),
        "TMPDIR": str(workdir),
        "PYTHONIOENCODING": "utf-8",
        # Every arena reserves 64 MB of address space, which RLIMIT_AS counts.
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(_KEPT_BLOCK_BYTES),
        "MALLOC_TOP_PAD_": str(_GROW_BYTES),
        "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES),
        "RAYON_NUM_THREADS": "1",
        "TOKIO_WORKER_THREADS": "1",
    }


def _converse(child: subprocess.Popen[bytes], job: Job, watch: _Watch) -> Iterator[Event]:
    _ask(child, job)
    ear = _Ear(job)
    with selectors.DefaultSelector() as selector:
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(watch.left()):
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is child.stderr:
                    ear.overhear(data)
                else:
                    for event in ear.hear(data):
                        yield event
                        # Also after the caller's own work on the event: that is not the child's silence.
                        watch.heard()
    _judge(child, job, ear.overheard)


class _Watch:
    """The two clocks on a child, its whole time and its silence, and whether anybody still looks at them."""

    def __init__(self, job: Job, seconds: float, silence_s: float | None, stopped: Callable[[], bool]) -> None:
        self._late = f"not parsed within limits.parse_seconds = {job.limits.parse_seconds}"
        self._end = time.monotonic() + seconds
        self._silence_s = silence_s
        self._heard: float | None = None
        self._stopped = stopped

    def heard(self) -> None:
        self._heard = time.monotonic()

    def left(self) -> float:
        """Seconds until one of them rings, or it is time to look again; raises when one has rung."""
        if self._stopped():
            raise CancelledError
        now = time.monotonic()
        left = self._end - now
        if left <= 0:
            raise RejectedInput("unsafe", self._late)
        if self._heard is not None and self._silence_s is not None:
            left = min(left, self._heard + self._silence_s - now)
            if left <= 0:
                raise PageStuck(self._silence_s)
        return min(left, _LOOK_S)


class _Ear:
    """Puts the child's lines together, and bounds what it may say."""

    def __init__(self, job: Job) -> None:
        self._limit = max(_REPORT_FLOOR_BYTES, _REPORT_TIMES_INPUT * job.limits.max_bytes)
        self._said = 0
        self._pending = bytearray()
        self.overheard = b""

    def hear(self, data: bytes) -> Iterator[Event]:
        self._said += len(data)
        if self._said > self._limit:
            raise RejectedInput("unsafe", f"it holds more than {self._limit >> 20} MB of text")
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._pending += line
            whole, self._pending = bytes(self._pending), bytearray()
            try:
                event = from_line(whole)
            except ValueError as exc:
                raise ChildDied("crashed", str(exc)) from exc
            yield event
        self._pending += rest

    def overhear(self, data: bytes) -> None:
        self.overheard = (self.overheard + data)[-_STDERR_TAIL_BYTES:]


def _ask(child: subprocess.Popen[bytes], job: Job) -> None:
    assert child.stdin is not None  # noqa: S101 -- it was asked for
    try:
        child.stdin.write(to_line(job))
        child.stdin.close()
    except BrokenPipeError:
        # It died while starting; how is told by its exit.
        return


def _judge(child: subprocess.Popen[bytes], job: Job, tail: bytes) -> None:
    try:
        code = child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        # Its pipes are closed, so nothing more can come of it.
        raise ChildDied("exited", "it closed its pipes and stayed") from None
    if code == 0:
        return
    said = tail.decode("utf-8", "replace").strip()
    last = said.splitlines()[-1][:300] if said else ""
    if any(sign in said for sign in _OUT_OF_MEMORY):
        raise OutOfMemory("unsafe", f"needs more memory than limits.parse_memory_mb = {job.limits.parse_memory_mb}")
    if code == -signal.SIGXCPU:
        raise RejectedInput("unsafe", f"not parsed within limits.parse_seconds = {job.limits.parse_seconds}")
    if code == -signal.SIGKILL:
        raise ChildDied("killed", "SIGKILL from outside, as the system does when memory runs out")
    if code < 0:
        name = signal.Signals(-code).name
        raise ChildDied("crashed", f"{name}: {last}" if last else name)
    raise ChildDied("exited", f"status {code}: {last}" if last else f"status {code}")


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None and not stream.closed:
            stream.close()
