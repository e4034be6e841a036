"""Lines that an attacker would write cost what other lines cost; headings lose what closes them."""

from __future__ import annotations

import time

import pytest

from pipeline.domain.markdown import Block, BlockKind, blocks, cut


@pytest.mark.parametrize("line", ["# a{}b", "| a |\n| -{}x", "| a |\n{}-{}|{}x", "- {}a", "={}x", "```{}`"])
def test_a_line_of_spaces_takes_no_time(line: str) -> None:
    began = time.process_time()
    blocks(line.replace("{}", " " * 100_000))
    assert time.process_time() - began < 5


def test_the_signs_that_close_a_heading_are_none_of_its_words() -> None:
    headings = ["# One #", "## Two ##  ", "# C#", "# #", "#", "###  Three\t###"]
    assert [blocks(line)[0].title for line in headings] == ["One", "Two", "C#", "", "", "Three"]
    assert [block.level for line in headings for block in blocks(line)] == [1, 2, 1, 1, 1, 3]


@pytest.mark.parametrize("limit", range(12, 40))
def test_a_sign_that_fits_is_whole_wherever_its_word_is_cut(limit: int) -> None:
    word = Block(BlockKind.PARAGRAPH, "नमस्ते" * 7)
    pieces = cut(word, limit, lambda text: 2 * len(text) + 2)
    assert "".join(pieces) == word.text
    assert all(piece[0] in "नमस" and piece[-1] in "नमे" for piece in pieces)
