"""Deliveries: which slices that were handed out can't arrive any more, because the broker has lost their messages."""

from __future__ import annotations

from collections.abc import Callable, Set

from pipeline.dispatch import WAKE_TTL_S
from pipeline.store.session import Sessions
from pipeline.store.window import keep_in_window, unmark_dispatched, waiting_wakes

__all__ = ["BrokerLook", "Deliveries"]

BrokerLook = Callable[[], Set[int] | None]
"""The wakes of all messages that the broker holds, delivered but not acknowledged ones included; None: it is away."""

_UNDER_WAY_S = 2.0
"""A slice is committed before it is published: one as young as this may not be there yet."""

_GONE_S = 3.0
"""Less than a beat's period, so that two looks in a row are enough."""


class Deliveries:
    """Compares what was handed out with what the broker holds, look by look.

    A message is missing for a moment while a worker takes it (it leaves the queue before it is noted as delivered), so
    a slice counts as lost when no look has found it for ``_GONE_S``. Were that wrong, a second message would find
    nothing to claim.

    Args:
        broker: Looks at the broker.
        monotonic: A clock in seconds.
    """

    def __init__(self, sessions: Sessions, broker: BrokerLook, monotonic: Callable[[], float]) -> None:
        self._sessions = sessions
        self._broker = broker
        self._monotonic = monotonic
        self._missed_since: dict[int, float] = {}

    def look(self) -> int:
        """Have lost slices handed out again by the next dispatch; returns how many there were.

        Raises:
            ServiceUnavailable: Postgres is away.
        """
        missed, self._missed_since = self._missed_since, {}
        with self._sessions() as session:
            waiting = waiting_wakes(session, _UNDER_WAY_S)
        held = self._broker() if waiting else None
        if held is None:
            return 0
        now = self._monotonic()
        missing = {wake: missed.get(wake, now) for wake in waiting - held}
        lost = {wake for wake, since in missing.items() if now - since >= _GONE_S}
        with self._sessions.begin() as session:
            if lost:
                unmark_dispatched(session, sorted(lost))
            if kept := waiting & held:
                # Without a consumer the same units would be sent again and again, and Redis hold more than the window.
                keep_in_window(session, sorted(kept), WAKE_TTL_S)
        self._missed_since = {wake: since for wake, since in missing.items() if wake not in lost}
        return len(lost)
