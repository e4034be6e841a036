"""What must not be cut short: the lease of a permit, and the bookkeeping at a call's end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pipeline.failover.registry import PERMIT_RENEW_S, CooldownRegistry, Permit

__all__ = ["Renewal", "unbroken"]

T = TypeVar("T")


class Renewal:
    """Holds a permit for as long as its call runs: one timer, and no task unless the call is a long one."""

    def __init__(self, registry: CooldownRegistry, permit: Permit) -> None:
        self._registry = registry
        self._permit = permit
        self._loop = asyncio.get_running_loop()
        self._renewing: asyncio.Task[bool] | None = None
        self._timer = self._loop.call_later(PERMIT_RENEW_S, self._fire)

    async def stop(self) -> None:
        """No renewal starts or runs after this."""
        self._timer.cancel()
        if self._renewing is not None:
            await self._renewing

    def _fire(self) -> None:
        self._renewing = self._loop.create_task(self._registry.renew(self._permit))
        self._timer = self._loop.call_later(PERMIT_RENEW_S, self._fire)


async def unbroken(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Finish a short piece of work even when the caller is cancelled meanwhile; returns whether it was."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled
