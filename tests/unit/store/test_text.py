"""How text is cut into the words that search indexes and asks for."""

from __future__ import annotations

import pytest

from pipeline.store.text import index_terms, query_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Quick-Brown fox", "the quick brown fox"),
        ("docs/a.pdf v3.14", "docs a pdf v3 14"),
        ("Straße ＦＵＬＬ", "strasse full"),
        ("東京都", "東 京 都 東京 京都"),
        ("水", "水"),
        ("GPU用語 manual", "gpu 用 語 用語 manual"),
        ("हिन्दी में", "हिन्दी में"),
        ("", ""),
    ],
)
def test_words_are_folded_and_spaceless_runs_become_bigrams(text: str, terms: str) -> None:
    assert index_terms(text) == terms


def test_a_query_asks_for_bigrams_only_unless_it_is_one_character() -> None:
    assert query_terms("東京都 東京") == ["東京", "京都"]
    assert query_terms("水") == ["水"]


def test_data_posing_as_a_word_is_cut() -> None:
    assert len(index_terms("a" * 5000)) == 256
