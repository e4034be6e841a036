from __future__ import annotations

import pytest

from pipeline.providers.local.layout import canonical


def from_text(text: str, title: str = "") -> str:
    return canonical("", text, "plain", title)


def test_wrapped_lines_are_joined_and_words_are_made_whole() -> None:
    text = (
        "This paragraph was wrapped by its type-\r\nsetter at the width of the page, and inter-\r\nnational readers "
        "want it\r\nwhole. A well-\r\nknown case is the well-known hyphen that belongs."
    )
    joined = from_text(text)
    assert "typesetter" in joined
    assert "international readers" in joined
    assert "A well-known case" in joined
    assert "\n" not in joined


def test_a_hyphen_of_pdfium_is_taken_out() -> None:
    assert from_text("consectetuer adip\x02iscing elit") == "consectetuer adipiscing elit"


def test_lines_of_scripts_without_spaces_are_joined_without_one() -> None:
    line = "これは日本語の文章で改行されています" * 3
    assert from_text(f"{line}\n{line}\n短い。") == f"{line}{line}短い。"


def test_numbered_sections_give_their_level() -> None:
    prose = "This is a full line of prose that is long enough to be seen as the width of the page.\n" * 2
    text = from_text(f"1 Introduction\n{prose}1.2 Scope\n{prose}")
    assert text.startswith("## 1 Introduction\n\n")
    assert "\n\n### 1.2 Scope\n\n" in text


def test_bullets_of_all_kinds_make_one_list() -> None:
    assert from_text("• one\n▪ two\n– three\n1) four") == "- one\n- two\n- three\n1. four"


def test_tabbed_rows_make_a_table() -> None:
    assert from_text("a\tb\n1\t2\n3\t4").splitlines() == ["| a | b |", "| --- | --- |", "| 1 | 2 |", "| 3 | 4 |"]


def test_the_title_is_the_top_heading() -> None:
    assert from_text("Annual  Report\n\nText.", "Annual report").startswith("# Annual Report\n\n")


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "\x00\x0c"])
def test_nothing_gives_nothing(text: str) -> None:
    assert canonical("", text, "plain") == ""
    assert canonical(text, "", "markdown") == ""


def test_markdown_is_written_one_way_and_code_is_left_alone() -> None:
    source = "Title\n=====\n##Sub ##\r\n\n\n\n* a\n* b\n\n```py\nx  =  1\n#no heading\n```\n| a | b |\n|---|---|\n"
    assert canonical("", source, "markdown") == (
        "# Title\n\n## Sub\n\n- a\n- b\n\n```py\nx  =  1\n#no heading\n```\n\n| a | b |\n|---|---|"
    )


def test_an_open_fence_is_closed() -> None:
    assert canonical("", "```\ncode", "markdown") == "```\ncode\n```"


def test_normalising_twice_changes_nothing() -> None:
    once = canonical("", "Intro:\n• a\n• b\n\nText that\nis wrapped here\n\n# H\ntext", "markdown")
    assert canonical("", once, "markdown") == once


def test_a_transcription_gives_the_structure_and_the_text_layer_what_it_lacks() -> None:
    prose = "The numbers below are those of the audited report, by region and by quarter, in millions."
    table = "| Region | Q1 |\n| --- | --- |\n| North | 1 |\n| South | 3 |"
    text = f"Quarterly numbers\n{prose}\nRegion Q1 North 1 South 3\n\nA restated footnote."
    merged = canonical(f"## Quarterly numbers\n\n{prose}\n\n{table}", text, "plain")
    assert merged == f"## Quarterly numbers\n\n{prose}\n\n{table}\n\nA restated footnote."


def test_a_description_of_a_figure_is_added_to_the_text() -> None:
    text = "The harbour was built in 1910 and extended in the years after the war by two basins."
    merged = canonical("A bar chart of ships by year: 1910: 40, 1920: 90.", text, "plain")
    assert merged == f"{text}\n\nA bar chart of ships by year: 1910: 40, 1920: 90."
