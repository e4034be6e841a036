"""Calls with failover: the one door through which a model is asked.

``chain.py`` decides where a call goes, ``walk.py`` goes there, ``stream.py`` reads what comes.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from pipeline.domain.call import Answer, Outcome, TryRecord
from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import STANDARD_RULES, FailureKind
from pipeline.failover.records import AttemptSink, CallContext, Observer
from pipeline.failover.registry import CooldownRegistry
from pipeline.failover.stream import Gathering, accept, collect, relay
from pipeline.failover.target import Chain, Target
from pipeline.failover.upstream import ChatRequest, Delta, EmbedRequest, Reply, Upstream, Vectors
from pipeline.failover.walk import Clock, Means, Trial, Walk

__all__ = ["AnswerStream", "Caller", "Clock", "rejecting_targets"]

T = TypeVar("T")


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
        draining: Whether the process is about to end: calls under way go on, and no try is begun.
    """

    def __init__(
        self,
        registry: CooldownRegistry,
        upstream: Upstream,
        sink: AttemptSink,
        observer: Observer,
        clock: Clock,
        rng: Callable[[], float],
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._upstream = upstream
        self._means = Means(registry, sink, observer, clock, rng, draining)

    async def chat(
        self,
        chain: Chain,
        request: ChatRequest,
        context: CallContext,
        *,
        check: Callable[[Reply], str | None] | None = None,
    ) -> Answer[Reply]:
        """A whole chat answer, from the first target that gives a good one.

        Args:
            chain: Targets in priority order.
            request: What is asked; with ``stream`` the first content and idleness are timed, else the whole call.
            context: Whom the call is for.
            check: Says why an answer is none (not the schema); that target then failed with ``invalid_output``.

        Raises:
            ChainExhausted: Nobody answered.
            DeadlineExceeded: The call's own deadline was over first.
            PermitWaitExceeded: A target stayed full for ``permit_wait_max_s``.
            Draining: The process is about to end.
        """

        async def act(trial: Trial) -> Reply:
            may_repeat = _may_repeat(trial.target, request)
            if request.stream:
                trial.gathering = Gathering(chain.policy.max_output_bytes, may_repeat=may_repeat)
                reply = await collect(
                    self._upstream.stream(trial.target, request),
                    walk.stream_limits(trial, may_repeat=may_repeat),
                    trial.gathering,
                    partial(walk.first_content, trial),
                )
            else:
                reply = await walk.timed(trial, self._upstream.chat(trial.target, request))
                trial.usage = reply.usage
                accept(reply, chain.policy.max_output_bytes, chain.policy.allow_empty, may_repeat)
            trial.usage = reply.usage
            return _checked(reply, check)

        walk = self._walk(chain, request, context, streamed=request.stream)
        return await _answer(walk, act)

    async def embed(
        self,
        chain: Chain,
        request: EmbedRequest,
        context: CallContext,
        *,
        check: Callable[[Vectors], str | None] | None = None,
    ) -> Answer[Vectors]:
        """One vector a text, of ``request.dim`` finite numbers that are not all zero; empty for some that have none.

        Raises:
            ChainExhausted: Nobody answered.
            DeadlineExceeded: The call's own deadline was over first.
            PermitWaitExceeded: A target stayed full for ``permit_wait_max_s``.
            Draining: The process is about to end.
        """

        async def act(trial: Trial) -> Vectors:
            vectors = await walk.timed(trial, self._upstream.embed(trial.target, request))
            trial.usage = vectors.usage
            return _checked(_checked(vectors, lambda answer: _vectors_are_off(answer, request)), check)

        walk = self._walk(chain, request, context, streamed=False)
        return await _answer(walk, act)

    def stream(self, chain: Chain, request: ChatRequest, context: CallContext) -> AnswerStream:
        """A chat answer handed on as it comes: ``async with`` it and iterate over its deltas.

        Targets are switched until content has reached the caller; after that a failure raises ``PartialStreamError``.
        """
        walk = self._walk(chain, request, context, streamed=True, relayed=True)
        return AnswerStream(walk, self._upstream, request)

    def _walk(
        self,
        chain: Chain,
        request: ChatRequest | EmbedRequest,
        context: CallContext,
        *,
        streamed: bool,
        relayed: bool = False,
    ) -> Walk:
        return Walk(self._means, chain, request.needs, context, request.input_digest, streamed, relayed)


class AnswerStream:
    """A streamed answer. ``answer`` holds the whole of it, and where it came from, once the stream has ended."""

    def __init__(self, walk: Walk, upstream: Upstream, request: ChatRequest) -> None:
        self.answer: Answer[Reply] | None = None
        self._walk = walk
        self._upstream = upstream
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
        walk, policy = self._walk, self._walk.chain.policy
        while True:
            trial = await walk.next_trial()
            may_repeat = _may_repeat(trial.target, self._request)
            trial.gathering = gathering = Gathering(policy.max_output_bytes, may_repeat=may_repeat)
            try:
                events = self._upstream.stream(trial.target, self._request)
                limits = walk.stream_limits(trial, may_repeat=may_repeat)
                deltas = relay(events, limits, gathering, partial(walk.first_content, trial))
                async with aclosing(deltas):
                    async for delta in deltas:
                        yield delta
                reply = gathering.reply()
            except UpstreamFailure as failure:
                await walk.fail(trial, failure)
            except BaseException as error:
                await walk.abandon(trial, error)
                raise
            else:
                trial.usage = reply.usage
                self.answer = await walk.succeed(trial, reply)
                return


def _may_repeat(target: Target, request: ChatRequest) -> bool:
    # A local program that writes a line a hundred times has read it a hundred times.
    return target.is_local or request.repetitive


async def _answer(walk: Walk, act: Callable[[Trial], Awaitable[T]]) -> Answer[T]:
    while True:
        trial = await walk.next_trial()
        try:
            value = await act(trial)
        except UpstreamFailure as failure:
            await walk.fail(trial, failure)
        except BaseException as error:
            await walk.abandon(trial, error)
            raise
        else:
            return await walk.succeed(trial, value)


def _checked(value: T, check: Callable[[T], str | None] | None) -> T:
    reason = check(value) if check is not None else None
    if reason is not None:
        raise UpstreamFailure(FailureKind.INVALID_OUTPUT, reason)
    return value


def _vectors_are_off(answer: Vectors, request: EmbedRequest) -> str | None:
    if len(answer.vectors) != len(request.texts):
        return f"{len(answer.vectors)} vectors for {len(request.texts)} texts"
    if not any(map(len, answer.vectors)):
        return "no vector for any text"
    for ordinal, vector in enumerate(answer.vectors):
        if not len(vector):
            continue
        if len(vector) != request.dim:
            return f"vector {ordinal} has {len(vector)} numbers instead of {request.dim}"
        norm = math.hypot(*vector)
        if not math.isfinite(norm) or norm == 0.0:
            return f"vector {ordinal} has a length of {norm}"
    return None
