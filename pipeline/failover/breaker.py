"""One target's breaker, as pure functions: a record and a time go in, the next record comes out.

    closed ──failure──▶ open ──until──▶ half-open ──probe's first content──▶ closed, ramping up: 1, 2, 4, … calls
                          ▲                │
                          └─probe failed───┘   for longer

Half-open is not stored: it is an open breaker whose ``until`` has passed. ``pipeline/registry/*.lua`` does the same on
Redis, statement by statement, and one test suite runs over both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipeline.domain.call import SkipReason
from pipeline.failover.kinds import Cooldown, FailureKind, KindRule
from pipeline.failover.registry import (
    PERMIT_TTL_S,
    Admission,
    Admitted,
    BreakerState,
    Permit,
    Refused,
    Report,
    ReportResult,
    TargetStatus,
    Verdict,
)
from pipeline.failover.target import CooldownPolicy

__all__ = [
    "FULL_RAMP",
    "GROUP_KINDS",
    "Breaker",
    "GroupCooldown",
    "admit",
    "cooldown_s",
    "cools_group",
    "first_content",
    "fixed_cooldown_s",
    "join_group",
    "renew",
    "report",
    "reset",
    "state_of",
    "status",
]

FULL_RAMP = 64
"""A recovering target without a ``max_parallel`` has recovered at this many calls at once."""
GROUP_KINDS = frozenset({FailureKind.RATE_LIMIT, FailureKind.QUOTA})
"""What cools a whole quota group."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """All that is known of one target. Times are the registry's clock's.

    Attributes:
        failures: In a row; only a whole successful call ends the row, so that a target which always dies in
            mid-stream cools for longer each time.
        kind: The failure it opened for.
        opened_at: When it last opened; an answer to a call that started before says nothing about now.
        permits: Leases of the calls under way: token and when it lapses.
        probe: The token of the half-open breaker's single call, and when its lease lapses.
        ramp: Calls at once that a recovering target gets; None when it has recovered.
        streak: Digests of different inputs answered with ``invalid_output`` in a row.
        forgiven: Times of the failures that ``allowed_fails`` forgave.
        group_seen: Cooldowns of the quota group up to this time are already part of this record.
    """

    open: bool = False
    until: float = 0.0
    opened_at: float = 0.0
    failures: int = 0
    kind: str | None = None
    permits: Mapping[str, float] = field(default_factory=dict)
    probe: tuple[str, float] | None = None
    ramp: int | None = None
    streak: tuple[str, ...] = ()
    forgiven: tuple[float, ...] = ()
    group_seen: float = -math.inf
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class GroupCooldown:
    """The cooldown that targets of one quota group share."""

    opened_at: float
    until: float
    kind: str


def cooldown_s(
    policy: CooldownPolicy, rule: KindRule, failures: int, retry_after_s: float | None, spread: float
) -> float:
    """How long a failing target is skipped.

    ``config`` kinds have a fixed length. For the others Retry-After wins, up to ``cooldown_max_s``; else it is
    ``cooldown_s * 2^(n-1)`` for the n-th failure in a row, capped, and spread by the jitter so that a fleet's probes
    do not fall together.

    Args:
        policy: The target's own.
        rule: The failure's row of the table.
        failures: n.
        retry_after_s: What the upstream asked for; zero, negative and nonsense count as nothing.
        spread: Uniform in [0, 1).
    """
    fixed_s = fixed_cooldown_s(policy, rule, retry_after_s)
    if fixed_s is not None:
        return fixed_s
    doubled_s = policy.cooldown_s * 2.0 ** min(failures - 1, 32)
    return min(doubled_s, policy.cooldown_max_s) * (1 + policy.jitter * (2 * spread - 1))


def fixed_cooldown_s(policy: CooldownPolicy, rule: KindRule, retry_after_s: float | None) -> float | None:
    """A cooldown's length where it does not depend on the failures in a row; else None."""
    if rule.cooldown is Cooldown.CONFIG:
        return policy.config_cooldown_s if rule.cooldown_s is None else rule.cooldown_s
    if retry_after_s is not None and 0 < retry_after_s < math.inf:
        return min(retry_after_s, policy.cooldown_max_s)
    return rule.cooldown_s


def state_of(breaker: Breaker, now: float) -> BreakerState:
    """The state as people see it."""
    if breaker.disabled:
        return BreakerState.DISABLED
    if not breaker.open:
        return BreakerState.CLOSED
    return BreakerState.OPEN if now < breaker.until else BreakerState.HALF_OPEN


def admit(breaker: Breaker, target: str, max_parallel: int | None, token: str, now: float) -> tuple[Breaker, Admission]:
    """Leave for one call, if there is any."""
    breaker = _without_lapsed(breaker, now)
    state = state_of(breaker, now)
    if state is BreakerState.DISABLED:
        return breaker, Refused(SkipReason.DISABLED)
    if state is BreakerState.OPEN:
        return breaker, Refused(SkipReason.COOLING, breaker.until, breaker.until - now, breaker.kind)
    if state is BreakerState.HALF_OPEN and breaker.probe is not None:
        lapses_at = breaker.probe[1]
        return breaker, Refused(SkipReason.PROBING, lapses_at, lapses_at - now, breaker.kind)
    limits = [limit for limit in (max_parallel, breaker.ramp) if limit is not None]
    if limits and len(breaker.permits) >= min(limits):
        return breaker, Refused(SkipReason.FULL)
    lapses_at = now + PERMIT_TTL_S
    is_probe = state is BreakerState.HALF_OPEN
    return (
        replace(
            breaker,
            permits={**breaker.permits, token: lapses_at},
            probe=(token, lapses_at) if is_probe else None,
        ),
        Admitted(Permit(target, token, admitted_at=now, probe=is_probe)),
    )


def renew(breaker: Breaker, token: str, now: float) -> tuple[Breaker, bool]:
    """Hold a permit (and the probe, where it is one) for longer; False when it had lapsed."""
    breaker = _without_lapsed(breaker, now)
    if token not in breaker.permits:
        return breaker, False
    lapses_at = now + PERMIT_TTL_S
    probe = (token, lapses_at) if breaker.probe is not None and breaker.probe[0] == token else breaker.probe
    return replace(breaker, permits={**breaker.permits, token: lapses_at}, probe=probe), True


def first_content(
    breaker: Breaker, max_parallel: int | None, permit: Permit, now: float
) -> tuple[Breaker, ReportResult]:
    """A stream has begun to answer: a probe closes its breaker with that."""
    if not breaker.open or _is_late(breaker, permit):
        return breaker, _result(breaker, now)
    breaker = _closed(breaker, max_parallel)
    return breaker, _result(breaker, now, closed=True)


def report(
    breaker: Breaker,
    policy: CooldownPolicy,
    rule: KindRule | None,
    max_parallel: int | None,
    permit: Permit,
    report: Report,
    now: float,
    spread: float,
) -> tuple[Breaker, ReportResult]:
    """A call has ended: its permit goes back, and its end counts for or against the target.

    Args:
        breaker: As it stands.
        policy: The target's cooldowns.
        rule: The row of the failure's kind; None for no failure.
        max_parallel: Where a recovering target's ramp ends.
        permit: The call's.
        report: How it ended.
        now: The registry's clock.
        spread: Uniform in [0, 1), for the jitter.
    """
    breaker = _released(breaker, permit.token)
    if report.verdict is Verdict.SUCCESS:
        return _succeeded(breaker, max_parallel, permit, now)
    if report.verdict is Verdict.FAILURE and rule is not None and report.kind is not None:
        return _failed(breaker, policy, rule, report.kind, permit, report, now, spread)
    return breaker, _result(breaker, now)


def join_group(breaker: Breaker, group: GroupCooldown | None) -> Breaker:
    """Take over the cooldown of the target's quota group, once."""
    if group is None or group.opened_at <= breaker.group_seen:
        return breaker
    return replace(
        breaker,
        open=True,
        until=max(breaker.until, group.until),
        opened_at=group.opened_at,
        failures=max(1, breaker.failures),
        kind=group.kind,
        ramp=None,
        group_seen=group.opened_at,
    )


def cools_group(report: Report, rule: KindRule | None) -> bool:
    """Whether a report speaks of the quota, and so for all targets that share it."""
    cools = rule is not None and rule.cooldown is not Cooldown.NONE
    return report.verdict is Verdict.FAILURE and cools and report.kind in GROUP_KINDS


def reset(breaker: Breaker, now: float) -> Breaker:
    """Forget failures and cooldowns; calls under way and the kill switch stay."""
    return Breaker(permits=breaker.permits, disabled=breaker.disabled, group_seen=now)


def status(breaker: Breaker, target: str, now: float) -> TargetStatus:
    """What people and parked work see."""
    breaker = _without_lapsed(breaker, now)
    state = state_of(breaker, now)
    probing = state is BreakerState.HALF_OPEN and breaker.probe is not None
    until = None
    if state is BreakerState.OPEN:
        until = breaker.until
    elif probing and breaker.probe is not None:
        until = breaker.probe[1]
    return TargetStatus(
        target=target,
        state=state,
        until=until,
        wait_s=None if until is None else until - now,
        kind=breaker.kind if breaker.open else None,
        failures=breaker.failures,
        in_flight=len(breaker.permits),
        ramp=breaker.ramp,
        probing=probing,
    )


# --- details --------------------------------------------------------------------------------------------------------


def _is_late(breaker: Breaker, permit: Permit) -> bool:
    """The call started before the breaker opened: while it is open, only probes are let through."""
    return not permit.probe or permit.admitted_at < breaker.opened_at


def _succeeded(breaker: Breaker, max_parallel: int | None, permit: Permit, now: float) -> tuple[Breaker, ReportResult]:
    if breaker.open and _is_late(breaker, permit):
        return breaker, _result(breaker, now)
    closed = breaker.open
    if closed:
        breaker = _closed(breaker, max_parallel)
    ramp = None if breaker.ramp is None else _ramp(breaker.ramp + 1, max_parallel)
    breaker = replace(breaker, failures=0, kind=None, streak=(), ramp=ramp)
    return breaker, _result(breaker, now, closed=closed)


def _failed(
    breaker: Breaker,
    policy: CooldownPolicy,
    rule: KindRule,
    kind: FailureKind,
    permit: Permit,
    report: Report,
    now: float,
    spread: float,
) -> tuple[Breaker, ReportResult]:
    if rule.cooldown is Cooldown.NONE:
        return breaker, _result(breaker, now)
    if rule.cooldown is Cooldown.STREAK:
        digest = report.input_digest or permit.token
        others = tuple(seen for seen in breaker.streak if seen != digest)
        breaker = replace(breaker, streak=(*others, digest)[-policy.streak :])
        if len(breaker.streak) < policy.streak:
            return breaker, _result(breaker, now)
    if rule.forgivable and not breaker.open and policy.allowed_fails > 0 and not report.retry_after_s:
        forgiven = (*(at for at in breaker.forgiven if at > now - policy.fail_window_s), now)
        if len(forgiven) <= policy.allowed_fails:
            return replace(breaker, forgiven=forgiven), _result(breaker, now)
    # Calls that were under way together fail together: that is one failure, not one for each of them.
    late = breaker.open and _is_late(breaker, permit)
    failures = breaker.failures if late else breaker.failures + 1
    until = max(breaker.until, now + cooldown_s(policy, rule, failures, report.retry_after_s, spread))
    opened = until > breaker.until
    breaker = replace(
        breaker,
        open=True,
        until=until,
        opened_at=breaker.opened_at if late else now,
        failures=failures,
        kind=kind if opened else breaker.kind,
        ramp=None,
        forgiven=(),
    )
    if kind in GROUP_KINDS:
        breaker = replace(breaker, group_seen=now)
    return breaker, _result(breaker, now, opened=opened)


def _closed(breaker: Breaker, max_parallel: int | None) -> Breaker:
    return replace(breaker, open=False, until=0.0, probe=None, ramp=_ramp(1, max_parallel))


def _ramp(limit: int, max_parallel: int | None) -> int | None:
    return limit if limit < (max_parallel or FULL_RAMP) else None


def _released(breaker: Breaker, token: str) -> Breaker:
    permits = {held: lapses_at for held, lapses_at in breaker.permits.items() if held != token}
    probe = None if breaker.probe is not None and breaker.probe[0] == token else breaker.probe
    return replace(breaker, permits=permits, probe=probe)


def _without_lapsed(breaker: Breaker, now: float) -> Breaker:
    permits = {held: lapses_at for held, lapses_at in breaker.permits.items() if lapses_at > now}
    probe = breaker.probe if breaker.probe is not None and breaker.probe[1] > now else None
    return replace(breaker, permits=permits, probe=probe)


def _result(breaker: Breaker, now: float, *, opened: bool = False, closed: bool = False) -> ReportResult:
    if not breaker.open or breaker.until <= now:
        return ReportResult(opened=opened, closed=closed)
    return ReportResult(breaker.until, breaker.until - now, opened=opened, closed=closed)
