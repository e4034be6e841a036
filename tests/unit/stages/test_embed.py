"""What a chunk's vector is made of, and that it is never more than the model takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.providers.local import count_tokens
from pipeline.stages.embed import embedding_text, tokens_at_most

_HEADING = ("Handbook", "Gates", "Closing by hand")
_CONTEXT = "How the gates of the harbour are closed when the hydraulic pressure has fallen. It takes two people."


def test_context_and_heading_path_stand_before_the_chunk() -> None:
    assert embedding_text("Turn it.", _HEADING, _CONTEXT) == (
        f"{_CONTEXT}\n\nHandbook > Gates > Closing by hand\n\nTurn it."
    )
    assert embedding_text("Turn it.", (), " ") == "Turn it."


def test_without_room_for_all_the_innermost_heading_and_the_contexts_beginning_stay() -> None:
    assert embedding_text("Turn it.", _HEADING, _CONTEXT, room=40) == (
        "How the gates of the\n\nHandbook > Gates > Closing by hand\n\nTurn it."
    )
    assert embedding_text("Turn it.", _HEADING, _CONTEXT, room=14) == "Closing by hand\n\nTurn it."
    assert embedding_text("Turn it.", _HEADING, _CONTEXT, room=0) == "Turn it."


_words = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "Saltmere",
                "harbour's",
                "gates,",
                "levels;",
                "Überlaufwehr",
                "überschwemmt",
                "2.40",
                "m!",
                "xkcdqz",
                "0x7f3a",
                "%$#@",
            ]
        ),
        st.text(st.characters(min_codepoint=0x80, exclude_categories=["Cs"]), max_size=12),
        st.from_regex(r"[0-9,.:/-]{1,12}", fullmatch=True),
    ),
    max_size=60,
).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(
    heading=st.lists(_words, max_size=4),
    context=_words,
    room=st.integers(0, 120),
)
def test_what_stands_before_a_chunk_takes_no_more_than_its_room(heading: list[str], context: str, room: int) -> None:
    text = "Turn the crank clockwise."
    whole = embedding_text(text, heading, context, room)
    assert whole.endswith(text)
    assert count_tokens(whole) <= count_tokens(text) + room


@pytest.mark.parametrize(
    "text",
    [
        "Lowenna Bright keeps the gate.",
        "2,350.00 £ on 14/11/2025",
        "值班人员每小时记录水位",
        "يفتح الحارس البوابة",
        "😀",
        "xkcdqz",
    ],
)
def test_tokens_are_never_underestimated(text: str) -> None:
    assert tokens_at_most(text) >= count_tokens(text) - 1
