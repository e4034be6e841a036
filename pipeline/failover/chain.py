"""One call's walk down its chain, as a bounded state machine: it decides, and ``walk.py`` acts.

    state = begin(...)
    next_step(state, now) -> PassOver | Admit | Wait | Stop      what to do now
    passed_over, refused, admitted, failed, waited               what came of it: state -> state

Each step either shortens the route, makes one of at most ``max_attempts`` calls, or waits inside a bound, so every
walk ends. ``now`` is a monotonic clock's; times that come from the registry stay on the registry's clock and are only
passed on.

Kill switches are read by the registry at each admission, never once for the whole call: a target that is switched
off while another's answer still streams is not called when that stream fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pipeline.domain.call import Skip, SkipReason, TryRecord
from pipeline.domain.errors import ChainExhausted
from pipeline.failover.kinds import Action, Cooldown, FailureKind, KindRule
from pipeline.failover.records import CallContext
from pipeline.failover.registry import Permit, Refused, Verdict
from pipeline.failover.target import CallPolicy, Chain, Needs, Target

__all__ = [
    "PERMIT_POLL_S",
    "Admit",
    "Allowance",
    "CallState",
    "PassOver",
    "Step",
    "Stop",
    "StopReason",
    "Wait",
    "WaitFor",
    "admitted",
    "allowance",
    "begin",
    "excluded",
    "exhausted",
    "failed",
    "next_step",
    "out_of_time",
    "passed_over",
    "refused",
    "retry_delay_s",
    "verdict_of",
    "waited",
]

USEFUL_TRY_S = 0.1
"""A target that would get less time than this, while another could still have it, is passed over."""
BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 10.0
PERMIT_POLL_S = (0.05, 1.0)
"""A waiter asks again after the first, doubling up to the second; the caller spreads what is longer than the first."""


class StopReason(StrEnum):
    """Why a call ends without an answer."""

    EXHAUSTED = "exhausted"
    ATTEMPTS = "attempts"
    DEADLINE = "deadline"
    FORBIDDEN = "forbidden"
    PERMIT_WAIT = "permit_wait"


class WaitFor(StrEnum):
    """What a call waits for: a full target's permit, its own backoff, or a cooling target's recovery."""

    PERMIT = "permit"
    BACKOFF = "backoff"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class PassOver:
    """Leave the route's next target out, without a call."""

    skip: Skip


@dataclass(frozen=True, slots=True)
class Admit:
    """Ask the registry for leave to call this target; its answer goes to ``admitted`` or ``refused``."""

    position: int
    target: Target


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, then tell ``waited``."""

    why: WaitFor
    delay_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """The call ends without an answer."""

    reason: StopReason


Step = PassOver | Admit | Wait | Stop


@dataclass(frozen=True, slots=True)
class Allowance:
    """The time that one try gets until its first content (or its whole answer, when it is not streamed).

    Attributes:
        seconds: Zero or less: too late to start.
        kind: What the try fails of when the time is up: the target's own timer, or the caller's deadline.
    """

    seconds: float
    kind: FailureKind


@dataclass(frozen=True, slots=True)
class CallState:
    """Where a call stands. Positions count along the chain; policy fallbacks come after its last target.

    Attributes:
        deadline_at: Monotonic; waits for an ingestion permit move it.
        route: Positions still to be considered, in order; the first is next.
        skipped: Targets left out since the last try.
        tries_here: Failed tries of the route's first target.
        full_since: Since when the call waits for the first target's permit.
        window_above: An input overflowed a window of this many tokens; only larger ones are of use.
        rejected: Targets that turned this very input down in this call.
        retryable: Somebody was busy, so that the call may succeed later.
        recovers_at: Monotonic; the soonest recovery of a target that this call found cooling.
        registry_now: The registry's clock when it last spoke.
    """

    chain: Chain
    needs: Needs
    context: CallContext
    deadline_at: float
    route: tuple[int, ...]
    tries: tuple[TryRecord, ...] = ()
    skipped: tuple[Skip, ...] = ()
    tries_here: int = 0
    pending: Wait | None = None
    full_since: float | None = None
    polls: int = 0
    window_above: int | None = None
    rejected: frozenset[str] = frozenset()
    stop: StopReason | None = None
    retryable: bool = False
    recovers_at: float | None = None
    registry_now: float | None = None

    @property
    def policy(self) -> CallPolicy:
        return self.chain.policy

    @property
    def head(self) -> Target:
        """The target that is next."""
        return self.at(self.route[0])

    def at(self, position: int) -> Target:
        ordinary = len(self.chain.targets)
        if position < ordinary:
            return self.chain.targets[position]
        return self.chain.content_policy_fallbacks[position - ordinary]


def begin(chain: Chain, needs: Needs, context: CallContext, now: float) -> CallState:
    """A call's first state: every target of the chain is still to come."""
    return CallState(
        chain=chain,
        needs=needs,
        context=context,
        deadline_at=now + chain.policy.deadline_s,
        route=tuple(range(len(chain.targets))),
        rejected=context.rejected_by,
    )


# --- deciding -------------------------------------------------------------------------------------------------------


def next_step(state: CallState, now: float) -> Step:
    """What the call does now."""
    if state.stop is not None:
        return Stop(state.stop)
    if state.pending is not None:
        return state.pending
    if not state.route:
        return _wait_for_recovery(state, now) or Stop(_reason_to_end(state, now))
    if len(state.tries) >= state.policy.max_attempts:
        return Stop(StopReason.ATTEMPTS)
    if now >= state.deadline_at:
        return Stop(StopReason.DEADLINE)
    position = state.route[0]
    skip = excluded(state, position)
    if skip is None and not _is_last(state) and _time_left_s(state, now) < USEFUL_TRY_S:
        skip = Skip(state.head.key, SkipReason.DEADLINE if state.full_since is None else SkipReason.FULL)
    return PassOver(skip) if skip is not None else Admit(position, state.head)


def excluded(state: CallState, position: int) -> Skip | None:
    """Why this call can't use a target at all, whatever state it is in; None when it can."""
    target = state.at(position)
    if state.context.primary_only and position > 0:
        return Skip(target.key, SkipReason.NOT_ALLOWED, detail="primary only")
    if state.context.allowed is not None and target.preset not in state.context.allowed:
        return Skip(target.key, SkipReason.NOT_ALLOWED, detail="not among the collection's targets")
    if target.key in state.rejected:
        return Skip(target.key, SkipReason.REJECTED)
    unmet = state.needs.unmet_by(target) or _too_small(target, state.window_above)
    if unmet is not None:
        return Skip(target.key, SkipReason.CONTRACT, detail=unmet)
    if not state.context.within_budget and not target.is_free:
        return Skip(target.key, SkipReason.OVER_BUDGET)
    return None


def allowance(state: CallState, now: float, timer_s: float, timer_kind: FailureKind) -> Allowance:
    """The time for a try that starts now, from the target's own timer and what the deadline and reserve leave."""
    left_s = _time_left_s(state, now)
    if left_s < timer_s:
        return Allowance(left_s, FailureKind.DEADLINE)
    return Allowance(timer_s, timer_kind)


def retry_delay_s(
    state: CallState, permit: Permit, kind: FailureKind, retry_after_s: float | None, spread: float, now: float
) -> float | None:
    """The wait before the same target's next try; None when the call goes on to the next target.

    Exponential with full jitter (``spread`` is uniform in [0, 1)); the latest Retry-After replaces it. A probe is
    never repeated, and a wait that the deadline does not leave room for is not begun.
    """
    target, rule = state.head, state.head.rules[kind]
    repeatable = rule.busy and rule.cooldown is Cooldown.BACKOFF and rule.action in (Action.NEXT, Action.PARTIAL)
    if permit.probe or not repeatable or state.tries_here >= target.same_target_retries:
        return None
    if len(state.tries) + 1 >= state.policy.max_attempts:
        return None
    ceiling_s = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2**state.tries_here)
    delay_s = retry_after_s if retry_after_s else spread * ceiling_s
    return delay_s if delay_s < _time_left_s(state, now) else None


def verdict_of(rule: KindRule, retried: bool) -> Verdict:
    """What a failure tells the registry: a target that this call tries again at once is not judged yet."""
    return Verdict.NEUTRAL if retried or rule.cooldown is Cooldown.NONE else Verdict.FAILURE


# --- what came of it ------------------------------------------------------------------------------------------------


def passed_over(state: CallState, skip: Skip) -> CallState:
    """The route's first target was left out."""
    rejects = skip.reason in (SkipReason.CONTRACT, SkipReason.REJECTED, SkipReason.NOT_ALLOWED)
    onward = replace(state, skipped=(*state.skipped, skip), retryable=state.retryable or not rejects)
    return _next_target(onward)


def refused(state: CallState, refusal: Refused, now: float) -> CallState:
    """The registry gave no leave: go on to the next target, or wait where the target is merely full."""
    target = state.head
    if refusal.reason is not SkipReason.FULL:
        skip = Skip(target.key, refusal.reason, until=refusal.until, detail=refusal.kind)
        wait_s = refusal.wait_s
        if wait_s is not None and refusal.reason is SkipReason.PROBING:
            # Its lease says when another may probe; how it went is known much sooner.
            wait_s = min(wait_s, PERMIT_POLL_S[1])
        return passed_over(_recovers(state, wait_s, now), skip)
    since = now if state.full_since is None else state.full_since
    policy = state.policy
    patient = (target.on_full or ("next" if policy.interactive else "wait")) == "wait"
    left_s = since + (policy.permit_wait_max_s if patient else policy.permit_wait_s) - now
    if policy.interactive:
        left_s = min(left_s, state.deadline_at - now)
    if left_s > 0:
        delay_s = min(PERMIT_POLL_S[0] * 2 ** min(state.polls, 10), PERMIT_POLL_S[1], left_s)
        return replace(state, full_since=since, polls=state.polls + 1, pending=Wait(WaitFor.PERMIT, delay_s))
    skip = Skip(target.key, SkipReason.FULL)
    if patient and not policy.interactive:
        return replace(passed_over(state, skip), stop=StopReason.PERMIT_WAIT)
    return passed_over(state, skip)


def waited(state: CallState, wait: Wait, slept_s: float) -> CallState:
    """A wait is over. Ingestion's waits for a permit are not on the call's deadline."""
    if wait.why is WaitFor.RECOVERY:
        everyone = tuple(range(len(state.chain.targets)))
        return replace(_next_target(state), route=everyone, recovers_at=None, skipped=())
    off_the_clock = wait.why is WaitFor.PERMIT and not state.policy.interactive
    return replace(state, pending=None, deadline_at=state.deadline_at + (slept_s if off_the_clock else 0.0))


def admitted(state: CallState, permit: Permit) -> CallState:
    """The registry gave leave; the try that follows takes over the list of skips."""
    return replace(state, skipped=(), full_since=None, polls=0, registry_now=permit.admitted_at)


def failed(
    state: CallState, record: TryRecord, kind: FailureKind, retry_s: float | None, wait_s: float | None, now: float
) -> CallState:
    """The route's first target was called and failed; the kind alone decides where the call goes.

    Args:
        state: As it was when the target was called.
        record: The try, as it ended.
        kind: How it failed.
        retry_s: From ``retry_delay_s``: the wait before the same target's next try.
        wait_s: The cooldown that the registry now holds for the target, in seconds from now.
        now: Monotonic.
    """
    target, rule = state.head, state.head.rules[kind]
    state = replace(state, tries=(*state.tries, record))
    if retry_s is not None:
        return replace(state, tries_here=state.tries_here + 1, retryable=True, pending=Wait(WaitFor.BACKOFF, retry_s))
    if rule.busy or kind is FailureKind.DEADLINE:
        state = _recovers(replace(state, retryable=True), wait_s, now)
    else:
        state = replace(state, rejected=state.rejected | {target.key})
    if rule.action is Action.STOP:
        return replace(state, stop=StopReason.FORBIDDEN)
    if rule.action is Action.LARGER and target.context_window is not None:
        state = replace(state, window_above=target.context_window)
    if rule.action is Action.POLICY:
        return _after_policy(state)
    return _next_target(state)


def out_of_time(state: CallState) -> CallState:
    """The deadline is over: nobody that is still on the route will be called."""
    skips = []
    for position in state.route:
        waited_for = position == state.route[0] and state.full_since is not None
        reason = SkipReason.FULL if waited_for else SkipReason.DEADLINE
        skips.append(excluded(state, position) or Skip(state.at(position).key, reason))
    return replace(state, route=(), skipped=(*state.skipped, *skips))


def exhausted(state: CallState) -> ChainExhausted:
    """The error of a call that ended without an answer."""
    latest: dict[str, float | None] = {}
    for record in state.tries:
        latest |= {skip.target: skip.until for skip in record.skipped}
        latest[record.target] = record.cooldown_until
    latest |= {skip.target: skip.until for skip in state.skipped}
    times = [until for until in latest.values() if until is not None]
    unasked = state.stop is not StopReason.FORBIDDEN and any(excluded(state, p) is None for p in state.route)
    if unasked and state.registry_now is not None:
        times.append(state.registry_now)
    return ChainExhausted(
        role=state.chain.role,
        tries=state.tries,
        skipped=state.skipped,
        retry_at=min(times, default=None),
        retryable=state.retryable or unasked,
    )


# --- details --------------------------------------------------------------------------------------------------------


def _next_target(state: CallState) -> CallState:
    return replace(state, route=state.route[1:], tries_here=0, full_since=None, polls=0, pending=None)


def _after_policy(state: CallState) -> CallState:
    """The provider's content policy stopped the answer: on to the targets named for that, where there are any."""
    ordinary = len(state.chain.targets)
    named = tuple(range(ordinary, ordinary + len(state.chain.content_policy_fallbacks)))
    if named and state.route[0] < ordinary:
        return replace(_next_target(state), route=named)
    if state.policy.interactive and not named:
        return replace(state, stop=StopReason.FORBIDDEN)
    return _next_target(state)


def _recovers(state: CallState, wait_s: float | None, now: float) -> CallState:
    if wait_s is None:
        return state
    at = now + wait_s
    return replace(state, recovers_at=at if state.recovers_at is None else min(at, state.recovers_at))


def _wait_for_recovery(state: CallState, now: float) -> Wait | None:
    at = state.recovers_at
    if not state.policy.wait_for_recovery or at is None or at >= state.deadline_at:
        return None
    if len(state.tries) >= state.policy.max_attempts:
        return None
    return Wait(WaitFor.RECOVERY, max(0.0, at - now))


def _reason_to_end(state: CallState, now: float) -> StopReason:
    """Nobody is left; was it the deadline that cut the last try off?"""
    cut_off = bool(state.tries) and state.tries[-1].kind == FailureKind.DEADLINE
    # The timer that cut it off may be early by a rounding error.
    return StopReason.DEADLINE if cut_off and now >= state.deadline_at - 0.001 else StopReason.EXHAUSTED


def _is_last(state: CallState) -> bool:
    """Nobody comes after the route's first target, so that it may use the reserve."""
    if len(state.tries) + 1 >= state.policy.max_attempts:
        return True
    return all(excluded(state, position) is not None for position in state.route[1:])


def _time_left_s(state: CallState, now: float) -> float:
    """What the deadline leaves for the route's first target; the last one gets the reserve too.

    The reserve never takes more than half of a short deadline, or the first target would get no try at all.
    """
    left_s = state.deadline_at - now
    if _is_last(state):
        return left_s
    return left_s - min(state.policy.reserve_s, state.policy.deadline_s / 2)


def _too_small(target: Target, window_above: int | None) -> str | None:
    if window_above is None or target.context_window is None or target.context_window > window_above:
        return None
    return f"its window of {target.context_window} tokens is not above the {window_above} that overflowed"
