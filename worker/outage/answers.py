"""What the simulated primaries answer: the work is done by the local models, so every answer is true."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest
from pipeline.providers.local import LocalUpstream
from pipeline.stages.retrieve import CUES_SCHEMA

__all__ = ["VISION", "Answerer", "BadRequestError", "read_request"]

VISION = "big-vision"
"""The name under which the server is asked to look at pages; under any other it reads text."""

_HEADED = re.compile(r"^(Document|Heading): (.*)$", re.MULTILINE)
_MARKDOWN = re.compile(r"^(#{1,6} |[-*] |\d+\. |\|)", re.MULTILINE)
_LOCAL = {"describe": "local/ocr", "format": "local/layout", "retrieve": "local/cues"}


class BadRequestError(ValueError):
    """A request that a real server would answer with 400."""


def read_request(body: Mapping[str, Any]) -> ChatRequest:
    """What a chat call in OpenAI's JSON asks for.

    A real model reads the prompt; here the material is taken out of it again, as the stages put it in.

    Raises:
        BadRequestError: It is none of the stages' requests.
    """
    texts, images = _parts(body.get("messages"))
    material = texts[-1] if texts else ""
    heads = dict(_HEADED.findall(material))
    if body.get("model") == VISION:
        if not images:
            raise BadRequestError("there is no image in the request")
        inputs: dict[str, Any] = {"image": images[0], "text": _between("text_layer", material), "page_number": 1}
        return _request("describe", inputs)
    if body.get("response_format"):
        path = heads.get("Heading", "none")
        return _request(
            "retrieve",
            {
                "chunk": _between("chunk", material),
                "heading": () if path == "none" else tuple(path.split(" > ")),
                "title": heads.get("Document", ""),
                "before": _between("before", material),
                "after": _between("after", material),
            },
        )
    text = _between("text_layer", material)
    return _request(
        "format",
        {
            "description": _between("description", material),
            "text": text,
            "text_format": "markdown" if _MARKDOWN.search(text) else "plain",
            "title": heads.get("Document"),
        },
    )


class Answerer:
    """Answers requests by the local models; use one in one event loop."""

    def __init__(self) -> None:
        # One page at a time, on one processor: the rest of the stack runs on this host too.
        self._local = LocalUpstream(pool_size=1, threads=1)

    async def answer(self, request: ChatRequest) -> str:
        """The answer's whole text."""
        model = _LOCAL[request.stage]
        reply = await self._local.chat(Target(key=model, preset=model, model=model), request)
        return reply.text

    async def close(self) -> None:
        await self._local.close()


def _request(stage: str, inputs: Mapping[str, Any]) -> ChatRequest:
    schema = CUES_SCHEMA if stage == "retrieve" else None
    return ChatRequest(stage=stage, messages=(), inputs=inputs, json_schema=schema)


def _between(tag: str, text: str) -> str:
    found = re.search(rf"<{tag}>\n(.*?)\n?</{tag}>", text, re.DOTALL)
    return found.group(1) if found else ""


def _parts(messages: object) -> tuple[list[str], list[bytes]]:
    """The texts and the images of the messages that are not the system's."""
    texts: list[str] = []
    images: list[bytes] = []
    if not isinstance(messages, list):
        raise BadRequestError("there are no messages")
    for message in messages:
        if not isinstance(message, dict) or message.get("role") == "system":
            continue
        content = message.get("content")
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
            if part.get("type") == "text":
                texts.append(str(part.get("text")))
            elif part.get("type") == "image_url":
                images.append(_image(part))
    return texts, images


def _image(part: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(part["image_url"]["url"].partition(";base64,")[2], validate=True)
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise BadRequestError("an image is no data URI of base64") from error
