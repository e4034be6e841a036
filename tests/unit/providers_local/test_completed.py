"""OCR that could read little of a page gives the page's own words, where those are believed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest, Message, TextPart
from pipeline.providers.local import LocalUpstream
from pipeline.providers.local.layout import completed
from pipeline.providers.local.pool import ChildPool
from pipeline.stages.fidelity import lost_words

_TEXT = "\n".join(
    f"The keeper of gate {name} writes the level of the tide into the book and rings the harbour office"
    for name in ("north", "south", "east", "west", "middle")
)


class Reads:
    """A pool whose children read one text in every picture."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def run(self, job: dict[str, Any], image: bytes) -> dict[str, str]:
        return {"text": self._text}


async def described(read: str, *, is_good: bool) -> str:
    upstream = LocalUpstream(pool=cast("ChildPool", Reads(read)))
    request = ChatRequest(
        stage="describe",
        messages=(Message("user", (TextPart("read"),)),),
        inputs={"image": b"picture", "text": _TEXT, "text_is_good": is_good, "page_number": 1},
    )
    return (await upstream.chat(Target("local/ocr@local", "ocr", "local/ocr"), request)).text


@pytest.mark.parametrize("read", ["", "Figure: a chart", "Tne kepr 0f g4te"])
async def test_a_text_layer_that_is_believed_stands_in_for_what_was_not_read(read: str) -> None:
    answer = await described(read, is_good=True)
    assert lost_words(_TEXT, answer) is None
    assert all(word in answer for word in read.split())


async def test_a_text_layer_that_is_not_believed_does_not() -> None:
    assert await described("Figure: a chart", is_good=False) == "Figure: a chart"
    assert await described("", is_good=False) == "BLANK"


def test_a_page_that_was_read_well_stays_as_it_was_read() -> None:
    read = _TEXT.replace("harbour", "harb0ur")
    assert completed(read, _TEXT) == read
