"""Format: a page's description and text layer → canonical Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pipeline.domain.call import Answer
from pipeline.domain.digest import digest_of, text_digest
from pipeline.domain.document import TextFormat, says_something
from pipeline.failover.records import CallContext
from pipeline.failover.repetition import repeats
from pipeline.failover.target import Needs
from pipeline.failover.upstream import ChatRequest, Message, Reply, TextPart
from pipeline.stages.fidelity import lost_words, repeated
from pipeline.stages.ports import ChatModel, ReplyCheck, estimate_tokens
from pipeline.stages.prompts import delimited, load_prompt
from pipeline.stages.refusals import refusal_in

__all__ = ["VERSION", "FormatInput", "format_page"]

VERSION = 2

_FENCE = re.compile(r"\A```(?:markdown|md)?[ \t]*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FormatInput:
    """One page's material; ``text`` is empty when the text layer can't be believed."""

    page_number: int
    title: str | None
    description: str | None = field(repr=False)
    text: str = field(repr=False)
    text_format: TextFormat = TextFormat.PLAIN


def _gate(source: str) -> ReplyCheck:
    """What a page's Markdown must not be: empty, a refusal, a circle, or without most of the page's words."""

    def check(reply: Reply) -> str | None:
        markdown = _unfenced(reply.text)
        if not says_something(markdown):
            return "the answer holds no letter and no digit"
        refused = refusal_in(markdown, source)
        if refused:
            return f"the answer declines the task ({refused!r})"
        return repeated(markdown, source) or lost_words(source, markdown)

    return check


def _unfenced(markdown: str) -> str:
    text = markdown.strip()
    match = _FENCE.match(text)
    # A fence inside means that the outer one may belong to the page.
    return match.group(1).strip() if match and "```" not in match.group(1) else text


async def format_page(page: FormatInput, llm: ChatModel, context: CallContext) -> Answer[str]:
    """Have a language model write a page as Markdown.

    Raises:
        ChainExhausted: No target of the role answered.
    """
    prompt = load_prompt("format")
    parts = [f"Document: {page.title}"] if page.title else []
    if page.description:
        parts.append(delimited("description", page.description))
    if page.text.strip():
        parts.append(delimited("text_layer", page.text))
    material = "\n\n".join(parts)
    source = page.text if page.text.strip() else page.description or ""
    request = ChatRequest(
        stage="format",
        messages=(Message("system", (TextPart(prompt),)), Message("user", (TextPart(material),))),
        inputs={
            "description": page.description,
            "text": page.text,
            "text_format": page.text_format.value,
            "page_number": page.page_number,
            "title": page.title,
        },
        input_digest=digest_of(text_digest(material)),
        needs=Needs(tokens_in=estimate_tokens(prompt, material), tokens_out=estimate_tokens(source)),
        repetitive=repeats(source),
    )
    answer = await llm.chat(request, context, _gate(source))
    return Answer(
        _unfenced(answer.value.text), answer.target, answer.position, answer.degraded, answer.tries, answer.usage
    )
