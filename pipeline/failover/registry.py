"""The cooldown registry's port: one brain, shared by all roles and all workers, about who is busy.

Two implementations pass the same tests: ``pipeline.failover.memory`` and ``pipeline.registry.redis``. All times that
a registry returns are seconds since the epoch on *its* clock (the server's, for Redis), so that hosts whose clocks
disagree still agree on who is cooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pipeline.domain.call import SkipReason
from pipeline.failover.kinds import FailureKind
from pipeline.failover.target import Target

__all__ = [
    "PERMIT_RENEW_S",
    "PERMIT_TTL_S",
    "Admission",
    "Admitted",
    "BreakerState",
    "CooldownRegistry",
    "Permit",
    "Refused",
    "Report",
    "ReportResult",
    "TargetStatus",
    "Verdict",
]

PERMIT_TTL_S = 30.0
"""A permit is a lease: a killed worker's returns by itself after this."""
PERMIT_RENEW_S = 10.0
"""How often the code that holds a permit renews it, so that a long stream's is not lent twice."""


class BreakerState(StrEnum):
    """A target's state as people see it."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    DISABLED = "disabled"


class Verdict(StrEnum):
    """What a finished call says about its target.

    ``neutral``: nothing (cancelled, or the input was at fault); only the permit goes back.
    """

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave for one call to one target, as a lease.

    Attributes:
        admitted_at: On the registry's clock; a success of a call admitted before the breaker opened does not close it.
        probe: True for the single call that a half-open breaker lets through.
    """

    target: str
    token: str
    admitted_at: float
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    permit: Permit


@dataclass(frozen=True, slots=True)
class Refused:
    """No leave: ``disabled``, ``cooling``, ``probing`` or ``full``.

    Attributes:
        until: On the registry's clock; None where there is no time to wait for.
        wait_s: ``until`` as seconds from now, measured by the registry's clock (never by the caller's).
        kind: The failure that the target cools for.
    """

    reason: SkipReason
    until: float | None = None
    wait_s: float | None = None
    kind: str | None = None


Admission = Admitted | Refused


@dataclass(frozen=True, slots=True)
class Report:
    """How a permitted call ended.

    Attributes:
        input_digest: Tells one input from another for the ``invalid_output`` streak.
    """

    verdict: Verdict
    kind: FailureKind | None = None
    retry_after_s: float | None = None
    input_digest: str | None = None


@dataclass(frozen=True, slots=True)
class ReportResult:
    """What the report did to the breaker.

    Attributes:
        until: The cooldown that now stands; None when the breaker is closed.
        wait_s: ``until`` as seconds from now, measured by the registry's clock.
        opened: This report opened (or re-opened, or lengthened) it.
        closed: This report closed it: parked work may go on.
    """

    until: float | None = None
    wait_s: float | None = None
    opened: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target as the registry holds it.

    Attributes:
        failures: In a row.
        ramp: Calls at once that a recovering target gets; None when it is not recovering.
        probing: Somebody holds the probe of a half-open target; ``until`` is when that lease ends.
    """

    target: str
    state: BreakerState
    until: float | None = None
    wait_s: float | None = None
    kind: str | None = None
    failures: int = 0
    in_flight: int = 0
    ramp: int | None = None
    probing: bool = False


class CooldownRegistry(Protocol):
    """Who is busy. No operation raises because the store behind it is away (see ``registry.timeout_s``)."""

    async def admit(self, target: Target) -> Admission:
        """Ask for leave to call ``target``."""
        ...

    async def renew(self, permit: Permit) -> bool:
        """Hold a permit for another ``PERMIT_TTL_S``; False when it had already been taken back."""
        ...

    async def first_content(self, target: Target, permit: Permit) -> ReportResult:
        """A stream's first content has come: a probe closes the breaker here."""
        ...

    async def report(self, target: Target, permit: Permit, report: Report) -> ReportResult:
        """Give the permit back and say how the call ended."""
        ...

    async def statuses(self, targets: Sequence[Target]) -> list[TargetStatus]:
        """The targets' states, in the order asked, without touching them."""
        ...

    async def reset(self, target: str) -> None:
        """Forget a target's failures and cooldown."""
        ...

    async def set_disabled(self, target: str, disabled: bool) -> None:
        """Cache a kill switch, whose truth is in Postgres."""
        ...
