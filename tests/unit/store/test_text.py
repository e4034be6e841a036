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
        ("水\n位", "水 水位 位"),
        ("제외 대상", "제 외 제외 외대 대 상 대상"),
        ("潮、汐|水", "潮 汐 水"),
        ("العَرَبِيَّة العـربية", "العربية العربية"),
        ("שָׁלוֹם", "שלום"),
        ("\u202bمی\u200cشود\u202c har\u00adbour", "میشود harbour"),
        ("葛\U000e0100城", "葛 城 葛城"),
        ("ﾀｲﾄﾞ", "タ イ ド タイ イド"),
        ("हिन्दी में", "हिन्दी में"),
        ("", ""),
    ],
)
def test_words_are_folded_and_spaceless_runs_become_bigrams(text: str, terms: str) -> None:
    assert index_terms(text) == terms


def test_a_query_asks_for_bigrams_only_unless_it_is_one_character() -> None:
    assert query_terms("東京都 東京") == ["東京", "京都"]
    assert query_terms("水") == ["水"]
    assert query_terms("제외 대상") == ["제외", "대상"]


def test_a_word_that_a_lines_end_or_a_space_tore_apart_is_indexed_whole() -> None:
    for word, torn in (("水位", "记录水\n位"), ("水閘", "関閉水 閘"), ("제외대상", "적립 제외 대상")):
        assert set(query_terms(word)) <= set(index_terms(torn).split())


def test_data_posing_as_a_word_is_cut() -> None:
    assert len(index_terms("a" * 5000)) == 256
