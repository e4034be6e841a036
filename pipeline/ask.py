"""Ask: a question answered from what search finds, with citations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.domain.digest import text_digest
from pipeline.failover.records import CallContext
from pipeline.failover.target import Needs
from pipeline.failover.upstream import ChatRequest, Message, TextPart
from pipeline.search import Hit
from pipeline.stages.ports import ChatModel, estimate_tokens
from pipeline.stages.prompts import delimited, load_prompt

__all__ = ["Answered", "ask"]

_MAX_ANSWER_TOKENS = 1024
_CITATION = re.compile(r"\[(\d{1,3}(?:\s*,\s*\d{1,3})*)\]")


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and the passages it cites.

    Attributes:
        citations: (number in the answer, passage), by number. All passages, when the answer cites none of them.
        model: The target that answered; None when nothing was found and nobody was asked.
    """

    question: str
    answer: str
    citations: list[tuple[int, Hit]]
    model: str | None
    degraded: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "answer": self.answer,
            "citations": [{"number": number, **hit.to_json()} for number, hit in self.citations],
            "model": self.model,
            "degraded": self.degraded,
        }


async def ask(question: str, hits: Sequence[Hit], answerer: ChatModel, context: CallContext) -> Answered:
    """Have the ``answer_llm`` role answer from passages that ``search`` found.

    Raises:
        ChainExhausted: No target of the role answered.
        DeadlineExceeded: It took too long.
    """
    if not hits:
        return Answered(question, "Nothing was found that could answer this.", [], None, False)
    prompt = load_prompt("answer")
    passages = "\n\n".join(
        f"[{number}] {_described(hit)}\n{delimited('passage', hit.chunk.text)}" for number, hit in enumerate(hits, 1)
    )
    material = f"{passages}\n\nQuestion: {question}"
    request = ChatRequest(
        stage="answer",
        messages=(Message("system", (TextPart(prompt),)), Message("user", (TextPart(material),))),
        inputs={
            "question": question,
            "passages": [{"text": hit.chunk.text, "path": hit.chunk.uri, "heading": hit.chunk.heading} for hit in hits],
        },
        max_output_tokens=_MAX_ANSWER_TOKENS,
        input_digest=text_digest(material),
        needs=Needs(tokens_in=estimate_tokens(prompt, material), tokens_out=_MAX_ANSWER_TOKENS),
    )
    answer = await answerer.chat(request, context)
    text = answer.value.text.strip()
    return Answered(question, text, _cited(text, hits), answer.target, answer.degraded)


def _described(hit: Hit) -> str:
    pages = f"{hit.chunk.page_from}-{hit.chunk.page_to}"
    parts = [hit.chunk.title or hit.chunk.uri.rpartition("/")[2], f"pages {pages}", " > ".join(hit.chunk.heading)]
    return f"({', '.join(part for part in parts if part)})"


def _cited(text: str, hits: Sequence[Hit]) -> list[tuple[int, Hit]]:
    numbers = {int(number) for group in _CITATION.findall(text) for number in group.split(",")}
    known = sorted(number for number in numbers if 1 <= number <= len(hits))
    return [(number, hits[number - 1]) for number in known or range(1, len(hits) + 1)]
