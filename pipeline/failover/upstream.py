"""The port to one upstream call: what the core asks of a provider, and what it hears back.

A provider makes exactly one HTTP call (or one local computation), with every built-in retry off, and raises
``UpstreamFailure`` for whatever goes wrong; no exception of its library ever leaves it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.domain.call import Usage
from pipeline.failover.target import Needs, Target

__all__ = [
    "ChatRequest",
    "Delta",
    "EmbedRequest",
    "Event",
    "Finish",
    "ImagePart",
    "Message",
    "Reply",
    "TextPart",
    "ToolCall",
    "Upstream",
    "Vectors",
]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ImagePart:
    data: bytes = field(repr=False)
    media_type: str = "image/jpeg"


@dataclass(frozen=True, slots=True)
class Message:
    """``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    parts: tuple[TextPart | ImagePart, ...]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat call.

    Attributes:
        stage: What it is for (``describe``, ``format``, ``retrieve``, ``answer``); local targets dispatch on it.
        inputs: The same material as named values, for local targets, which read fields and not prose:
            ``describe``: image (bytes), text, page_number; ``format``: description, text, text_format, page_number,
            title; ``retrieve``: chunk, heading, title, before, after; ``answer``: question, passages.
        json_schema: When given, the answer is one JSON document that fits it (``response_format: json_schema``).
        stream: Ask for a stream; the core times first content and idleness then, and the whole call otherwise.
        input_digest: Tells one input from another without holding it.
        repetitive: The material goes round in circles itself, so that an honest answer does, too.
    """

    stage: str
    messages: tuple[Message, ...] = field(repr=False)
    inputs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    json_schema: Mapping[str, Any] | None = field(default=None, repr=False)
    schema_name: str = "answer"
    max_output_tokens: int | None = None
    stream: bool = True
    input_digest: str = ""
    needs: Needs = field(default_factory=Needs)
    repetitive: bool = False


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts to turn into vectors of ``dim`` numbers; none is empty."""

    texts: tuple[str, ...] = field(repr=False)
    dim: int
    input_digest: str = ""
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A (part of a) tool call: the pieces of one index are joined in order."""

    index: int
    name: str = ""
    arguments: str = field(default="", repr=False)
    call_id: str = ""


@dataclass(slots=True)
class Delta:
    """A piece of a stream. It is content when any of its parts is non-empty.

    Nobody changes one; it is not frozen because one is made for every token, and that would take three times as long.
    """

    text: str = field(default="", repr=False)
    reasoning: str = field(default="", repr=False)
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def is_content(self) -> bool:
        return bool(self.text or self.reasoning or self.tool_calls)


@dataclass(frozen=True, slots=True)
class Finish:
    """The upstream said that it is done: ``stop``, ``length``, ``content_filter``, ``tool_calls``, or another."""

    reason: str
    usage: Usage | None = None


Event = Delta | Finish


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole chat answer."""

    text: str = field(repr=False)
    finish_reason: str | None
    usage: Usage | None = None
    reasoning: str = field(default="", repr=False)
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Vectors:
    """One vector a text, in the order of the request's texts; empty where the model made none of a text."""

    vectors: Sequence[Sequence[float]] = field(repr=False)
    usage: Usage | None = None


class Upstream(Protocol):
    """One provider. Closing a stream's generator closes its socket at once."""

    def stream(self, target: Target, request: ChatRequest) -> AsyncGenerator[Event, None]:
        """Yield deltas as they come, then at most one ``Finish``. A stream that ends without one was cut.

        Raises:
            UpstreamFailure: The call failed before or during the stream.
        """
        ...

    async def chat(self, target: Target, request: ChatRequest) -> Reply:
        """The whole answer of a call that is not streamed.

        Raises:
            UpstreamFailure: The call failed.
        """
        ...

    async def embed(self, target: Target, request: EmbedRequest) -> Vectors:
        """The texts' vectors.

        Raises:
            UpstreamFailure: The call failed, or what came back can't be read as vectors.
        """
        ...
