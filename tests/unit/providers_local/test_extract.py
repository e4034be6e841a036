from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.providers.local.extract import NOTHING_FOUND, extract

PASSAGES: list[str | Mapping[str, Any]] = [
    "The harbour was built in 1910. It has two basins.",
    {"text": "If the pump fails, the engine overheats. Replace the pump every 60,000 km."},
]


def test_the_sentence_that_answers_is_cited() -> None:
    assert extract("When was the harbour built?", PASSAGES) == "The harbour was built in 1910. [1]"
    assert extract("What happens when the pump fails?", PASSAGES).startswith(
        "If the pump fails, the engine overheats. [2]"
    )


def test_other_forms_of_a_word_are_found() -> None:
    assert "[2]" in extract("pumps failing", PASSAGES)


def test_scripts_without_spaces_are_answered() -> None:
    assert extract("神经网络需要什么", ["港口建于1910年。", "神经网络需要大量数据。"]) == "神经网络需要大量数据。 [2]"


def test_nothing_is_made_up() -> None:
    assert extract("What is the price of bananas?", PASSAGES) == NOTHING_FOUND
    assert extract("Anything?", []) == NOTHING_FOUND
