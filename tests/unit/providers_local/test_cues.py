from __future__ import annotations

from pipeline.providers.local.cues import cues

ENGLISH = (
    "A cooldown is the time for which a failing target is skipped. It grows with each failure. "
    "New York University measured the cooldown of every target. Why does a target fail?"
)


def test_context_says_where_and_what() -> None:
    found = cues(ENGLISH, ("Operations", "Failover"), "Handbook", "", "")
    assert found["context"].startswith("Handbook › Operations › Failover: A cooldown is the time")


def test_keywords_tell_the_subject_as_it_is_written() -> None:
    keywords = cues(ENGLISH, (), "", "", "")["keywords"]
    assert {"cooldown", "New York University"} <= set(keywords)
    assert not {"the", "which", "York"} & set(keywords)


def test_questions_are_the_texts_own_and_its_definitions() -> None:
    assert cues(ENGLISH, (), "", "", "")["questions"] == ["Why does a target fail?", "What is a cooldown?"]


def test_scripts_without_spaces_have_keywords() -> None:
    chinese = cues("人工智能是计算机科学的分支。神经网络需要数据。神经网络处理数据。", "", "", "", "")
    assert {"人工智能", "神经网络"} <= set(chinese["keywords"])
    assert "人工智能是什么？" in chinese["questions"]
    japanese = cues("人工知能とは、人間を模倣する技術である。データベースを使う。", "", "", "", "")
    assert {"人工知能", "データベース"} <= set(japanese["keywords"])


def test_marks_of_markdown_are_no_words() -> None:
    found = cues(
        "# Pumps\n\n| Part | No |\n| --- | --- |\n| [Impeller](http://x.example/a) | **77** |", "Pumps", "", "", ""
    )
    assert "---" not in found["context"]
    assert "Impeller" in found["keywords"]


def test_an_empty_chunk_has_only_its_place() -> None:
    assert cues("", "A", "T", "", "") == {"context": "T › A", "keywords": [], "questions": []}


def test_a_long_sentence_is_shortened() -> None:
    assert len(cues("word " * 400, "", "", "", "")["context"]) <= 241
