"""One asyncio loop a process, in a daemon thread: model calls run there, tasks wait for them in their own threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")

_JOIN_S = 5.0


class LoopThread:
    """Started by the first ``submit``, and of that process: after a fork the child makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether this process has a loop."""
        return self._loop is not None and self._pid == os.getpid()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._own())

    def close(self, *last_works: Coroutine[Any, Any, object], timeout_s: float = 10.0) -> None:
        """Cancel what still runs, do the last works one after the other, and end the thread.

        Args:
            last_works: Closing of clients that belong to the loop; one that fails doesn't keep the next from running.
            timeout_s: For all of it.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            ours = self.running
            self._loop = self._thread = self._pid = None
        if loop is None or thread is None or not ours:
            for work in last_works:
                work.close()
            return
        ending = asyncio.run_coroutine_threadsafe(_wind_up(last_works), loop)
        try:
            ending.result(timeout_s)
        except TimeoutError:
            ending.cancel()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN_S)

    def _own(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._pid, self._loop = os.getpid(), asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="tidegate-loop", daemon=True)
                self._thread.start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _wind_up(last_works: tuple[Coroutine[Any, Any, object], ...]) -> None:
    current = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not current]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for work in last_works:
        await asyncio.gather(work, return_exceptions=True)
