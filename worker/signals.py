"""SIGTERM and SIGINT as a request to end in good order."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stop_on_signals"]


@contextmanager
def stop_on_signals(stop: threading.Event | Callable[[], None]) -> Iterator[None]:
    """Set ``stop``, or call it in a thread, when SIGTERM or SIGINT comes; the earlier handlers are put back afterwards.

    A handler may strike while the main thread holds any lock, that of ``stop`` among them, and while another handler
    does: what it does itself must take none. ``SimpleQueue.put`` is made for this.
    """
    act = stop.set if isinstance(stop, threading.Event) else stop
    came: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def listen() -> None:
        while came.get():
            act()

    def handle(_number: int, _frame: FrameType | None) -> None:
        came.put(True)

    thread = threading.Thread(target=listen, name="tidegate-signals", daemon=True)
    thread.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(False)
        thread.join()
