"""Deliveries: which slices that were handed out can't arrive any more, because the broker has lost their messages."""

from __future__ import annotations

from collections.abc import Callable, Set

from pipeline.store.session import Sessions
from pipeline.store.window import unmark_dispatched, waiting_wakes

__all__ = ["BrokerLook", "Deliveries"]

BrokerLook = Callable[[], Set[int] | None]
"""The wakes of all messages that the broker holds, delivered but not acknowledged ones included; None: it is away."""

_UNDER_WAY_S = 2.0
"""A slice is committed before it is published: one as young as this may not be there yet."""


class Deliveries:
    """Compares what was handed out with what the broker holds, look by look.

    A message is missing for a moment while a worker takes it (it leaves the queue before it is noted as delivered), so
    a slice counts as lost when two looks in a row miss it. Were that wrong, a second message would find nothing to
    claim.

    Args:
        broker: Looks at the broker.
    """

    def __init__(self, sessions: Sessions, broker: BrokerLook) -> None:
        self._sessions = sessions
        self._broker = broker
        self._missed: Set[int] = frozenset()

    def look(self) -> int:
        """Have lost slices handed out again by the next dispatch; returns how many there were.

        Raises:
            ServiceUnavailable: Postgres is away.
        """
        missed, self._missed = self._missed, frozenset()
        with self._sessions() as session:
            waiting = waiting_wakes(session, _UNDER_WAY_S)
        held = self._broker() if waiting else None
        if held is None:
            return 0
        missing = waiting - held
        lost = missing & missed
        if lost:
            with self._sessions.begin() as session:
                unmark_dispatched(session, sorted(lost))
        self._missed = missing - lost
        return len(lost)
