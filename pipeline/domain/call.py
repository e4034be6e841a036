"""What one model call leaves behind: the targets tried, the targets skipped, what it used and cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

__all__ = ["Answer", "Outcome", "Skip", "SkipReason", "TryRecord", "Usage"]


class SkipReason(StrEnum):
    """Why a target was left out without a call."""

    DISABLED = "disabled"
    COOLING = "cooling"
    PROBING = "probing"
    FULL = "full"
    CONTRACT = "contract"
    REJECTED = "rejected"
    OVER_BUDGET = "over_budget"
    NOT_ALLOWED = "not_allowed"
    DEADLINE = "deadline"


class Outcome(StrEnum):
    """How an attempt row ended (``running`` until it does)."""

    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Skip:
    """A target that was left out, and why.

    Attributes:
        until: When it is expected back, seconds since the epoch on the registry's clock; None when unknown.
        detail: The failure kind it is cooling for, or the part of the contract it does not meet.
    """

    target: str
    reason: SkipReason
    until: float | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money of one answer."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class TryRecord:
    """One call to one target, as it ended.

    Attributes:
        position: 0 for the first target of the chain.
        skipped: Targets left out between the call before and this one.
        ttft_s: Seconds to first content (to the answer, when not streamed); None when none came.
        cooldown_until: What the registry holds after the report, seconds since the epoch on its clock.
    """

    target: str
    position: int
    outcome: Outcome
    kind: str | None = None
    status: int | None = None
    message: str | None = None
    ttft_s: float | None = None
    duration_s: float = 0.0
    usage: Usage | None = None
    cooldown_until: float | None = None
    skipped: tuple[Skip, ...] = ()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A model's answer and where it came from.

    Attributes:
        position: Index of the target in its chain; ``degraded`` is true when it is not the first.
        usage: Summed over every try of the call that reported any.
    """

    value: T
    target: str
    position: int
    degraded: bool
    tries: tuple[TryRecord, ...]
    usage: Usage = field(default_factory=Usage)
