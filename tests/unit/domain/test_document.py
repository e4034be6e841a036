from __future__ import annotations

import pytest

from pipeline.domain.document import TextQuality, says_something, usable_text

WORDS = "The gate opens at half tide"


@pytest.mark.parametrize("description", [None, "", "6"])
def test_a_partial_text_stands_in_where_the_picture_gave_little(description: str | None) -> None:
    assert usable_text(WORDS, TextQuality.PARTIAL, description) == WORDS


def test_a_partial_text_makes_way_for_what_the_picture_said() -> None:
    assert usable_text(WORDS, TextQuality.PARTIAL, "The gate opens at half tide, and closes at noon") == ""


@pytest.mark.parametrize("description", [None, "", WORDS])
def test_a_good_text_is_always_used_and_a_poor_one_never(description: str | None) -> None:
    assert usable_text(WORDS, TextQuality.GOOD, description) == WORDS
    assert usable_text(WORDS, TextQuality.POOR, description) == ""


@pytest.mark.parametrize(
    "text", ["", " \u00a0\u200b\u3000\n", "---", "* * *", "| | |\n| --- | --- |", "•", "─────", "→"]
)
def test_rules_bullets_and_dashes_say_nothing(text: str) -> None:
    assert not says_something(text)


@pytest.mark.parametrize("text", ["a", "7", "水", "①", "😀", "★", "- ½"])
def test_letters_digits_and_signs_do(text: str) -> None:
    assert says_something(text)
