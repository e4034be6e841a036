"""An event loop whose clock jumps: when nobody is ready it does not sleep, it moves on to the next timer."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["VirtualLoop", "virtual"]


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for a timeout, lets it pass."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                msg = "deadlock: nobody is ready and no timer is set"
                raise RuntimeError(msg)
            self._jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at second 0; ``time()`` advances only by the timers that are waited for."""

    def __init__(self) -> None:
        self._seconds = 0.0
        super().__init__(_JumpingSelector(self._advance))

    def time(self) -> float:
        return self._seconds

    def pass_by(self, seconds: float) -> None:
        """Let time pass while nothing runs, as for a process that is stopped."""
        self._advance(seconds)

    def _advance(self, seconds: float) -> None:
        # The loop's own resolution guards against a timeout that rounds to nothing.
        self._seconds += max(seconds, 0.0)


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in a virtual-time loop."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
