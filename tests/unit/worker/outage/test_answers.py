"""What the stages put into a prompt is what the simulated primaries take out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pipeline.domain.call import Answer
from pipeline.domain.document import TextFormat
from pipeline.failover.records import CallContext
from pipeline.failover.upstream import ChatRequest, Reply
from pipeline.providers.payload import chat_messages, chat_options
from pipeline.stages.describe import DescribeInput, describe
from pipeline.stages.format import FormatInput, format_page
from pipeline.stages.ports import ReplyCheck
from pipeline.stages.retrieve import RetrieveInput, retrieve
from worker.outage.answers import VISION, Answerer, BadRequestError, read_request

_PAGE = DescribeInput(3, b"\x89PNG no image", "image/png", "Cobbler's Sluice")
_FORMAT = FormatInput(1, "Gate log", None, "Gate log\n\nThe seal was greased.", TextFormat.PLAIN)
_CHUNK = RetrieveInput("The seal was greased.", ("Gate log", "Work"), "Gate log", "before it", "after it")


class _Sent(Exception):
    pass


class _Catcher:
    """A model that keeps what it is asked."""

    request: ChatRequest

    async def chat(self, request: ChatRequest, context: CallContext, check: ReplyCheck | None = None) -> Answer[Reply]:
        self.request = request
        raise _Sent


@pytest.mark.parametrize(
    ("model", "call"),
    [
        (VISION, lambda catcher: describe(_PAGE, catcher, CallContext("c"))),
        ("big-text", lambda catcher: format_page(_FORMAT, catcher, CallContext("c"))),
        ("big-text", lambda catcher: retrieve(_CHUNK, catcher, CallContext("c"))),
    ],
    ids=["describe", "format", "retrieve"],
)
async def test_the_material_is_the_same_on_both_sides(
    model: str, call: Callable[[_Catcher], Awaitable[object]]
) -> None:
    catcher = _Catcher()
    with pytest.raises(_Sent):
        await call(catcher)
    sent = catcher.request
    body = chat_options(sent) | {"model": model, "messages": chat_messages(sent.messages), "stream": sent.stream}
    read = read_request(body)
    assert read.stage == sent.stage
    # Neither is in the prompt, and no model over HTTP needs them.
    unsaid = {"page_number", "text_is_good"}
    expected = {name: value or "" for name, value in sent.inputs.items() if name not in unsaid}
    assert {name: value or "" for name, value in read.inputs.items() if name not in unsaid} == expected


async def test_answers_are_worked_out() -> None:
    answerer = Answerer()
    try:
        body = {
            "model": "big-text",
            "messages": [{"role": "user", "content": "<text_layer>\n# Log\n\n- greased\n</text_layer>"}],
        }
        assert await answerer.answer(read_request(body)) == "# Log\n\n- greased"
    finally:
        await answerer.close()


@pytest.mark.parametrize(
    "body",
    [
        {"model": "big-text"},
        {"model": VISION, "messages": [{"role": "user", "content": "no image"}]},
        {"model": VISION, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 7}]}]},
    ],
)
def test_what_is_none_of_the_stages_requests_is_a_bad_one(body: dict[str, object]) -> None:
    with pytest.raises(BadRequestError):
        read_request(body)
