"""``ask``: passages go in numbered, and what comes back names the passages it used."""

from __future__ import annotations

from uuid import UUID

from pipeline.ask import ask
from pipeline.domain.call import Answer
from pipeline.failover.records import CallContext
from pipeline.failover.upstream import ChatRequest, Reply
from pipeline.search import Hit
from pipeline.stages.ports import ReplyCheck
from pipeline.store.hits import ChunkHit

CONTEXT = CallContext("call")


class Answerer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.requests: list[ChatRequest] = []

    async def chat(self, request: ChatRequest, context: CallContext, check: ReplyCheck | None = None) -> Answer[Reply]:
        self.requests.append(request)
        return Answer(Reply(self.text, "stop"), "answers@host", 1, True, ())


def _hit(number: int) -> Hit:
    chunk = ChunkHit(
        number, UUID(int=number), f"/docs/{number}.md", None, number, 1, 2, ("Sea",), f"text {number}", "", False, {}
    )
    return Hit(chunk, 1.0)


async def test_an_answer_carries_the_passages_that_it_cites() -> None:
    answerer = Answerer("The tide is high [2], says the log [2, 3] and not [9].")

    answered = await ask("How is the tide?", [_hit(1), _hit(2), _hit(3)], answerer, CONTEXT)

    assert [number for number, _ in answered.citations] == [2, 3]
    assert answered.to_json()["citations"][0]["path"] == "/docs/2.md"
    assert (answered.model, answered.degraded) == ("answers@host", True)
    (request,) = answerer.requests
    assert request.inputs["question"] == "How is the tide?"
    assert [passage["text"] for passage in request.inputs["passages"]] == ["text 1", "text 2", "text 3"]


async def test_an_answer_that_cites_nothing_shows_all_its_passages() -> None:
    answered = await ask("?", [_hit(1), _hit(2)], Answerer("No idea."), CONTEXT)
    assert [number for number, _ in answered.citations] == [1, 2]


async def test_nobody_is_asked_about_nothing() -> None:
    answerer = Answerer("")
    answered = await ask("?", [], answerer, CONTEXT)
    assert answered.citations == []
    assert answerer.requests == []
