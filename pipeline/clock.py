"""The real clock. Code that waits or measures takes a ``Clock``; only composition roots make this one."""

from __future__ import annotations

import asyncio
import time

__all__ = ["LoopClock", "wall_now_s"]


class LoopClock:
    """The running event loop's time, so that a test's virtual-time loop drives it too."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


def wall_now_s() -> float:
    """Seconds since the epoch on this host; only for people's eyes and the local registry."""
    return time.time()
