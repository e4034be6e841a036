"""SIGTERM and SIGINT as a request to end in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stop_on_signals"]


@contextmanager
def stop_on_signals(stop: threading.Event | Callable[[], None]) -> Iterator[None]:
    """Set ``stop``, or call it, when SIGTERM or SIGINT comes; the earlier handlers are put back afterwards."""
    act = stop.set if isinstance(stop, threading.Event) else stop

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
