"""A reprieve for leases after an outage of Postgres: they ran out while nobody could renew them.

Who lives renews at once when Postgres is back. A reconciler that came first would take the leases from living workers,
count that against the units, and have calls made again whose answers are about to be committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import func, select

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store.session import Sessions

__all__ = ["Reprieve"]

_LONGEST_S = 10.0


class Reprieve:
    """One reconciler's memory of when Postgres came back.

    A restart shows in Postgres itself, also to a reconciler that has just begun. A server that was out of reach or
    frozen shows in a question that failed or took long; one that is read-only or full answers questions, and shows
    in what a reconciler could not write (``was_away``).

    Args:
        lease_s: Leases are left alone for half of it, at most ten seconds: longer than a holder that found Postgres
            away takes to look again.
        monotonic: Seconds that only go forward.
    """

    def __init__(self, lease_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._grace_s = min(_LONGEST_S, lease_s / 2)
        self._monotonic = monotonic
        self._until = monotonic()

    def holds(self, sessions: Sessions) -> bool:
        """Whether leases that ran out are to be left alone for now.

        Raises:
            ServiceUnavailable: Postgres is away.
        """
        asked_at = self._monotonic()
        try:
            up_s = _up_for_s(sessions)
        except ServiceUnavailable:
            self.was_away()
            raise
        now = self._monotonic()
        if now - asked_at > self._grace_s:
            self._until = now + self._grace_s
        return up_s < self._grace_s or now < self._until

    def was_away(self) -> None:
        """Postgres has just refused something that a holder's renewal needs too."""
        self._until = self._monotonic() + self._grace_s


def _up_for_s(sessions: Sessions) -> float:
    up = func.clock_timestamp() - func.pg_postmaster_start_time()
    with sessions() as session:
        return float(session.execute(select(func.extract("epoch", up))).scalar_one())
