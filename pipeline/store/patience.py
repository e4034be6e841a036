"""Waiting for Postgres to come back with a result in hand: what has been paid for is not thrown away for an outage."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.domain.errors import ServiceUnavailable

__all__ = ["Patience", "outlasting"]

T = TypeVar("T")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_LOOP_PAUSE_S = 0.5


async def outlasting(work: Callable[[], Awaitable[T]]) -> T:
    """Return what ``work`` returns, once Postgres lets it; for what waits on a loop, and ends when it is cancelled."""
    while True:
        try:
            return await work()
        except ServiceUnavailable:
            await asyncio.sleep(_LOOP_PAUSE_S)


@dataclass(slots=True)
class Patience:
    """Runs transactions again for as long as Postgres is away; one serves all threads of a process.

    A lease may run out meanwhile, but nobody can take it away while Postgres is away, and afterwards its token decides:
    trying for longer than a lease costs nothing and saves what is still ours. The same token makes it safe to run a
    transaction again whose COMMIT may have gone through unheard.

    Args:
        limit_s: How long one piece of work is tried.
        stopping: Set when the process drains.
        drain_s: How long it is tried after that.
        on_wait: Told the error when a wait begins, once for each piece of work.
    """

    limit_s: float = 3600.0
    stopping: threading.Event = field(default_factory=threading.Event)
    drain_s: float = 8.0
    on_wait: Callable[[ServiceUnavailable], None] = lambda _: None
    _stopped_at: float | None = field(default=None, init=False)

    def outlast(self, work: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
        """Return what ``work`` returns, once Postgres lets it.

        Args:
            work: One transaction, with no effect but in the database.
            meanwhile: Called between tries: what must go on, whatever holds this work up.

        Raises:
            ServiceUnavailable: Postgres stayed away for too long.
        """
        began, pause_s, waiting = time.monotonic(), _FIRST_PAUSE_S, threading.Event()
        while True:
            try:
                return work()
            except ServiceUnavailable as error:
                if pause_s == _FIRST_PAUSE_S:
                    self.on_wait(error)
                if self._is_over(began):
                    raise
            waiting.wait(pause_s)
            meanwhile()
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _is_over(self, began: float) -> bool:
        now = time.monotonic()
        if self.stopping.is_set():
            self._stopped_at = now if self._stopped_at is None else self._stopped_at
            return now - self._stopped_at >= self.drain_s
        return now - began >= self.limit_s
