"""One call, acted out: ``chain.py`` decides, this asks the registry, calls the upstream and keeps the records.

Whatever happens in between (an answer, a failure, a cancellation, a bug of ours), a permit goes back exactly once and
an attempt that was begun is ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

from pipeline.domain.call import Answer, Outcome, Skip, SkipReason, TryRecord, Usage
from pipeline.domain.errors import DeadlineExceeded, PartialStreamError, PermitWaitExceeded, UpstreamFailure
from pipeline.failover.chain import (
    PERMIT_POLL_S,
    Admit,
    Budget,
    CallState,
    PassOver,
    Stop,
    StopReason,
    Wait,
    WaitFor,
    admitted,
    allowance,
    begin,
    excluded,
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
from pipeline.failover.kinds import STANDARD_RULES, FailureKind
from pipeline.failover.records import AttemptSink, AttemptStart, CallContext, Observer, Switch
from pipeline.failover.registry import (
    PERMIT_RENEW_S,
    Admission,
    Admitted,
    BreakerState,
    CooldownRegistry,
    Permit,
    Refused,
    Report,
    ReportResult,
    TargetStatus,
    Verdict,
)
from pipeline.failover.stream import Gathering, StreamLimits, accept, collect, estimated_usage, relay
from pipeline.failover.target import Chain, Needs, Target
from pipeline.failover.upstream import ChatRequest, Delta, EmbedRequest, Reply, Upstream, Vectors

__all__ = ["AnswerStream", "Caller", "Clock", "rejecting_targets"]

T = TypeVar("T")


class Clock(Protocol):
    """Time that only goes forward."""

    def monotonic(self) -> float: ...

    async def sleep(self, delay_s: float) -> None: ...


def _always(_: Target) -> bool:
    return True


def rejecting_targets(tries: Iterable[TryRecord]) -> frozenset[str]:
    """The targets whose answer was that *this input* won't do: what a unit remembers as ``rejected_by``."""
    failures = ((record.target, record.kind) for record in tries if record.outcome is Outcome.FAILED and record.kind)
    harmless = (FailureKind.DEADLINE, FailureKind.CANCELLED, FailureKind.INTERNAL)
    return frozenset(
        target
        for target, kind in failures
        if FailureKind(kind) not in harmless and not STANDARD_RULES[FailureKind(kind)].busy
    )


class Caller:
    """Makes calls with failover. One instance serves all roles of a process.

    Args:
        registry: Who is busy.
        upstream: Makes one call to one target.
        sink: Makes attempts durable.
        observer: Counts and logs.
        clock: The event loop's time.
        rng: Uniform in [0, 1), for jitter.
    """

    def __init__(
        self,
        registry: CooldownRegistry,
        upstream: Upstream,
        sink: AttemptSink,
        observer: Observer,
        clock: Clock,
        rng: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._upstream = upstream
        self._sink = sink
        self._observer = observer
        self._clock = clock
        self._rng = rng

    async def chat(
        self,
        chain: Chain,
        request: ChatRequest,
        context: CallContext,
        *,
        check: Callable[[Reply], str | None] | None = None,
        budget: Budget = _always,
    ) -> Answer[Reply]:
        """A whole chat answer, from the first target that gives a good one.

        Args:
            chain: Targets in priority order.
            request: What is asked; with ``stream`` the first content and idleness are timed, else the whole call.
            context: Whom the call is for.
            check: Says why an answer is none (not the schema); that target then failed with ``invalid_output``.
            budget: Whether the collection can pay for a target.

        Raises:
            ChainExhausted: Nobody answered.
            DeadlineExceeded: The call's own deadline was over first.
            PermitWaitExceeded: A target stayed full for ``permit_wait_max_s``.
        """

        async def act(trial: _Trial) -> Reply:
            if request.stream:
                trial.gathering = Gathering(chain.policy.max_output_bytes)
                reply = await collect(
                    self._upstream.stream(trial.target, request),
                    call.stream_limits(trial),
                    trial.gathering,
                    partial(call.first_content, trial),
                )
            else:
                reply = await call.timed(trial, self._upstream.chat(trial.target, request))
                trial.usage = reply.usage
                accept(reply, chain.policy.max_output_bytes, chain.policy.allow_empty)
            trial.usage = reply.usage
            return _checked(reply, check)

        call = _Call(self, chain, request.needs, context, budget, request.input_digest, streamed=request.stream)
        return await self._answer(call, act)

    async def embed(
        self,
        chain: Chain,
        request: EmbedRequest,
        context: CallContext,
        *,
        check: Callable[[Vectors], str | None] | None = None,
        budget: Budget = _always,
    ) -> Answer[Vectors]:
        """One vector a text, of ``request.dim`` finite numbers that are not all zero.

        Raises:
            ChainExhausted: Nobody answered.
            DeadlineExceeded: The call's own deadline was over first.
            PermitWaitExceeded: A target stayed full for ``permit_wait_max_s``.
        """

        async def act(trial: _Trial) -> Vectors:
            vectors = await call.timed(trial, self._upstream.embed(trial.target, request))
            trial.usage = vectors.usage
            return _checked(_checked(vectors, lambda answer: _vectors_are_off(answer, request)), check)

        call = _Call(self, chain, request.needs, context, budget, request.input_digest, streamed=False)
        return await self._answer(call, act)

    def stream(
        self, chain: Chain, request: ChatRequest, context: CallContext, *, budget: Budget = _always
    ) -> AnswerStream:
        """A chat answer handed on as it comes: ``async with`` it and iterate over its deltas.

        Targets are switched until content has reached the caller; after that a failure raises ``PartialStreamError``.
        """
        call = _Call(self, chain, request.needs, context, budget, request.input_digest, streamed=True, relayed=True)
        return AnswerStream(call, request)

    async def all_closed_until(self, chain: Chain, context: CallContext | None = None) -> Refused | None:
        """Whether nobody of a chain can be called now, so that work need not be claimed for it.

        Returns:
            None when a target may be called (full counts as such); else the soonest recovery, or ``disabled``
            without a time.
        """
        state = begin(chain, Needs(frozenset()), context or CallContext(""), _always, self._clock.monotonic())
        usable = [state.at(position) for position in state.route if excluded(state, position) is None]
        statuses = await self._registry.statuses(usable) if usable else []
        if not statuses or any(_is_open_to_calls(status) for status in statuses):
            return None
        waiting = [status for status in statuses if status.until is not None]
        soonest = min(waiting, key=lambda status: status.until or 0.0, default=None)
        if soonest is None:
            return Refused(SkipReason.DISABLED)
        reason = SkipReason.PROBING if soonest.probing else SkipReason.COOLING
        return Refused(reason, soonest.until, soonest.wait_s, soonest.kind)

    async def _answer(self, call: _Call, act: Callable[[_Trial], Awaitable[T]]) -> Answer[T]:
        while True:
            trial = await call.next_trial()
            try:
                value = await act(trial)
            except UpstreamFailure as failure:
                await call.fail(trial, failure)
            except BaseException as error:
                await call.abandon(trial, error)
                raise
            else:
                return await call.succeed(trial, value)


class AnswerStream:
    """A streamed answer. ``answer`` holds the whole of it, and where it came from, once the stream has ended."""

    def __init__(self, call: _Call, request: ChatRequest) -> None:
        self.answer: Answer[Reply] | None = None
        self._call = call
        self._request = request
        self._deltas = self._run()

    async def __aenter__(self) -> AnswerStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncGenerator[Delta, None]:
        return self._deltas

    async def aclose(self) -> None:
        """Stop the call: the upstream's socket is closed, and the permit given back."""
        await self._deltas.aclose()

    async def _run(self) -> AsyncGenerator[Delta, None]:
        call, policy = self._call, self._call.chain.policy
        while True:
            trial = await call.next_trial()
            trial.gathering = gathering = Gathering(policy.max_output_bytes)
            try:
                events = call.upstream.stream(trial.target, self._request)
                deltas = relay(events, call.stream_limits(trial), gathering, partial(call.first_content, trial))
                async with aclosing(deltas):
                    async for delta in deltas:
                        yield delta
                reply = gathering.reply()
            except UpstreamFailure as failure:
                await call.fail(trial, failure)
            except BaseException as error:
                await call.abandon(trial, error)
                raise
            else:
                trial.usage = reply.usage
                self.answer = await call.succeed(trial, reply)
                return


@dataclass(slots=True)
class _Trial:
    """One permitted try, while it runs."""

    target: Target
    position: int
    permit: Permit
    attempt_id: int
    started_at: float
    seconds: float
    timeout_kind: FailureKind
    renewal: _Renewal
    skipped: tuple[Skip, ...] = ()
    usage: Usage | None = None
    ttft_s: float | None = None
    gathering: Gathering | None = None


@dataclass(slots=True)
class _Call:
    """One call: the machine's state, and what its steps do to the world."""

    caller: Caller
    chain: Chain
    needs: Needs
    context: CallContext
    budget: Budget
    input_digest: str
    streamed: bool
    relayed: bool = False
    state: CallState = field(init=False)
    left: TryRecord | None = None
    """The failed try that the call is moving away from."""

    def __post_init__(self) -> None:
        self.state = begin(self.chain, self.needs, self.context, self.budget, self.now())

    @property
    def upstream(self) -> Upstream:
        return self.caller._upstream

    def now(self) -> float:
        return self.caller._clock.monotonic()

    # --- before a try ---

    async def next_trial(self) -> _Trial:
        """Walk on to the next target that gives leave, and begin an attempt there.

        Raises:
            ChainExhausted: Nobody is left.
            DeadlineExceeded: The deadline is over.
            PermitWaitExceeded: A target stayed full.
        """
        while True:
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
            delay_s = max(delay_s * (0.5 + 0.5 * self.caller._rng()), min(delay_s, PERMIT_POLL_S[0]))
        since = self.now()
        await self.caller._clock.sleep(delay_s)
        self.state = waited(self.state, wait, self.now() - since)

    async def _admit(self, target: Target) -> Admission:
        """Ask for leave; when the caller is cancelled meanwhile, a permit that was granted goes back."""
        admission, cancelled = await _unbroken(self.caller._registry.admit(target))
        if cancelled:
            if isinstance(admission, Admitted):
                await _unbroken(self.caller._registry.report(target, admission.permit, Report(Verdict.NEUTRAL)))
            raise asyncio.CancelledError
        return admission

    async def _begin(self, step: Admit, permit: Permit) -> _Trial:
        target, position = step.target, step.position
        start = AttemptStart(self.context, self.chain.role, target.key, target.preset, position, self.state.skipped)
        try:
            attempt_id, cancelled = await _unbroken(self.caller._sink.begin(start))
        except BaseException:
            await _unbroken(self.caller._registry.report(target, permit, Report(Verdict.NEUTRAL)))
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
        trial = _Trial(
            target=target,
            position=position,
            permit=permit,
            attempt_id=attempt_id,
            started_at=now,
            seconds=allowed.seconds,
            timeout_kind=allowed.kind,
            renewal=_Renewal(self.caller._registry, permit),
            skipped=self.state.skipped,
        )
        self.state = admitted(self.state, permit)
        if cancelled:
            await self.abandon(trial, asyncio.CancelledError())
            raise asyncio.CancelledError
        return trial

    # --- during a try ---

    def stream_limits(self, trial: _Trial) -> StreamLimits:
        policy = self.chain.policy
        return StreamLimits(
            first_content_s=_still_useful(trial),
            first_content_kind=trial.timeout_kind,
            idle_s=trial.target.times.idle_timeout_s,
            max_output_bytes=policy.max_output_bytes,
            allow_empty=policy.allow_empty,
        )

    async def first_content(self, trial: _Trial) -> None:
        """A stream's first content has come; a probe closes its target's breaker with that."""
        trial.ttft_s = self.now() - trial.started_at
        if trial.permit.probe:
            self._tell(trial, await self.caller._registry.first_content(trial.target, trial.permit))

    async def timed(self, trial: _Trial, answer: Coroutine[Any, Any, T]) -> T:
        """Await an answer that is not streamed, for as long as the try may take."""
        try:
            seconds = _still_useful(trial)
        except UpstreamFailure:
            answer.close()
            raise
        try:
            async with asyncio.timeout(seconds) as timer:
                value = await answer
        except TimeoutError:
            if not timer.expired():
                raise
            raise UpstreamFailure(trial.timeout_kind, f"no answer within {seconds:.3g} s") from None
        trial.ttft_s = self.now() - trial.started_at
        return value

    # --- after a try ---

    async def succeed(self, trial: _Trial, value: T) -> Answer[T]:
        """The try answered: report and record it."""
        (record, _), cancelled = await _unbroken(self._settle(trial, Report(Verdict.SUCCESS), Outcome.OK))
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

    async def fail(self, trial: _Trial, failure: UpstreamFailure) -> None:
        """The try failed: report and record it, and move on where the kind says so.

        Raises:
            PartialStreamError: Content had already reached the caller.
        """
        kind = _kind_of(failure)
        content_is_out = self.relayed and trial.gathering is not None and trial.gathering.pieces > 0
        retry_s = None
        if not content_is_out:
            spread, now = self.caller._rng(), self.now()
            retry_s = retry_delay_s(self.state, trial.permit, kind, failure.retry_after_s, spread, now)
        verdict = verdict_of(trial.target.rules[kind], retried=retry_s is not None)
        report = Report(verdict, kind, failure.retry_after_s, self.input_digest or None)
        settling = self._settle(trial, report, Outcome.FAILED, kind, failure.status, failure.message)
        (record, result), cancelled = await _unbroken(settling)
        self.state = failed(self.state, record, kind, retry_s, result.wait_s, self.now())
        self.left = record
        if cancelled:
            raise asyncio.CancelledError
        if content_is_out:
            raise PartialStreamError(trial.target.key, kind, failure.message)

    async def abandon(self, trial: _Trial, error: BaseException) -> None:
        """The try ended through its caller (cancelled) or a bug of ours (internal): its target is not to blame."""
        outcome, kind = Outcome.CANCELLED, FailureKind.CANCELLED
        if isinstance(error, Exception):
            outcome, kind = Outcome.FAILED, FailureKind.INTERNAL
        report = Report(Verdict.NEUTRAL, kind)
        await _unbroken(self._settle(trial, report, outcome, kind, message=type(error).__name__))

    async def _settle(
        self,
        trial: _Trial,
        report: Report,
        outcome: Outcome,
        kind: FailureKind | None = None,
        status: int | None = None,
        message: str | None = None,
    ) -> tuple[TryRecord, ReportResult]:
        """Give the permit back with what the try says about its target, and end the attempt."""
        duration_s = self.now() - trial.started_at
        await trial.renewal.stop()
        result = await self.caller._registry.report(trial.target, trial.permit, report)
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
        await self.caller._sink.end(trial.attempt_id, record)
        self.caller._observer.tried(self.context, self.chain.role, record)
        self._tell(trial, result, kind)
        return record, result

    def _usage_of(self, trial: _Trial) -> Usage | None:
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

    def _tell(self, trial: _Trial, result: ReportResult, kind: FailureKind | None = None) -> None:
        if result.opened and result.until is not None and kind is not None:
            self.caller._observer.cooled(trial.target.key, kind, result.until)
        if result.closed:
            self.caller._observer.recovered(trial.target.key)

    def _switched(self, to_target: str | None) -> None:
        if self.left is not None:
            reason = self.left.kind or FailureKind.UNKNOWN
            switch = Switch(self.context, self.chain.role, self.left.target, to_target, reason)
            self.caller._observer.switched(switch)
            self.left = None

    async def _end(self, reason: StopReason) -> NoReturn:
        """The call ends without an answer."""
        role, policy = self.chain.role, self.chain.policy
        self._switched(None)
        if reason is StopReason.DEADLINE:
            self.state = out_of_time(self.state)
        tries, skipped = self.state.tries, self.state.skipped
        only_waited = reason is StopReason.PERMIT_WAIT and not tries and len(skipped) == 1
        if not only_waited:
            await _unbroken(self.caller._sink.exhausted(self.context, role, len(self.chain.targets), skipped))
        if reason is StopReason.PERMIT_WAIT:
            raise PermitWaitExceeded(role, skipped[-1].target, policy.permit_wait_max_s)
        if reason is StopReason.DEADLINE:
            raise DeadlineExceeded(role, policy.deadline_s, tries, skipped)
        raise exhausted(self.state)


class _Renewal:
    """Holds a permit for as long as its call runs: one timer, and no task unless the call is a long one."""

    def __init__(self, registry: CooldownRegistry, permit: Permit) -> None:
        self._registry = registry
        self._permit = permit
        self._loop = asyncio.get_running_loop()
        self._renewing: asyncio.Task[bool] | None = None
        self._timer = self._loop.call_later(PERMIT_RENEW_S, self._fire)

    async def stop(self) -> None:
        """No renewal starts or runs after this."""
        self._timer.cancel()
        if self._renewing is not None:
            await self._renewing

    def _fire(self) -> None:
        self._renewing = self._loop.create_task(self._registry.renew(self._permit))
        self._timer = self._loop.call_later(PERMIT_RENEW_S, self._fire)


async def _unbroken(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Finish a short piece of work even when the caller is cancelled meanwhile; returns whether it was."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled


def _still_useful(trial: _Trial) -> float:
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


def _checked(value: T, check: Callable[[T], str | None] | None) -> T:
    reason = check(value) if check is not None else None
    if reason is not None:
        raise UpstreamFailure(FailureKind.INVALID_OUTPUT, reason)
    return value


def _vectors_are_off(answer: Vectors, request: EmbedRequest) -> str | None:
    if len(answer.vectors) != len(request.texts):
        return f"{len(answer.vectors)} vectors for {len(request.texts)} texts"
    for ordinal, vector in enumerate(answer.vectors):
        if len(vector) != request.dim:
            return f"vector {ordinal} has {len(vector)} numbers instead of {request.dim}"
        norm = math.hypot(*vector)
        if not math.isfinite(norm) or norm == 0.0:
            return f"vector {ordinal} has a length of {norm}"
    return None


def _summed(tries: Iterable[TryRecord]) -> Usage:
    used = [record.usage for record in tries if record.usage is not None]
    return Usage(
        tokens_in=sum(usage.tokens_in for usage in used),
        tokens_out=sum(usage.tokens_out for usage in used),
        cost_usd=sum(usage.cost_usd for usage in used),
    )


def _is_open_to_calls(status: TargetStatus) -> bool:
    return status.state is BreakerState.CLOSED or (status.state is BreakerState.HALF_OPEN and not status.probing)
