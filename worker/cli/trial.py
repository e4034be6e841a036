"""One small real call to a target, as the stage that uses it would make it."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pipeline.adapters.chains import KnownTarget
from pipeline.adapters.embedder import PROBE_TEXT
from pipeline.domain.call import Answer
from pipeline.domain.document import TextFormat
from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.records import CallContext
from pipeline.failover.stream import Gathering, StreamLimits, collect
from pipeline.failover.target import CallPolicy, Needs, Target
from pipeline.failover.upstream import ChatRequest, EmbedRequest, Message, Reply, TextPart, Upstream
from pipeline.stages.describe import DescribeInput, describe
from pipeline.stages.format import FormatInput, format_page
from pipeline.stages.ports import ReplyCheck
from pipeline.stages.retrieve import RetrieveInput, retrieve

__all__ = ["Trial", "try_target"]

_TEXT = "The tide gate opens at low water and closes one hour before high water."


@dataclass(frozen=True, slots=True)
class Trial:
    """How a call went.

    Attributes:
        kind: A failure kind; None when it went well.
    """

    target: str
    preset: str
    role: str
    kind: str | None
    message: str
    status: int | None
    seconds: float

    @property
    def ok(self) -> bool:
        return self.kind is None

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "preset": self.preset,
            "role": self.role,
            "ok": self.ok,
            "kind": self.kind,
            "message": self.message or None,
            "status": self.status,
            "duration_ms": round(self.seconds * 1000),
        }


async def try_target(upstream: Upstream, known: Sequence[KnownTarget]) -> list[Trial]:
    """Call each target once, all at the same time, in its first role; the registry is neither asked nor told."""
    return list(await asyncio.gather(*(_try(upstream, one) for one in known)))


async def _try(upstream: Upstream, known: KnownTarget) -> Trial:
    target, role, began = known.target, known.roles[0], time.monotonic()
    kind, message, status = None, "", None
    limit_s = max(target.times.timeout_s, target.times.ttft_timeout_s)
    try:
        async with asyncio.timeout(limit_s):
            await _call(upstream, target, role)
    except UpstreamFailure as failure:
        kind, message, status = failure.kind, failure.message, failure.status
    except TimeoutError:
        kind, message = "timeout", f"no answer in {limit_s:g} s"
    return Trial(target.key, target.preset, role, kind, message, status, time.monotonic() - began)


async def _call(upstream: Upstream, target: Target, role: str) -> None:
    model, context = _OneTarget(upstream, target), CallContext(call_id=uuid4().hex, stage="check")
    match role:
        case "embedder":
            found = await upstream.embed(target, EmbedRequest((PROBE_TEXT,), target.dim or 0))
            widths = {len(vector) for vector in found.vectors}
            if widths != {target.dim}:
                raise UpstreamFailure("invalid_output", f"vectors of {sorted(widths)} numbers, not {target.dim}")
        case "vlm":
            await describe(DescribeInput(1, _picture(), "image/png", ""), model, context)
        case "vlm_formatter":
            await format_page(FormatInput(1, None, _TEXT, "", TextFormat.PLAIN), model, context)
        case "retrieval_llm":
            await retrieve(RetrieveInput(chunk=_TEXT, heading=(), title=None, before="", after=""), model, context)
        case _:
            await model.chat(_question(), context)


class _OneTarget:
    """A ``ChatModel`` that is one target: no chain, no retries."""

    def __init__(self, upstream: Upstream, target: Target) -> None:
        self._upstream = upstream
        self._target = target

    async def chat(self, request: ChatRequest, context: CallContext, check: ReplyCheck | None = None) -> Answer[Reply]:
        del context
        reply = await (self._streamed(request) if request.stream else self._upstream.chat(self._target, request))
        if check is not None and (problem := check(reply)) is not None:
            raise UpstreamFailure("invalid_output", problem)
        return Answer(reply, self._target.key, 0, False, ())

    async def _streamed(self, request: ChatRequest) -> Reply:
        times, most = self._target.times, CallPolicy().max_output_bytes
        limits = StreamLimits(times.ttft_timeout_s, FailureKind.TTFT_TIMEOUT, times.idle_timeout_s, most)
        return await collect(self._upstream.stream(self._target, request), limits, Gathering(most), _nothing)


async def _nothing() -> None:
    """First content tells nobody anything here."""


def _question() -> ChatRequest:
    return ChatRequest(
        stage="answer",
        messages=(Message("user", (TextPart(f"{_TEXT}\n\nWhen does the gate close?"),)),),
        inputs={"question": "When does the gate close?", "passages": [{"text": _TEXT, "path": "check", "heading": ()}]},
        max_output_tokens=1024,  # some think before they answer
        needs=Needs(),
    )


def _picture() -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (900, 160), "white")
    ImageDraw.Draw(image).text(
        (30, 50), "The tide gate opens at low water.", fill="black", font=ImageFont.load_default(40)
    )
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
