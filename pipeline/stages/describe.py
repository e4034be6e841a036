"""Describe: a page's image (and its text layer as an anchor) → a faithful transcription."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pipeline.domain.call import Answer
from pipeline.domain.digest import digest_of, text_digest
from pipeline.failover.records import CallContext
from pipeline.failover.target import Needs
from pipeline.failover.upstream import ChatRequest, ImagePart, Message, Reply, TextPart
from pipeline.stages.ports import ChatModel, estimate_tokens
from pipeline.stages.prompts import delimited, load_prompt

__all__ = ["VERSION", "DescribeInput", "describe", "refusal_in"]

VERSION = 1

_IMAGE_TOKENS = 2048
"""What a page of 1540 px costs on the hungrier vision models."""

_REFUSAL = re.compile(
    r"\b(i\s*('m| am)\s+(sorry|unable)|i\s+can\s?(no|')t\s+(see|view|read|access|process|assist|help)"
    r"|(no|don't see an?) image (was|is|has been)? ?(provided|attached|uploaded)|as an ai)\b",
    re.IGNORECASE,
)
_REFUSAL_MAX_CHARS = 400


@dataclass(frozen=True, slots=True)
class DescribeInput:
    """One page to transcribe; ``text`` is its text layer where that can be believed."""

    page_number: int
    image: bytes = field(repr=False)
    media_type: str
    text: str = field(repr=False)


def refusal_in(text: str) -> str | None:
    """The words by which a short answer declines the task, or None. A long answer is a transcription."""
    if len(text) > _REFUSAL_MAX_CHARS:
        return None
    match = _REFUSAL.search(text)
    return match.group(0) if match else None


def _unusable(reply: Reply) -> str | None:
    refused = refusal_in(reply.text)
    return f"the answer declines the task ({refused!r})" if refused else None


async def describe(page: DescribeInput, vlm: ChatModel, context: CallContext) -> Answer[str]:
    """Have a vision model transcribe a page.

    Returns:
        The transcription; empty when the page shows nothing.

    Raises:
        ChainExhausted: No target of the role answered.
    """
    prompt = load_prompt("describe")
    anchor = delimited("text_layer", page.text) if page.text.strip() else "The file has no text layer."
    request = ChatRequest(
        stage="describe",
        messages=(
            Message("system", (TextPart(prompt),)),
            Message("user", (ImagePart(page.image, page.media_type), TextPart(anchor))),
        ),
        inputs={"image": page.image, "text": page.text, "page_number": page.page_number},
        input_digest=digest_of(text_digest(anchor), len(page.image)),
        needs=Needs(
            modalities=frozenset({"text", "image"}),
            tokens_in=estimate_tokens(prompt, anchor) + _IMAGE_TOKENS,
        ),
    )
    answer = await vlm.chat(request, context, _unusable)
    text = answer.value.text.strip()
    blank = text.strip("*_`. ").upper() == "BLANK"
    return Answer("" if blank else text, answer.target, answer.position, answer.degraded, answer.tries, answer.usage)
