"""The single table of failure kinds: each decides the cooldown and the next action, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

__all__ = ["PRESET_RULES", "STANDARD_RULES", "Action", "Cooldown", "FailureKind", "KindRule", "Rules"]


class FailureKind(StrEnum):
    """How one call to one target failed."""

    CONNECT = "connect"
    TIMEOUT = "timeout"
    TTFT_TIMEOUT = "ttft_timeout"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    AUTH = "auth"
    NOT_FOUND = "not_found"
    QUOTA = "quota"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_OVERFLOW = "context_overflow"
    CONTENT_POLICY = "content_policy"
    INVALID_OUTPUT = "invalid_output"
    PARTIAL_STREAM = "partial_stream"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    UNKNOWN = "unknown"
    INTERNAL = "internal"


class Cooldown(StrEnum):
    """How long a failure takes its target out of service.

    ``backoff``: Retry-After, or ``cooldown_s`` doubled for each failure in a row. ``config``: the fixed, longer
    ``config_cooldown_s``, for what only a person can mend. ``streak``: only after several in a row over different
    inputs. ``none``: the request caused it, or the caller did.
    """

    NONE = "none"
    BACKOFF = "backoff"
    CONFIG = "config"
    STREAK = "streak"


class Action(StrEnum):
    """What the call does after a failure.

    ``larger``: the next target whose context window is larger. ``policy``: the ``content_policy_fallbacks`` where
    set; else an interactive role stops and ingestion goes on. ``partial``: the next target when the answer is
    collected, raise when it is streamed. ``raise``: re-raise what the caller (or our own code) caused.
    """

    NEXT = "next"
    STOP = "stop"
    LARGER = "larger"
    POLICY = "policy"
    PARTIAL = "partial"
    RAISE = "raise"


@dataclass(frozen=True, slots=True)
class KindRule:
    """One row of the table.

    Attributes:
        busy: The target, not the input, is the trouble: the call may succeed there later, so ingestion parks.
        forgivable: ``allowed_fails`` failures of this kind inside a window set no cooldown.
        cooldown_s: A fixed length that replaces the computed one (from ``failover.on_error``).
    """

    cooldown: Cooldown
    action: Action
    busy: bool
    forgivable: bool = False
    cooldown_s: float | None = None


Rules = Mapping[FailureKind, KindRule]

STANDARD_RULES: Rules = MappingProxyType(
    {
        FailureKind.CONNECT: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=True),
        FailureKind.TIMEOUT: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=True, forgivable=True),
        FailureKind.TTFT_TIMEOUT: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=True, forgivable=True),
        FailureKind.RATE_LIMIT: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=True),
        FailureKind.OVERLOADED: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=True, forgivable=True),
        FailureKind.SERVER_ERROR: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=True, forgivable=True),
        FailureKind.AUTH: KindRule(Cooldown.CONFIG, Action.NEXT, busy=True),
        FailureKind.NOT_FOUND: KindRule(Cooldown.CONFIG, Action.NEXT, busy=True),
        FailureKind.QUOTA: KindRule(Cooldown.CONFIG, Action.NEXT, busy=True),
        FailureKind.INVALID_REQUEST: KindRule(Cooldown.NONE, Action.NEXT, busy=False),
        FailureKind.CONTEXT_OVERFLOW: KindRule(Cooldown.NONE, Action.LARGER, busy=False),
        FailureKind.CONTENT_POLICY: KindRule(Cooldown.NONE, Action.POLICY, busy=False),
        FailureKind.INVALID_OUTPUT: KindRule(Cooldown.STREAK, Action.NEXT, busy=False),
        FailureKind.PARTIAL_STREAM: KindRule(Cooldown.BACKOFF, Action.PARTIAL, busy=True, forgivable=True),
        FailureKind.CANCELLED: KindRule(Cooldown.NONE, Action.RAISE, busy=False),
        FailureKind.DEADLINE: KindRule(Cooldown.NONE, Action.RAISE, busy=False),
        FailureKind.UNKNOWN: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=True),
        FailureKind.INTERNAL: KindRule(Cooldown.NONE, Action.RAISE, busy=False),
    }
)

_CLIENT_KINDS = (FailureKind.INVALID_REQUEST, FailureKind.CONTEXT_OVERFLOW, FailureKind.CONTENT_POLICY)

PRESET_RULES: Mapping[str, Rules] = MappingProxyType(
    {
        "standard": STANDARD_RULES,
        # Cools on any error alike, 400/401/404 included, and always goes on.
        "permissive": MappingProxyType(
            dict(STANDARD_RULES)
            | {kind: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=False) for kind in _CLIENT_KINDS}
            | {
                kind: KindRule(Cooldown.BACKOFF, Action.NEXT, busy=True)
                for kind in (FailureKind.AUTH, FailureKind.NOT_FOUND)
            }
        ),
        # Stops on every 4xx that waiting does not mend.
        "conservative": MappingProxyType(
            dict(STANDARD_RULES)
            | {kind: KindRule(Cooldown.NONE, Action.STOP, busy=False) for kind in _CLIENT_KINDS}
            | {
                kind: KindRule(Cooldown.CONFIG, Action.STOP, busy=True)
                for kind in (FailureKind.AUTH, FailureKind.NOT_FOUND, FailureKind.QUOTA)
            }
        ),
    }
)
