"""OpenAI's JSON: error bodies, chat completions (whole and in chunks), embeddings."""

import base64
import json
import struct
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from tests.upstream.act import Act
from tests.upstream.answers import tool_call
from tests.upstream.request import ChatRequest, EmbedRequest, estimate_tokens
from tests.upstream.vectors import embed

CREATED = 1_767_225_600  # a fixed date, so that the same request has the same answer to the byte

Delta = dict[str, Any]

_ERRORS = {
    400: ("invalid_request_error", "Invalid request."),
    401: ("invalid_request_error", "Incorrect API key provided."),
    402: ("insufficient_balance", "Payment required."),
    403: ("permission_error", "You have insufficient permissions for this operation."),
    404: ("invalid_request_error", "The model does not exist or you do not have access to it."),
    408: ("timeout", "Request timed out."),
    409: ("conflict", "The request conflicts with another one."),
    422: ("invalid_request_error", "Unprocessable entity."),
    429: ("requests", "Rate limit reached for requests."),
    503: ("server_error", "The server is busy, please try again later."),
    504: ("server_error", "The upstream timed out."),
    529: ("overloaded_error", "Overloaded."),
}


def dumps(value: Any) -> str:
    """Compact JSON with real characters, as most servers write it; NaN stays NaN."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode(text: str) -> bytes:
    """UTF-8; a lone surrogate, which JSON can carry, is sent as it is."""
    return text.encode("utf-8", "surrogatepass")


def error_body(act: Act) -> dict[str, Any]:
    """The body of an error status, as `act` words it or as is usual for the status."""
    kind, message = _ERRORS.get(act.status, ("server_error", "The server had an error processing your request."))
    return {
        "error": {
            "message": act.message or message,
            "type": act.error_type or kind,
            "param": None,
            "code": act.code,
        }
    }


def stream_error(act: Act) -> dict[str, Any]:
    """The object of an error inside a 200."""
    message = act.message or "The engine is overloaded, please try again later."
    return {
        "error": {"message": message, "type": act.error_type or "server_error", "param": None, "code": act.code or 503}
    }


def completion_text(request: ChatRequest, act: Act, usual: str) -> tuple[str, str]:
    """What is said and the finish_reason: the act's text or the usual one, cut as the act or max_tokens ask."""
    text = usual if act.text is None else act.text
    finish = act.finish_reason or ("tool_calls" if act.tool_call or _forced(request, act) else "stop")
    if act.line_bytes is not None:
        text = "x" * act.line_bytes
    elif finish == "length" and act.text is None:
        text = text[: len(text) // 2]
    elif request.max_tokens is not None and estimate_tokens(text) > request.max_tokens:
        text, finish = text[: 4 * request.max_tokens], "length"
    return text, finish


def _forced(request: ChatRequest, act: Act) -> bool:
    return bool(request.must_call_tool and request.tools and act.text is None)


def deltas(request: ChatRequest, act: Act, text: str) -> Iterator[Delta]:
    """The content chunks in order: reasoning, refusal, tool call, text; for ever if the act repeats."""
    size = max(1, act.chunk_chars)
    for piece in _pieces(act.reasoning or "", size):
        yield {act.reasoning_field: piece}
    for piece in _pieces(act.refusal or "", size):
        yield {"refusal": piece}
    if act.tool_call or _forced(request, act):
        yield from _tool_deltas(request, size)
    elif act.repeat is not None:
        yield from ({"content": piece} for piece in repeat(act.repeat))
    elif act.line_bytes is not None:
        yield {"content": text}
    else:
        yield from ({"content": piece} for piece in _pieces(text, size))


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[i : i + size] for i in range(0, len(text), size))


def _tool_deltas(request: ChatRequest, size: int) -> Iterator[Delta]:
    call = tool_call(request)
    head = call | {"index": 0, "function": {"name": call["function"]["name"], "arguments": ""}}
    yield {"tool_calls": [head]}
    for piece in _pieces(call["function"]["arguments"], size):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def usage(request: ChatRequest | EmbedRequest, completion: int = 0) -> dict[str, int]:
    """Token counts, estimated."""
    tokens = request.input_tokens
    return {"prompt_tokens": tokens, "completion_tokens": completion, "total_tokens": tokens + completion}


def chunk(request: ChatRequest, delta: Delta | None, finish: str | None = None) -> dict[str, Any]:
    """One `chat.completion.chunk`; without a delta it has no choices (metadata, usage)."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return {
        "id": f"chatcmpl-{request.prompt_digest}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": request.model,
        "choices": choices,
    }


def chat_body(request: ChatRequest, act: Act, text: str, finish: str) -> dict[str, Any]:
    """A whole `chat.completion`. An act that repeats says its phrase a thousand times."""
    called = act.tool_call or _forced(request, act)
    said = None if called else act.repeat * 1000 if act.repeat is not None else text
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if act.reasoning is not None:
        message[act.reasoning_field] = act.reasoning
    if act.refusal is not None:
        message["refusal"] = act.refusal
    if called:
        message["tool_calls"] = [tool_call(request)]
    body = {
        "id": f"chatcmpl-{request.prompt_digest}",
        "object": "chat.completion",
        "created": CREATED,
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    if act.usage is not False:
        body["usage"] = usage(request, estimate_tokens(said or ""))
    return body


def embed_body(request: EmbedRequest, act: Act, dim: int) -> dict[str, Any]:
    """A list of embeddings, right or wrong as the act asks; base64 (little-endian float32) when requested."""
    width = act.dim or request.dimensions or dim
    vectors = [embed(text, width, act.seed or "") for text in request.texts]
    if act.count_delta > 0:
        vectors += [embed(f"extra {i}", width) for i in range(act.count_delta)]
    elif act.count_delta < 0:
        vectors = vectors[: act.count_delta]
    if act.nan:
        vectors = [[float("nan"), *v[1:]] for v in vectors]
    if act.nan_for is not None:
        spoiled = [act.nan_for in text for text in request.texts]
        vectors = [[float("nan"), *v[1:]] if bad else v for v, bad in zip(vectors, spoiled, strict=True)]
    data = [{"object": "embedding", "index": i, "embedding": _coded(v, request)} for i, v in enumerate(vectors)]
    if act.shuffle:  # reversed: never the right order for two or more
        data = data[::-1]
    body: dict[str, Any] = {"object": "list", "data": data, "model": request.model}
    if act.usage is not False:
        counts = usage(request)
        body["usage"] = {k: counts[k] for k in ("prompt_tokens", "total_tokens")}
    return body


def _coded(vector: list[float], request: EmbedRequest) -> list[float] | str:
    if not request.base64:
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
