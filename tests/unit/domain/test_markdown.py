"""Lines that an attacker would write cost what other lines cost; headings lose what closes them."""

from __future__ import annotations

import time

import pytest

from pipeline.domain.markdown import blocks


@pytest.mark.parametrize("line", ["# a{}b", "| a |\n| -{}x", "| a |\n{}-{}|{}x", "- {}a", "={}x", "```{}`"])
def test_a_line_of_spaces_takes_no_time(line: str) -> None:
    began = time.process_time()
    blocks(line.replace("{}", " " * 100_000))
    assert time.process_time() - began < 5


def test_the_signs_that_close_a_heading_are_none_of_its_words() -> None:
    headings = ["# One #", "## Two ##  ", "# C#", "# #", "#", "###  Three\t###"]
    assert [blocks(line)[0].title for line in headings] == ["One", "Two", "C#", "", "", "Three"]
    assert [block.level for line in headings for block in blocks(line)] == [1, 2, 1, 1, 1, 3]
