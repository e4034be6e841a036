"""Retrieve: a chunk and its near surroundings → a situating context, keywords and likely questions.

The context is bounded (title, heading path, neighbours), so that a change on page 3 does not touch page 200. The idea
is Anthropic's "contextual retrieval" (2024): a chunk that says where it stands is found by more questions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pipeline.domain.call import Answer
from pipeline.domain.digest import digest_of, text_digest
from pipeline.domain.document import Cues
from pipeline.failover.records import CallContext
from pipeline.failover.target import Needs
from pipeline.failover.upstream import ChatRequest, Message, Reply, TextPart
from pipeline.stages.ports import ChatModel, estimate_tokens
from pipeline.stages.prompts import delimited, load_prompt

__all__ = ["CUES_SCHEMA", "NEIGHBOUR_CHARS", "VERSION", "RetrieveInput", "parse_cues", "retrieve"]

VERSION = 1

NEIGHBOUR_CHARS = 800
"""How much of the chunk before and after is shown."""
_MAX_CONTEXT_CHARS = 600
_MAX_KEYWORDS = 12
_MAX_QUESTIONS = 3

CUES_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "context": {"type": "string"},
        "keywords": {"type": "array", "items": {"type": "string"}},
        "questions": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["context", "keywords", "questions"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class RetrieveInput:
    """A chunk and its bounded surroundings."""

    chunk: str = field(repr=False)
    heading: tuple[str, ...]
    title: str | None
    before: str = field(repr=False)
    after: str = field(repr=False)

    def parts(self) -> tuple[Any, ...]:
        """What identifies this input, for its digest."""
        return (self.chunk, list(self.heading), self.title, self.before, self.after)


def parse_cues(text: str) -> Cues:
    """Read a model's JSON answer.

    Raises:
        ValueError: It is not the object that ``CUES_SCHEMA`` describes; the message says what is wrong.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        msg = "the answer is not JSON"
        raise ValueError(msg) from error
    if not isinstance(found, dict):
        msg = "the answer is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - one error for every way of being wrong
    context = found.get("context")
    if not isinstance(context, str) or not context.strip():
        msg = "the answer has no context"
        raise ValueError(msg)
    lists: list[tuple[str, ...]] = []
    for key, most in (("keywords", _MAX_KEYWORDS), ("questions", _MAX_QUESTIONS)):
        items = found.get(key)
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            msg = f"the answer's {key} is not a list of strings"
            raise ValueError(msg)
        lists.append(tuple(item.strip() for item in items if item.strip())[:most])
    return Cues(context.strip()[:_MAX_CONTEXT_CHARS], lists[0], lists[1])


def _unusable(reply: Reply) -> str | None:
    try:
        parse_cues(reply.text)
    except ValueError as error:
        return str(error)
    return None


async def retrieve(chunk: RetrieveInput, llm: ChatModel, context: CallContext) -> Answer[Cues]:
    """Have a language model write a chunk's cues.

    Raises:
        ChainExhausted: No target of the role answered.
    """
    prompt = load_prompt("retrieve")
    material = "\n\n".join(
        [
            f"Document: {chunk.title or 'untitled'}",
            f"Heading: {' > '.join(chunk.heading) or 'none'}",
            delimited("before", chunk.before),
            delimited("chunk", chunk.chunk),
            delimited("after", chunk.after),
        ]
    )
    request = ChatRequest(
        stage="retrieve",
        messages=(Message("system", (TextPart(prompt),)), Message("user", (TextPart(material),))),
        inputs={
            "chunk": chunk.chunk,
            "heading": chunk.heading,
            "title": chunk.title,
            "before": chunk.before,
            "after": chunk.after,
        },
        json_schema=CUES_SCHEMA,
        schema_name="search_cues",
        stream=False,
        input_digest=digest_of(text_digest(material)),
        needs=Needs(json_schema=True, tokens_in=estimate_tokens(prompt, material), tokens_out=512),
    )
    answer = await llm.chat(request, context, _unusable)
    return Answer(
        parse_cues(answer.value.text),
        answer.target,
        answer.position,
        answer.degraded,
        answer.tries,
        answer.usage,
    )
