"""A small pool of child processes that read pages, so that the event loop never waits for a model.

Children are fresh interpreters, never forks of a threaded worker, and get an environment of their own: no secret of
the worker reaches the process that decodes hostile images. Each takes one page at a time over its stdin and stdout
(``frames.py``), so a child that dies fails one page only, and is replaced at the next. A page that crashes two in a
row is at fault itself: it says nothing about the model, which the other pages go on using.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import orjson

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.providers.local.frames import HEADER, MAX_ANSWER_BYTES

__all__ = ["ChildPool"]

_CHILD_MODULE = "pipeline.providers.local.child"
_KILL_WAIT_S = 5.0
_EXIT_WAIT_S = 1.0
# What a library does to itself; the system and people end processes otherwise.
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


class _Crashed(Exception):
    """A child crashed over a page; says how."""


class ChildPool:
    """At most ``size`` children, started when first needed.

    A pool belongs to the event loop that first uses it.

    Args:
        size: Pages read at once.
        threads: Processors one child may use.
        job_timeout_s: After this long a child is taken for hung and killed.
        module: What a child runs.
    """

    def __init__(self, size: int, threads: int, job_timeout_s: float, module: str = _CHILD_MODULE) -> None:
        if size < 1:
            raise ValueError(f"a pool of {size!r} children can't read a page; the least is 1")
        self.size = size
        self._threads = threads
        self._job_timeout_s = job_timeout_s
        self._module = module
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(size)
        self._idle: list[asyncio.subprocess.Process] = []
        self._children: set[asyncio.subprocess.Process] = set()
        self._jobs: set[asyncio.Task[dict[str, Any]]] = set()
        self._closed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """The children that are alive, at work or idle."""
        return tuple(child.pid for child in self._children if child.returncode is None)

    async def run(self, job: Mapping[str, Any], payload: bytes) -> dict[str, Any]:
        """One page's answer.

        When the caller is cancelled it returns at once; a child that is at work finishes its page for nobody.

        Raises:
            UpstreamFailure: The child died or hung, or said that the job can't be done.
        """
        self._own_loop()
        await self._slots.acquire()
        try:
            task = asyncio.create_task(self._exchange(job, payload))
        except BaseException:
            self._slots.release()
            raise
        self._jobs.add(task)
        task.add_done_callback(self._ended)
        answer = await asyncio.shield(task)
        if "error" in answer:
            raise UpstreamFailure(FailureKind(answer["error"]), str(answer.get("message", "")))
        return answer

    async def close(self) -> None:
        """Kill every child; whoever still waits for a page gets an ``UpstreamFailure``."""
        self._closed = True
        for child in list(self._children):
            _kill(child)
        if self._jobs:
            await asyncio.wait(list(self._jobs), timeout=_KILL_WAIT_S)
        for child in list(self._children):
            await self._bury(child)
        self._idle.clear()

    def _own_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("a pool of local models is used from two event loops; make one for each")

    def _ended(self, task: asyncio.Task[dict[str, Any]]) -> None:
        self._jobs.discard(task)
        self._slots.release()
        if not task.cancelled():
            task.exception()  # mark as seen: the caller may have left

    async def _exchange(self, job: Mapping[str, Any], payload: bytes) -> dict[str, Any]:
        try:
            return await self._try(job, payload)
        except _Crashed:
            pass
        try:
            return await self._try(job, payload)
        except _Crashed as crashed:
            raise UpstreamFailure(
                FailureKind.INVALID_OUTPUT, f"the page crashes the process of a local model ({crashed})"
            ) from None

    async def _try(self, job: Mapping[str, Any], payload: bytes) -> dict[str, Any]:
        if self._closed:
            raise UpstreamFailure(FailureKind.SERVER_ERROR, "the local models were shut down")
        child = await self._take()
        healthy = False
        try:
            async with asyncio.timeout(self._job_timeout_s):
                answer = await _talk(child, orjson.dumps(job), payload)
            healthy = True
        except TimeoutError:
            raise UpstreamFailure(
                FailureKind.TIMEOUT, f"a local model gave no answer in {self._job_timeout_s:g} s"
            ) from None
        except (OSError, EOFError, orjson.JSONDecodeError):
            cause = await self._cause(child)
            if child.returncode is not None and -child.returncode in _CRASHES:
                raise _Crashed(cause) from None
            raise UpstreamFailure(FailureKind.SERVER_ERROR, f"the process of a local model died ({cause})") from None
        finally:
            if healthy and not self._closed:
                self._idle.append(child)
            else:
                await self._bury(child)
        return answer

    async def _take(self) -> asyncio.subprocess.Process:
        while self._idle:
            child = self._idle.pop()
            if child.returncode is None:
                return child
            await self._bury(child)
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                self._module,
                str(os.getpid()),
                str(self._threads),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=_environment(self._threads),
            )
        except OSError as refused:
            raise UpstreamFailure(
                FailureKind.SERVER_ERROR, f"no process for a local model: {refused.strerror or refused!r}"
            ) from refused
        self._children.add(child)
        return child

    @staticmethod
    async def _cause(child: asyncio.subprocess.Process) -> str:
        """How a child whose pipe closed came to its end; one that only talks nonsense is ended here."""
        try:
            async with asyncio.timeout(_EXIT_WAIT_S):
                code = await child.wait()
        except TimeoutError:
            return "it broke off in mid-answer"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def _bury(self, child: asyncio.subprocess.Process) -> None:
        _kill(child)
        if child.stdin is not None:
            child.stdin.close()
            with contextlib.suppress(OSError):
                await child.stdin.wait_closed()
        await child.wait()
        self._children.discard(child)


async def _talk(child: asyncio.subprocess.Process, job: bytes, payload: bytes) -> dict[str, Any]:
    if child.stdin is None or child.stdout is None:
        raise EOFError
    child.stdin.write(HEADER.pack(len(job), len(payload)))
    child.stdin.write(job)
    child.stdin.write(payload)
    await child.stdin.drain()
    size, _ = HEADER.unpack(await child.stdout.readexactly(HEADER.size))
    if size > MAX_ANSWER_BYTES:
        raise EOFError
    answer: dict[str, Any] = orjson.loads(await child.stdout.readexactly(size))
    return answer


def _environment(threads: int) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
        "ORT_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": str(threads),
        # Tesseract's own: it takes longer over a line with more than one.
        "OMP_THREAD_LIMIT": "1",
        "PYTHONUTF8": "1",
    }


def _kill(child: asyncio.subprocess.Process) -> None:
    # Not child.kill(): that reaps a child that is dead already, and asyncio then reports an exit code of 255.
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
