"""Reading what a client sent: chat and embedding requests in OpenAI's format, refused where OpenAI refuses them."""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any

TOKENS_PER_IMAGE = 800


class BadRequestError(Exception):
    """The request is one that a real endpoint answers with 400."""


def digest(data: bytes) -> str:
    """The first 16 hex digits of SHA-256: enough to tell things apart in a log."""
    return hashlib.sha256(data).hexdigest()[:16]


def estimate_tokens(text: str) -> int:
    """About four characters a token."""
    return (len(text) + 3) // 4


@dataclass(frozen=True)
class Image:
    """An image part: the digest of its bytes (of its address, if it came as an http one) and its length in bytes."""

    digest: str
    length_bytes: int
    media_type: str


@dataclass(frozen=True)
class ChatRequest:
    """A chat request, with what the answers need picked out of it."""

    raw: dict[str, Any]
    model: str
    system_text: str
    user_text: str
    images: tuple[Image, ...]
    stream: bool
    include_usage: bool
    max_tokens: int | None
    schema: dict[str, Any] | None
    tools: tuple[dict[str, Any], ...]
    must_call_tool: bool

    @property
    def text(self) -> str:
        return f"{self.system_text}\n{self.user_text}"

    @property
    def input_tokens(self) -> int:
        return estimate_tokens(self.text) + TOKENS_PER_IMAGE * len(self.images)

    @property
    def prompt_digest(self) -> str:
        """A digest of the messages alone, whatever the model and the parameters."""
        return digest(json.dumps(self.raw["messages"], sort_keys=True).encode())


@dataclass(frozen=True)
class EmbedRequest:
    """An embedding request; token lists are turned into text, one word a token."""

    raw: dict[str, Any]
    model: str
    texts: tuple[str, ...]
    dimensions: int | None
    base64: bool

    @property
    def input_tokens(self) -> int:
        return sum(map(estimate_tokens, self.texts))

    @property
    def prompt_digest(self) -> str:
        return digest(json.dumps(self.texts).encode())


def read_json(body: bytes) -> dict[str, Any]:
    """The body as a JSON object, or BadRequestError."""
    try:
        data = json.loads(body)
    except ValueError as e:
        raise BadRequestError(f"We could not parse the JSON body of your request: {e}") from e
    if not isinstance(data, dict):
        raise BadRequestError("The body of the request must be a JSON object.")
    return data


def _model(data: dict[str, Any]) -> str:
    model = data.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequestError("you must provide a model parameter")
    return model


def read_chat(data: dict[str, Any]) -> ChatRequest:
    """Pick a chat request apart, or BadRequestError."""
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("'messages' must be a non-empty array.")
    texts: dict[str, list[str]] = {"system": [], "user": []}
    images: list[Image] = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequestError(f"each message must be an object with a role, not {message!r:.80}")
        side = "system" if message["role"] in ("system", "developer") else "user"
        text, found = _content(message.get("content"))
        texts[side].append(text)
        images += found
    options = data.get("stream_options")
    choice = data.get("tool_choice")
    limit = data.get("max_completion_tokens", data.get("max_tokens"))
    return ChatRequest(
        raw=data,
        model=_model(data),
        system_text="\n".join(texts["system"]),
        user_text="\n".join(texts["user"]),
        images=tuple(images),
        stream=bool(data.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        max_tokens=limit if isinstance(limit, int) else None,
        schema=_schema(data.get("response_format")),
        tools=tuple(data.get("tools") or ()),
        must_call_tool=choice == "required" or isinstance(choice, dict),
    )


def _content(content: object) -> tuple[str, list[Image]]:
    if content is None:  # an assistant message that held only tool calls
        return "", []
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise BadRequestError(f"a message's content must be a string or an array of parts, not {content!r:.80}")
    texts: list[str] = []
    images: list[Image] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(str(part.get("text", "")))
        elif kind == "image_url":
            images.append(_image(part.get("image_url")))
        else:
            raise BadRequestError(f"unknown content part {part!r:.80}; expected type text or image_url")
    return "\n".join(texts), images


def _image(value: object) -> Image:
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str) or not url:
        raise BadRequestError("an image_url part needs a url")
    if not url.startswith("data:"):
        return Image(digest(url.encode()), 0, "")
    head, _, payload = url.partition(",")
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    if encoding != "base64":
        raise BadRequestError(f"an image's data URI must be base64-encoded, not {head!r}")
    try:
        data = base64.b64decode(payload, validate=True)
    except binascii.Error as e:
        raise BadRequestError(f"You uploaded an unsupported image: {e}") from e
    if not data:
        raise BadRequestError("You uploaded an empty image.")
    return Image(digest(data), len(data), media_type)


def _schema(response_format: object) -> dict[str, Any] | None:
    if not isinstance(response_format, dict):
        return None
    if response_format.get("type") == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    if response_format.get("type") != "json_schema":
        return None
    inner = response_format.get("json_schema")
    if not isinstance(inner, dict) or not isinstance(inner.get("schema"), dict) or not inner.get("name"):
        raise BadRequestError("response_format json_schema needs json_schema.name and json_schema.schema")
    schema: dict[str, Any] = inner["schema"]
    return schema


def read_embed(data: dict[str, Any]) -> EmbedRequest:
    """Pick an embedding request apart, or BadRequestError: an empty text is refused, as OpenAI does."""
    given = data.get("input")
    inputs = [given] if isinstance(given, str) or (isinstance(given, list) and _is_tokens(given)) else given
    if not isinstance(inputs, list) or not inputs:
        raise BadRequestError("'input' must be a string or a non-empty array.")
    texts: list[str] = []
    for item in inputs:
        text = item if isinstance(item, str) else " ".join(map(str, item)) if _is_tokens(item) else ""
        if not text:
            raise BadRequestError("'$.input' is invalid: input cannot be an empty string.")
        texts.append(text)
    dimensions = data.get("dimensions")
    return EmbedRequest(
        raw=data,
        model=_model(data),
        texts=tuple(texts),
        dimensions=dimensions if isinstance(dimensions, int) else None,
        base64=data.get("encoding_format") == "base64",
    )


def _is_tokens(item: object) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(t, int) for t in item)


def without_images(value: Any) -> Any:  # JSON in, JSON out
    """The request with each data URI replaced by its digest, so that a log of many pages stays small."""
    if isinstance(value, dict):
        return {k: without_images(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_images(v) for v in value]
    if isinstance(value, str) and value.startswith("data:"):
        return f"data:…,sha256={digest(value.encode())}"
    return value
