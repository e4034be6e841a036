"""The quality benchmark measures what it says: page sets, recall and characters; and Chinese documents are found."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from benchmarks.accuracy import accuracy, edits, known_texts
from benchmarks.quality import Asked, Score, asked_of, measure, passages, recall, table
from benchmarks.questions import CORPUS_QUESTIONS, EXAMPLE_QUESTIONS, Question
from examples.make import FILES, HERE, REPORT_1987
from pipeline.search import Hit
from pipeline.store.hits import ChunkHit


def hit(file: str, first: int, last: int) -> Hit:
    chunk = ChunkHit(1, uuid4(), f"/somewhere/{file}", None, 1, first, last, (), "text", "", False, {})
    return Hit(chunk, 1.0)


def test_recall_is_the_share_of_the_pages_that_the_hits_cover() -> None:
    pages = frozenset({("a.pdf", 2), ("a.pdf", 3), ("b.pdf", 1), ("b.pdf", 2)})
    assert recall([hit("a.pdf", 1, 2), hit("a.pdf", 2, 2), hit("c.pdf", 1, 1)], pages) == 0.25
    assert recall([hit("a.pdf", 2, 3), hit("b.pdf", 1, 2)], pages) == 1
    assert recall([hit("b.pdf", 3, 3)], pages) == 0


def test_more_pages_than_hits_count_as_many_as_hits() -> None:
    assert recall([hit("a.pdf", 1, 5)], frozenset(("a.pdf", number) for number in range(1, 9))) == 1


def test_a_questions_pages_are_those_that_hold_its_answer() -> None:
    stored = {"a.pdf": {1: "Nothing.", 2: "The **level** is\n2.10 m.", 3: "At 2.10 m it closes."}}
    asked = asked_of([Question("which level?", "a.pdf", "2.10 m"), Question("who?", "gone.pdf", "x")], stored)
    assert asked == [Asked("questions", "which level?", frozenset({("a.pdf", 2), ("a.pdf", 3)}))]


def test_pages_that_ocr_misread_all_count() -> None:
    (asked,) = asked_of([Question("水位？", "a.pdf", "水位")], {"a.pdf": {1: "永位", 2: "别的"}})
    assert asked.kind == "questions in Chinese, Japanese, Korean"
    assert asked.pages == {("a.pdf", 1), ("a.pdf", 2)}


def test_a_passage_that_stands_on_two_pages_has_both_in_its_set() -> None:
    letter = "Twenty thousand bottles, ten thousand blankets and two hundred laptops were delivered."
    stored = {"a.pdf": {1: letter, 2: letter}, "b.pdf": {1: "Short."}}
    (asked,) = passages(stored)
    assert asked.pages == {("a.pdf", 1), ("a.pdf", 2)}
    assert "bottles" in asked.query


def test_each_example_and_its_answers_are_known() -> None:
    assert {one.file for one in EXAMPLE_QUESTIONS} == set(FILES)
    corpus = HERE.parents[1] / "shared" / "corpus"
    if corpus.is_dir():
        assert [one.file for one in CORPUS_QUESTIONS if not (corpus / one.file).is_file()] == []


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("kitten", "sitting", 3),
        ("潮闸报告", "潮闻报告", 1),
        ("ab", "ba", 2),
    ],
)
def test_edits_are_counted_as_by_levenshtein(one: str, other: str, distance: int) -> None:
    assert edits(one, other) == distance


def test_marks_and_white_space_are_no_mistakes_and_letters_are() -> None:
    assert accuracy(f"# {REPORT_1987}", REPORT_1987) == 1
    assert accuracy("| a | b |\n| --- | --- |\n| c | d |", "a b c d") == 1
    assert accuracy("abxd", "a b\nc d") == 0.75
    assert accuracy("", "abc") == 0


def test_known_texts_begin_with_the_scans_that_were_drawn_from_them() -> None:
    names = [one.name for one in known_texts(None)]
    assert len(names) == 6
    assert names[2].startswith("storm-inspection-zh.pdf")


def test_chinese_and_korean_documents_are_found_by_words_of_two_letters_and_by_questions(tmp_path: Path) -> None:
    asked = [one for one in EXAMPLE_QUESTIONS if one.file.endswith(("-zh.pdf", "-zh.docx", "-ko.pdf"))]
    files = [HERE / name for name in ("tide-gate-handbook.pdf", *dict.fromkeys(one.file for one in asked))]
    scores = [one for one in measure(files, asked, tmp_path) if one.kind.startswith("questions")]
    assert {(one.retrieve, one.mode) for one in scores} == {
        (retrieve, mode) for retrieve in ("with", "without") for mode in ("text", "vector", "hybrid")
    }
    assert {one.queries for one in scores} == {len(asked)}
    assert [one.missed for one in scores if one.mode != "vector"] == [[], [], [], []]


def test_the_table_has_a_row_a_kind_and_stage() -> None:
    scores = [
        Score("questions", stage, mode, 3, 0.5, [])
        for stage in ("with", "without")
        for mode in ("text", "vector", "hybrid")
    ]
    assert "| 3 questions | without | 0.50 | 0.50 | 0.50 |" in table(scores, [])
