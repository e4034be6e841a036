"""Reading one upstream stream: timers, limits and the checks that make an answer an answer.

``collect`` holds the answer until it is complete; ``relay`` hands the deltas on as they come. Both raise
``UpstreamFailure`` and leave the upstream's generator closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType

from pipeline.domain.call import Usage
from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.repetition import RepetitionGuard
from pipeline.failover.upstream import Delta, Event, Finish, Reply, ToolCall

__all__ = ["Gathering", "StreamLimits", "Watchdog", "accept", "collect", "estimated_usage", "relay"]

_PARTIAL_AFTER_CONTENT = frozenset(
    {
        FailureKind.CONNECT,
        FailureKind.TIMEOUT,
        FailureKind.TTFT_TIMEOUT,
        FailureKind.RATE_LIMIT,
        FailureKind.OVERLOADED,
        FailureKind.SERVER_ERROR,
        FailureKind.UNKNOWN,
    }
)
"""Once content has come, these are all the same thing: a stream that broke off."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of one stream.

    Attributes:
        first_content_s: From now to the first content.
        first_content_kind: What the stream fails of when none has come by then.
        idle_s: From one content to the next.
        may_repeat: Whether an answer may go round in circles: what it is made of does, or no model makes it.
    """

    first_content_s: float
    first_content_kind: FailureKind
    idle_s: float
    max_output_bytes: int
    allow_empty: bool = False
    may_repeat: bool = False


HELD_UP_S = 2.0
"""A timer that fires later than this past its time says that *we* were stopped (a frozen process, a blocked loop)."""


_LAST_LOOKS = 20
"""Turns of the event loop in which an answer that lies in the socket gets from there to the reader; a handful do."""


class Watchdog:
    """One timer for a whole try: it is not moved for each token, it looks back when it fires.

    When content came since it was armed, it arms itself for the remainder; else it cancels the task that waits for
    the upstream, and leaving the ``with`` block turns that cancellation into an ``UpstreamFailure``.

    Before a silence counts, what lies in the socket already is read: of a loop that was busy, or a process that was
    stopped, the timers are served first. When the timer fires later than ``HELD_UP_S``, this process was held up: there
    is a moment more to read, and ``held_up`` says that the try proves nothing about its target.

    Args:
        first_content_s: From now to the first content; for an answer that is not streamed, to its end.
        first_content_kind: What the try fails of when none has come by then.
        idle_s: From one content to the next.
        awaited: What is waited for at first, for the message.
    """

    def __init__(
        self,
        first_content_s: float,
        first_content_kind: FailureKind,
        idle_s: float = 0.0,
        awaited: str = "first content",
    ) -> None:
        self._first_content_kind = first_content_kind
        self._idle_s = idle_s
        self._awaited = awaited
        self._loop = asyncio.get_running_loop()
        self._limit_s = first_content_s
        self._had_content = False
        self._watching = True
        self._expired = False
        self._was_late = False
        self._looks_left = _LAST_LOOKS

    @property
    def held_up(self) -> bool:
        """Whether this process was stopped while it should have been watching."""
        return self._was_late or self._late_s() > HELD_UP_S

    def __enter__(self) -> Watchdog:
        self.resume()
        self._timer = self._loop.call_at(self._last + self._limit_s, self._fire)
        return self

    def content(self) -> None:
        """Content has come."""
        self._last = self._loop.time()
        if not self._had_content:
            self._had_content = True
            self._limit_s = self._idle_s
            self._timer.cancel()
            self._timer = self._loop.call_at(self._last + self._limit_s, self._fire)

    def pause(self) -> None:
        """The stream's reader is busy with what it has read: that time is not the upstream's."""
        self._watching = False

    def resume(self) -> None:
        """The reader waits for the upstream again, maybe in another task."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a running coroutine always has one)
        self._task = task
        self._cancels_before = task.cancelling()
        self._last = self._loop.time()
        self._watching = True

    def _late_s(self) -> float:
        return self._loop.time() - self._timer.when()

    def _fire(self) -> None:
        now = self._loop.time()
        due = self._last + self._limit_s if self._watching else now + self._limit_s
        if now < due:
            self._looks_left = _LAST_LOOKS
            self._timer = self._loop.call_at(due, self._fire)
        elif self._late_s() > HELD_UP_S:
            self._was_late = True
            self._timer = self._loop.call_at(now + HELD_UP_S, self._fire)
        elif self._looks_left:
            self._looks_left -= 1
            self._timer = self._loop.call_at(now, self._fire)
        else:
            self._expired = True
            self._task.cancel()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # A cancellation that came from outside as well must stay one.
        if self._expired and self._task.uncancel() <= self._cancels_before:
            if self._had_content:
                raise UpstreamFailure(
                    FailureKind.PARTIAL_STREAM, f"no further content for {self._limit_s:g} s"
                ) from None
            raise UpstreamFailure(
                self._first_content_kind, f"no {self._awaited} within {self._limit_s:.3g} s"
            ) from None


class Gathering:
    """What has come of an answer so far.

    Attributes:
        pieces: Content deltas, which is about as many as output tokens.
        events: Anything at all that the upstream sent.
        held_up: The stream failed while this process was stopped; see ``Watchdog``.
    """

    def __init__(self, max_output_bytes: int, *, may_repeat: bool = False) -> None:
        self.pieces = 0
        self.events = 0
        self.held_up = False
        self.finish: Finish | None = None
        self._max_output_bytes = max_output_bytes
        self._bytes = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tools: dict[int, list[ToolCall]] = {}
        self._guard = None if may_repeat else RepetitionGuard()
        self._unguarded: list[str] = []
        self._unguarded_chars = 0

    def add(self, delta: Delta) -> None:
        """Take a content delta.

        Raises:
            UpstreamFailure: ``invalid_output``: the answer is too long, or repeats itself.
        """
        self.pieces += 1
        if delta.text:
            self._text.append(delta.text)
            self._measure(delta.text)
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
            self._measure(delta.reasoning)
        for part in delta.tool_calls:
            self._measure(part.name)
            self._measure(part.arguments)
            self._tools.setdefault(part.index, []).append(part)

    def reply(self) -> Reply:
        """The answer, which ended properly.

        Raises:
            UpstreamFailure: It broke off: ``partial_stream``, or ``invalid_output`` when nothing came at all.
        """
        if self.finish is None:
            if self.events == 0:
                raise UpstreamFailure(FailureKind.INVALID_OUTPUT, "the stream was empty")
            raise UpstreamFailure(FailureKind.PARTIAL_STREAM, "the stream ended without a finish reason")
        return Reply(
            text="".join(self._text),
            finish_reason=self.finish.reason,
            usage=self.finish.usage,
            reasoning="".join(self._reasoning),
            tool_calls=tuple(_joined(self._tools[index]) for index in sorted(self._tools)),
        )

    def _measure(self, text: str) -> None:
        chars = len(text)
        self._bytes += chars if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if self._bytes > self._max_output_bytes:
            raise _too_long(self._max_output_bytes)
        if self._guard is None:
            return
        # The guard looks once in so many characters; asking it for each token would cost as much as the token.
        self._unguarded.append(text)
        self._unguarded_chars += chars
        if self._unguarded_chars >= self._guard.CHECK_EVERY:
            repeats = self._guard.feed("".join(self._unguarded))
            self._unguarded.clear()
            self._unguarded_chars = 0
            if repeats:
                raise _repetition()


def accept(reply: Reply, max_output_bytes: int, allow_empty: bool, may_repeat: bool) -> None:
    """The checks that every chat answer passes, streamed or not.

    Raises:
        UpstreamFailure: ``content_policy`` or ``invalid_output``.
    """
    if reply.finish_reason in ("content_filter", "refusal"):
        raise UpstreamFailure(FailureKind.CONTENT_POLICY, "the upstream's content filter ended the answer")
    if reply.finish_reason == "length":
        raise UpstreamFailure(FailureKind.INVALID_OUTPUT, "the answer was truncated (finish_reason=length)")
    if not allow_empty and not reply.tool_calls and not reply.text.strip():
        raise UpstreamFailure(FailureKind.INVALID_OUTPUT, "the answer was empty")
    if len(reply.text.encode("utf-8", "surrogatepass")) > max_output_bytes:
        raise _too_long(max_output_bytes)
    if not may_repeat and RepetitionGuard().feed(reply.text):
        raise _repetition()


async def collect(
    events: AsyncGenerator[Event, None],
    limits: StreamLimits,
    gathering: Gathering,
    on_first_content: Callable[[], Awaitable[None]],
) -> Reply:
    """Read a stream to its end and return the whole answer.

    Raises:
        UpstreamFailure: The stream failed, stalled, broke off, or what it said is no answer.
    """
    async with aclosing(events):
        try:
            with _watchdog(limits) as watchdog:
                async for event in events:
                    gathering.events += 1
                    if isinstance(event, Finish):
                        gathering.finish = event
                        break
                    if event.text or event.reasoning or event.tool_calls:
                        watchdog.content()
                        gathering.add(event)
                        if gathering.pieces == 1:
                            await on_first_content()
            reply = gathering.reply()
        except UpstreamFailure as failure:
            gathering.held_up = watchdog.held_up
            raise _as_seen(failure, gathering) from None
    accept(reply, limits.max_output_bytes, limits.allow_empty, limits.may_repeat)
    return reply


async def relay(
    events: AsyncGenerator[Event, None],
    limits: StreamLimits,
    gathering: Gathering,
    on_first_content: Callable[[], Awaitable[None]],
) -> AsyncGenerator[Delta, None]:
    """Hand a stream's content on as it comes; the timers run only while the upstream is waited for.

    The whole answer is in ``gathering`` at the end.

    Raises:
        UpstreamFailure: As ``collect`` does.
    """
    async with aclosing(events):
        try:
            with _watchdog(limits) as watchdog:
                async for event in events:
                    gathering.events += 1
                    if isinstance(event, Finish):
                        gathering.finish = event
                        break
                    if event.is_content:
                        watchdog.content()
                        gathering.add(event)
                        if gathering.pieces == 1:
                            await on_first_content()
                        watchdog.pause()
                        yield event
                        watchdog.resume()
            reply = gathering.reply()
        except UpstreamFailure as failure:
            gathering.held_up = watchdog.held_up
            raise _as_seen(failure, gathering) from None
    accept(reply, limits.max_output_bytes, limits.allow_empty, limits.may_repeat)


def estimated_usage(gathering: Gathering, tokens_in: int, input_per_mtok: float, output_per_mtok: float) -> Usage:
    """What an answer that broke off has used: its upstream never said, but it charges for what it sent."""
    cost_usd = (tokens_in * input_per_mtok + gathering.pieces * output_per_mtok) / 1e6
    return Usage(tokens_in=tokens_in, tokens_out=gathering.pieces, cost_usd=cost_usd)


def _watchdog(limits: StreamLimits) -> Watchdog:
    return Watchdog(limits.first_content_s, limits.first_content_kind, limits.idle_s)


def _as_seen(failure: UpstreamFailure, gathering: Gathering) -> UpstreamFailure:
    if gathering.pieces == 0 or failure.kind not in _PARTIAL_AFTER_CONTENT:
        return failure
    message = f"broke off after content: {failure}"
    return UpstreamFailure(FailureKind.PARTIAL_STREAM, message, failure.status, failure.retry_after_s, failure.details)


def _joined(parts: list[ToolCall]) -> ToolCall:
    return ToolCall(
        parts[0].index,
        name=next((part.name for part in parts if part.name), ""),
        arguments="".join(part.arguments for part in parts),
        call_id=next((part.call_id for part in parts if part.call_id), ""),
    )


def _too_long(max_output_bytes: int) -> UpstreamFailure:
    return UpstreamFailure(FailureKind.INVALID_OUTPUT, f"the answer is longer than {max_output_bytes} bytes")


def _repetition() -> UpstreamFailure:
    return UpstreamFailure(FailureKind.INVALID_OUTPUT, "the answer repeats itself")
