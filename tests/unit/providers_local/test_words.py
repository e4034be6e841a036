from __future__ import annotations

import time

import pytest

from pipeline.providers.local.cues import cues
from pipeline.providers.local.layout import canonical
from pipeline.providers.local.words import plain, sentences, tokens


def test_runs_without_spaces_come_as_pairs() -> None:
    assert tokens("PDFは便利") == ["pdf", "は便", "便利"]
    assert tokens("ＰＤＦ Übung don't x_y") == ["pdf", "übung", "don't", "x", "y"]


def test_abbreviations_and_numbers_end_no_sentence() -> None:
    assert sentences("Dr. Smith paid 3.50 euro. He left.\n\nNo full stop") == [
        "Dr. Smith paid 3.50 euro.",
        "He left.",
        "No full stop",
    ]
    assert sentences("これはペンです。あれは本です。") == ["これはペンです。", "あれは本です。"]


def test_markdown_reads_as_plain_text() -> None:
    assert plain("# A *b*\n\n[c](d) snake_case 2*3").split("\n\n") == ["A b", "c snake_case 2*3"]


@pytest.mark.parametrize(
    "piece", ["[", "*", "|", " ", "-", "- ", "a-", "1.", "! ", "![a](", "Aa ", "カ", "漢", "\n", "|-", "# "]
)
def test_hostile_repetition_takes_no_quadratic_time(piece: str) -> None:
    text = piece * (20_000 // len(piece))
    started = time.process_time()
    canonical(text, text, "plain")
    canonical(text, text, "markdown")
    cues(text, "", "", text[:200], text[:200])
    assert time.process_time() - started < 3.0
