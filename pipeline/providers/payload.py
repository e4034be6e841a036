"""Requests and answers in OpenAI's JSON, which both lanes speak (litellm translates it for the others)."""

from __future__ import annotations

import base64
import binascii
import math
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.upstream import ChatRequest, Delta, EmbedRequest, ImagePart, Message, Reply, TextPart, ToolCall

__all__ = [
    "OPENAI_BASE_URL",
    "ChunkReader",
    "chat_messages",
    "chat_options",
    "read_reply",
    "read_token_counts",
    "read_vectors",
    "request_texts",
    "with_params",
]

OPENAI_BASE_URL = "https://api.openai.com/v1"
"""OpenAI's own endpoint, said always: left out, libraries would look for another in the environment."""


def chat_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with images as data URIs; one that holds a single text has plain content, which every server takes."""
    return [{"role": message.role, "content": _content(message)} for message in messages]


def _content(message: Message) -> str | list[dict[str, Any]]:
    parts = message.parts
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [_part(part) for part in parts]


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    uri = f"data:{part.media_type};base64,{base64.b64encode(part.data).decode('ascii')}"
    return {"type": "image_url", "image_url": {"url": uri}}


def chat_options(request: ChatRequest, *, max_tokens_name: str = "max_tokens") -> dict[str, Any]:
    """What a chat call carries besides model and messages."""
    options: dict[str, Any] = {}
    if request.max_output_tokens is not None:
        options[max_tokens_name] = request.max_output_tokens
    if request.json_schema is not None:
        schema: dict[str, Any] = {"name": request.schema_name, "schema": dict(request.json_schema)}
        if _is_strict(request.json_schema):
            schema["strict"] = True
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.stream:
        options |= {"stream": True, "stream_options": {"include_usage": True}}
    return options


def _is_strict(schema: object) -> bool:
    """Whether every object closes its properties and requires them all: OpenAI answers 400 to ``strict`` otherwise."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object" or "properties" in schema:
            properties = schema.get("properties", {})
            if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
                return False
        return all(_is_strict(value) for value in schema.values())
    return all(_is_strict(item) for item in schema) if isinstance(schema, list | tuple) else True


def with_params(body: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` with a target's params added as they are; a param of null takes out what would be sent."""
    merged = {**body, **params}
    return {name: value for name, value in merged.items() if value is not None}


def request_texts(request: ChatRequest | EmbedRequest) -> Iterator[str]:
    """Everything a request carries that an upstream could echo."""
    if isinstance(request, EmbedRequest):
        yield from request.texts
        return
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, TextPart):
                yield part.text


class ChunkReader:
    """Reads the chunks of one stream, and keeps what its last ones say: why it ended and what it used."""

    __slots__ = ("finish_reason", "saw_content", "token_counts")

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.token_counts: tuple[int, int] | None = None
        self.saw_content = False

    def read(self, chunk: Mapping[str, Any]) -> Delta | None:
        """The chunk's delta, or None when it holds none (a role, an empty text, usage).

        It runs for every token: it asks for dicts, which JSON makes, since asking for a ``Mapping`` takes longer than
        all the rest.

        Raises:
            UpstreamFailure: The model refused, as far as the API says so (``content_policy``).
        """
        usage = chunk.get("usage")
        if usage is not None:
            self.token_counts = read_token_counts(usage) or self.token_counts
        choices = chunk.get("choices")
        choice = choices[0] if choices and isinstance(choices, list) else None
        if not isinstance(choice, dict):
            return None
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str):
            self.finish_reason = reason
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return None
        text = delta.get("content")
        if len(delta) == 1 and text and isinstance(text, str):  # nearly every chunk, and each is a token
            self.saw_content = True
            return Delta(text)
        _check_refusal(delta)
        read = Delta(_text(text), _reasoning(delta), _tool_calls(delta.get("tool_calls")))
        if not read.is_content:
            return None
        self.saw_content = True
        return read


def read_reply(document: object) -> Reply:
    """A whole chat answer, without usage.

    Raises:
        UpstreamFailure: It is no answer (``invalid_output``), or a refusal (``content_policy``).
    """
    choice = _first(document.get("choices")) if isinstance(document, Mapping) else None
    message = choice.get("message") if choice is not None else None
    if choice is None or not isinstance(message, Mapping):
        raise UpstreamFailure(FailureKind.INVALID_OUTPUT, "the body is no chat answer: it has no choices", 200)
    _check_refusal(message)
    reason = choice.get("finish_reason")
    return Reply(
        text=_text(message.get("content")),
        finish_reason=reason if isinstance(reason, str) and reason else None,
        reasoning=_reasoning(message),
        tool_calls=_tool_calls(message.get("tool_calls")),
    )


def read_token_counts(usage: object) -> tuple[int, int] | None:
    """Tokens in and out of a ``usage`` object; None when it says nothing."""
    if not isinstance(usage, Mapping):
        return None
    counts = [usage.get("prompt_tokens"), usage.get("completion_tokens", 0)]
    if not isinstance(counts[0], int):
        return None
    return counts[0], counts[1] if isinstance(counts[1], int) else 0


def read_vectors(document: object, count: int, dim: int) -> list[Sequence[float]]:
    """``count`` vectors of ``dim`` finite numbers in the order of ``index``; floats or base64 of little-endian float32.

    A vector of zeros, or with a number that is not finite, comes back empty: its text is to blame, and not the others.

    Raises:
        UpstreamFailure: Anything else, or no vector is of use (``invalid_output``).
    """
    data = document.get("data") if isinstance(document, Mapping) else None
    if not isinstance(data, list) or not all(isinstance(entry, Mapping) for entry in data):
        raise _bad_vectors("the body holds no vectors")
    if len(data) != count:
        raise _bad_vectors(f"{len(data)} vectors for {count} texts")
    placed: list[Sequence[float] | None] = [None] * count
    faults = []
    for position, entry in enumerate(data):
        index = entry.get("index", position)
        if not isinstance(index, int) or not 0 <= index < count or placed[index] is not None:
            raise _bad_vectors(f"the indices of the vectors are not 0 to {count - 1}")
        vector = _vector(entry.get("embedding"), dim)
        if (fault := _fault(vector)) is not None:
            faults.append(fault)
        placed[index] = () if fault else vector
    if faults and len(faults) == count:
        raise _bad_vectors(faults[0])
    return [vector for vector in placed if vector is not None]


def _vector(value: object, dim: int) -> Sequence[float]:
    numbers: Sequence[float]
    if isinstance(value, str):
        try:
            packed = array("f", base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            raise _bad_vectors("a vector is no base64 of float32") from None
        if sys.byteorder == "big":
            packed.byteswap()
        numbers = packed.tolist()
    elif isinstance(value, list) and all(number is None or type(number) in (float, int) for number in value):
        # JSON has no NaN, and writers that keep to it put null.
        numbers = [math.nan if number is None else number for number in value] if None in value else value
    else:
        raise _bad_vectors("a vector is neither a list of numbers nor base64")
    if len(numbers) != dim:
        raise _bad_vectors(f"a vector of {len(numbers)} numbers where {dim} are due")
    return numbers


def _fault(vector: Sequence[float]) -> str | None:
    if not all(map(math.isfinite, vector)):
        return "a vector with a number that is not finite"
    return None if any(vector) else "a vector of zeros"


def _bad_vectors(fact: str) -> UpstreamFailure:
    return UpstreamFailure(FailureKind.INVALID_OUTPUT, fact, 200)


def _first(choices: object) -> Mapping[str, Any] | None:
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0]
    return None


def _check_refusal(message: Mapping[str, Any]) -> None:
    if message.get("refusal"):
        raise UpstreamFailure(FailureKind.CONTENT_POLICY, "the model refused (the API's refusal field is set)", 200)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # Mistral's reasoning models answer in parts
        return "".join(
            part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return ""


def _reasoning(message: Mapping[str, Any]) -> str:
    for name in ("reasoning_content", "reasoning"):
        value = message.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _tool_calls(calls: object) -> tuple[ToolCall, ...]:
    if not isinstance(calls, list):
        return ()
    read: list[ToolCall] = []
    for position, call in enumerate(calls):
        if not isinstance(call, Mapping):
            continue
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        index = call.get("index")
        read.append(
            ToolCall(
                index=index if isinstance(index, int) else position,
                name=_word(function.get("name")),
                arguments=_word(function.get("arguments")),
                call_id=_word(call.get("id")),
            )
        )
    return tuple(read)


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
