"""What the core tells the outside about a call as it goes, and the ports it tells it through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pipeline.domain.call import Skip, TryRecord

__all__ = ["AttemptSink", "AttemptStart", "CallContext", "Observer", "Switch"]


@dataclass(frozen=True, slots=True)
class CallContext:
    """Whom a call is for; it travels to the attempt rows and the logs.

    Attributes:
        call_id: Shared by all tries of one call.
        rejected_by: Targets that rejected this very input before; they are skipped.
        primary_only: Accept no fallback (``requeue --degraded``): only the first target may answer.
        allowed: The presets that the collection allows; None for all.
        within_budget: Whether the collection can pay for this call; free targets are always within budget.
    """

    call_id: str
    run_id: int | None = None
    unit_id: int | None = None
    document_id: str | None = None
    stage: str | None = None
    worker: str | None = None
    rejected_by: frozenset[str] = field(default_factory=frozenset)
    primary_only: bool = False
    allowed: frozenset[str] | None = None
    within_budget: bool = True


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """A try that is about to be made."""

    context: CallContext
    role: str
    target: str
    preset: str
    position: int
    skipped: tuple[Skip, ...] = ()


class AttemptSink(Protocol):
    """Makes attempts durable: ``begin`` is committed before the upstream call, ``end`` after it."""

    async def begin(self, start: AttemptStart) -> int:
        """Record a try that is about to start; returns the attempt's id."""
        ...

    async def end(self, attempt_id: int, record: TryRecord) -> None:
        """Record how a try ended."""
        ...

    async def exhausted(self, context: CallContext, role: str, position: int, skipped: tuple[Skip, ...]) -> None:
        """Record that a call ended without an answer, with the targets skipped since its last try."""
        ...


@dataclass(frozen=True, slots=True)
class Switch:
    """The call moves from one target to another (``to_target`` None: nobody is left)."""

    context: CallContext
    role: str
    from_target: str
    to_target: str | None
    reason: str


class Observer(Protocol):
    """Counts and logs; it never raises and never waits."""

    def tried(self, context: CallContext, role: str, record: TryRecord) -> None: ...

    def switched(self, switch: Switch) -> None: ...

    def cooled(self, target: str, kind: str, until: float) -> None: ...

    def recovered(self, target: str) -> None: ...
