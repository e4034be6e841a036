"""Describe: a page's image (and its text layer as an anchor) → a faithful transcription."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.domain.call import Answer
from pipeline.domain.digest import digest_of, text_digest
from pipeline.domain.document import says_something
from pipeline.failover.records import CallContext
from pipeline.failover.repetition import repeats
from pipeline.failover.target import Needs
from pipeline.failover.upstream import ChatRequest, ImagePart, Message, Reply, TextPart
from pipeline.stages.fidelity import lost_words, repeated
from pipeline.stages.ports import ChatModel, ReplyCheck, estimate_tokens
from pipeline.stages.prompts import delimited, load_prompt
from pipeline.stages.refusals import refusal_in

__all__ = ["VERSION", "DescribeInput", "describe"]

VERSION = 2

_IMAGE_TOKENS = 2048
"""What a page of 1540 px costs on the hungrier vision models."""


@dataclass(frozen=True, slots=True)
class DescribeInput:
    """One page to transcribe.

    Attributes:
        text: Its text layer where that can be believed, at least in part.
        is_good: Whether the text layer is all that the page says in words: a transcription then has them too.
    """

    page_number: int
    image: bytes = field(repr=False)
    media_type: str
    text: str = field(repr=False)
    is_good: bool = False


def _is_blank(text: str) -> bool:
    return text.strip("*_`.# \t\r\n").upper() == "BLANK"


def _gate(page: DescribeInput) -> ReplyCheck:
    """What a transcription must not be: empty, a refusal, a circle, or without most of what the page says."""

    def check(reply: Reply) -> str | None:
        if not says_something(reply.text):
            return "the answer holds no letter and no digit"
        refused = refusal_in(reply.text, page.text)
        if refused:
            return f"the answer declines the task ({refused!r})"
        return repeated(reply.text, page.text) or (lost_words(page.text, reply.text) if page.is_good else None)

    return check


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
        inputs={
            "image": page.image,
            "text": page.text,
            "text_is_good": page.is_good,
            "page_number": page.page_number,
        },
        input_digest=digest_of(text_digest(anchor), len(page.image)),
        needs=Needs(
            modalities=frozenset({"text", "image"}),
            tokens_in=estimate_tokens(prompt, anchor) + _IMAGE_TOKENS,
        ),
        repetitive=repeats(page.text),
    )
    answer = await vlm.chat(request, context, _gate(page))
    text = answer.value.text.strip()
    return Answer(
        "" if _is_blank(text) else text, answer.target, answer.position, answer.degraded, answer.tries, answer.usage
    )
