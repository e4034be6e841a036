"""Acting out one call: asks the registry, begins and ends attempts, and hands each try to whoever makes it.

Whatever happens in between (an answer, a failure, a cancellation, a bug of ours), a permit goes back exactly once and
an attempt that was begun is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar

from pipeline.domain.call import Answer, Outcome, Skip, TryRecord, Usage
from pipeline.domain.errors import DeadlineExceeded, Draining, PartialStreamError, PermitWaitExceeded, UpstreamFailure
from pipeline.failover.chain import (
    PERMIT_POLL_S,
    Admit,
    CallState,
    PassOver,
    Stop,
    StopReason,
    Wait,
    WaitFor,
    admitted,
    allowance,
    begin,
    exhausted,
    failed,
    next_step,
    out_of_time,
    passed_over,
    refused,
    retry_delay_s,
    verdict_of,
    waited,
)
from pipeline.failover.kinds import FailureKind
from pipeline.failover.lease import Renewal, unbroken
from pipeline.failover.records import AttemptSink, AttemptStart, CallContext, Observer, Switch
from pipeline.failover.registry import Admission, Admitted, CooldownRegistry, Permit, Report, ReportResult, Verdict
from pipeline.failover.stream import Gathering, StreamLimits, Watchdog, estimated_usage
from pipeline.failover.target import Chain, Needs, Target

__all__ = ["Clock", "Means", "Trial", "Walk"]

T = TypeVar("T")


class Clock(Protocol):
    """Time that only goes forward."""

    def monotonic(self) -> float: ...

    async def sleep(self, delay_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Means:
    """What a call acts with; see ``Caller``."""

    registry: CooldownRegistry
    sink: AttemptSink
    observer: Observer
    clock: Clock
    rng: Callable[[], float]
    draining: Callable[[], bool]


@dataclass(slots=True)
class Trial:
    """One permitted try, while it runs."""

    target: Target
    position: int
    permit: Permit
    attempt_id: int
    started_at: float
    seconds: float
    timeout_kind: FailureKind
    renewal: Renewal
    skipped: tuple[Skip, ...] = ()
    usage: Usage | None = None
    ttft_s: float | None = None
    gathering: Gathering | None = None
    held_up: bool = False


@dataclass(slots=True)
class Walk:
    """One call's way down its chain: the machine's state, and what its steps do to the world.

    Attributes:
        streamed: The upstream streams, so that first content and idleness are timed.
        relayed: Content reaches the caller as it comes, so that a failure after the first of it can't be hidden.
        left: The failed try that the call is moving away from.
    """

    means: Means
    chain: Chain
    needs: Needs
    context: CallContext
    input_digest: str
    streamed: bool
    relayed: bool = False
    state: CallState = field(init=False)
    left: TryRecord | None = None

    def __post_init__(self) -> None:
        self.state = begin(self.chain, self.needs, self.context, self.now())

    def now(self) -> float:
        return self.means.clock.monotonic()

    # --- before a try ---

    async def next_trial(self) -> Trial:
        """Walk on to the next target that gives leave, and begin an attempt there.

        Raises:
            ChainExhausted: Nobody is left.
            DeadlineExceeded: The deadline is over.
            PermitWaitExceeded: A target stayed full.
            Draining: The process is about to end.
        """
        while True:
            if self.means.draining():
                raise Draining(self.chain.role)
            step = next_step(self.state, self.now())
            if isinstance(step, PassOver):
                self.state = passed_over(self.state, step.skip)
            elif isinstance(step, Wait):
                await self._sleep(step)
            elif isinstance(step, Stop):
                await self._end(step.reason)
            else:
                admission = await self._admit(step.target)
                if isinstance(admission, Admitted):
                    return await self._begin(step, admission.permit)
                self.state = refused(self.state, admission, self.now())

    async def _sleep(self, wait: Wait) -> None:
        delay_s = wait.delay_s
        if wait.why is WaitFor.PERMIT:
            delay_s = max(delay_s * (0.5 + 0.5 * self.means.rng()), min(delay_s, PERMIT_POLL_S[0]))
        since = self.now()
        await self.means.clock.sleep(delay_s)
        self.state = waited(self.state, wait, self.now() - since)

    async def _admit(self, target: Target) -> Admission:
        """Ask for leave; when the caller is cancelled meanwhile, a permit that was granted goes back."""
        admission, cancelled = await unbroken(self.means.registry.admit(target))
        if cancelled:
            if isinstance(admission, Admitted):
                await unbroken(self.means.registry.report(target, admission.permit, Report(Verdict.NEUTRAL)))
            raise asyncio.CancelledError
        return admission

    async def _begin(self, step: Admit, permit: Permit) -> Trial:
        target, position = step.target, step.position
        start = AttemptStart(self.context, self.chain.role, target.key, target.preset, position, self.state.skipped)
        try:
            attempt_id, cancelled = await unbroken(self.means.sink.begin(start))
        except BaseException:
            await unbroken(self.means.registry.report(target, permit, Report(Verdict.NEUTRAL)))
            raise
        if self.left is not None and self.left.target != target.key:
            self._switched(target.key)
        times = target.times
        timer = (
            (times.ttft_timeout_s, FailureKind.TTFT_TIMEOUT)
            if self.streamed
            else (times.timeout_s, FailureKind.TIMEOUT)
        )
        now = self.now()
        allowed = allowance(self.state, now, *timer)
        trial = Trial(
            target=target,
            position=position,
            permit=permit,
            attempt_id=attempt_id,
            started_at=now,
            seconds=allowed.seconds,
            timeout_kind=allowed.kind,
            renewal=Renewal(self.means.registry, permit),
            skipped=self.state.skipped,
        )
        self.state = admitted(self.state, permit)
        if cancelled:
            await self.abandon(trial, asyncio.CancelledError())
            raise asyncio.CancelledError
        return trial

    # --- during a try ---

    def stream_limits(self, trial: Trial, *, may_repeat: bool) -> StreamLimits:
        policy = self.chain.policy
        return StreamLimits(
            first_content_s=_still_useful(trial),
            first_content_kind=trial.timeout_kind,
            idle_s=trial.target.times.idle_timeout_s,
            max_output_bytes=policy.max_output_bytes,
            allow_empty=policy.allow_empty,
            may_repeat=may_repeat,
        )

    async def first_content(self, trial: Trial) -> None:
        """A stream's first content has come; a probe closes its target's breaker with that."""
        trial.ttft_s = self.now() - trial.started_at
        if trial.permit.probe:
            self._tell(trial, await self.means.registry.first_content(trial.target, trial.permit))

    async def timed(self, trial: Trial, answer: Coroutine[Any, Any, T]) -> T:
        """Await an answer that is not streamed, for as long as the try may take."""
        try:
            seconds = _still_useful(trial)
        except UpstreamFailure:
            answer.close()
            raise
        watchdog = Watchdog(seconds, trial.timeout_kind, awaited="answer")
        try:
            with watchdog:
                value = await answer
        except UpstreamFailure:
            trial.held_up = watchdog.held_up
            raise
        trial.ttft_s = self.now() - trial.started_at
        return value

    # --- after a try ---

    async def succeed(self, trial: Trial, value: T) -> Answer[T]:
        """The try answered: report and record it."""
        (record, _), cancelled = await unbroken(self._settle(trial, Report(Verdict.SUCCESS), Outcome.OK))
        if cancelled:
            raise asyncio.CancelledError
        tries = (*self.state.tries, record)
        return Answer(
            value=value,
            target=trial.target.key,
            position=trial.position,
            degraded=trial.position > 0,
            tries=tries,
            usage=_summed(tries),
        )

    async def fail(self, trial: Trial, failure: UpstreamFailure) -> None:
        """The try failed: report and record it, and move on where the kind says so.

        Raises:
            PartialStreamError: Content had already reached the caller.
        """
        kind = _kind_of(failure)
        content_is_out = self.relayed and trial.gathering is not None and trial.gathering.pieces > 0
        retry_s = None
        if not content_is_out:
            spread, now = self.means.rng(), self.now()
            retry_s = retry_delay_s(self.state, trial.permit, kind, failure.retry_after_s, spread, now)
        verdict = verdict_of(trial.target.rules[kind], retried=retry_s is not None)
        if trial.held_up or (trial.gathering is not None and trial.gathering.held_up):
            # It was this process that stood still: a fleet must not avoid a target for that.
            verdict = Verdict.NEUTRAL
        report = Report(verdict, kind, failure.retry_after_s, self.input_digest or None)
        settling = self._settle(trial, report, Outcome.FAILED, kind, failure.status, failure.message)
        (record, result), cancelled = await unbroken(settling)
        self.state = failed(self.state, record, kind, retry_s, result.wait_s, self.now())
        self.left = record
        if cancelled:
            raise asyncio.CancelledError
        if content_is_out:
            raise PartialStreamError(trial.target.key, kind, failure.message)

    async def abandon(self, trial: Trial, error: BaseException) -> None:
        """The try ended through its caller (cancelled) or a bug of ours (internal): its target is not to blame."""
        outcome, kind = Outcome.CANCELLED, FailureKind.CANCELLED
        if isinstance(error, Exception):
            outcome, kind = Outcome.FAILED, FailureKind.INTERNAL
        report = Report(Verdict.NEUTRAL, kind)
        await unbroken(self._settle(trial, report, outcome, kind, message=type(error).__name__))

    async def _settle(
        self,
        trial: Trial,
        report: Report,
        outcome: Outcome,
        kind: FailureKind | None = None,
        status: int | None = None,
        message: str | None = None,
    ) -> tuple[TryRecord, ReportResult]:
        """Give the permit back with what the try says about its target, and end the attempt."""
        duration_s = self.now() - trial.started_at
        await trial.renewal.stop()
        result = await self.means.registry.report(trial.target, trial.permit, report)
        record = TryRecord(
            target=trial.target.key,
            position=trial.position,
            outcome=outcome,
            kind=kind,
            status=status,
            message=message,
            ttft_s=trial.ttft_s,
            duration_s=duration_s,
            usage=self._usage_of(trial),
            cooldown_until=result.until,
            skipped=trial.skipped,
        )
        await self.means.sink.end(trial.attempt_id, record)
        self.means.observer.tried(self.context, self.chain.role, record)
        self._tell(trial, result, kind)
        return record, result

    def _usage_of(self, trial: Trial) -> Usage | None:
        """What the upstream said it used; for a stream that broke off, what it must have used."""
        gathering, price = trial.gathering, trial.target.price
        if trial.usage is not None or gathering is None:
            return trial.usage
        if gathering.finish is not None and gathering.finish.usage is not None:
            return gathering.finish.usage
        if gathering.pieces == 0:
            return None
        return estimated_usage(
            gathering, self.needs.tokens_in, price.input_per_mtok or 0.0, price.output_per_mtok or 0.0
        )

    def _tell(self, trial: Trial, result: ReportResult, kind: FailureKind | None = None) -> None:
        if result.opened and result.until is not None and kind is not None:
            self.means.observer.cooled(trial.target.key, kind, result.until)
        if result.closed:
            self.means.observer.recovered(trial.target.key)

    def _switched(self, to_target: str | None) -> None:
        if self.left is not None:
            reason = self.left.kind or FailureKind.UNKNOWN
            switch = Switch(self.context, self.chain.role, self.left.target, to_target, reason)
            self.means.observer.switched(switch)

    async def _end(self, reason: StopReason) -> NoReturn:
        """The call ends without an answer."""
        role, policy = self.chain.role, self.chain.policy
        self._switched(None)
        if reason is StopReason.DEADLINE:
            self.state = out_of_time(self.state)
        tries, skipped = self.state.tries, self.state.skipped
        only_waited = reason is StopReason.PERMIT_WAIT and not tries and len(skipped) == 1
        if not only_waited:
            await unbroken(self.means.sink.exhausted(self.context, role, len(self.chain.targets), skipped))
        if reason is StopReason.PERMIT_WAIT:
            raise PermitWaitExceeded(role, skipped[-1].target, policy.permit_wait_max_s)
        if reason is StopReason.DEADLINE:
            raise DeadlineExceeded(role, policy.deadline_s, tries, skipped)
        raise exhausted(self.state)


def _still_useful(trial: Trial) -> float:
    if trial.seconds <= 0:
        raise UpstreamFailure(FailureKind.DEADLINE, "the deadline was over before the call began")
    return trial.seconds


def _kind_of(failure: UpstreamFailure) -> FailureKind:
    """The failure's kind; what no provider may say (or nobody knows) is ``unknown``."""
    try:
        kind = FailureKind(failure.kind)
    except ValueError:
        return FailureKind.UNKNOWN
    return FailureKind.UNKNOWN if kind in (FailureKind.CANCELLED, FailureKind.INTERNAL) else kind


def _summed(tries: Iterable[TryRecord]) -> Usage:
    used = [record.usage for record in tries if record.usage is not None]
    return Usage(
        tokens_in=sum(usage.tokens_in for usage in used),
        tokens_out=sum(usage.tokens_out for usage in used),
        cost_usd=sum(usage.cost_usd for usage in used),
    )
