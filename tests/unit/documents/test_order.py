from __future__ import annotations

from pipeline.documents.lines import as_rows, heading_of, write
from pipeline.documents.order import in_reading_order
from pipeline.documents.pieces import Piece


def line(text: str, y0: float, x0: float = 40.0, height: float = 12.0) -> Piece:
    return Piece(text, x0, y0, x0 + 6 * len(text), y0 + height)


def text_of(*pieces: Piece) -> str:
    return write(as_rows(in_reading_order(list(pieces))))


def test_a_first_word_that_comes_before_the_line_above_is_put_back_into_its_line() -> None:
    first = line("Edgar", 130)
    shown = text_of(
        line("the monks were writing of", 86),
        first,
        line("the leaders of the church.", 100),
        line("mainly followed the policies of his", 130, first.x1 + 6),
        line("predecessors in all but name.", 144),
    )

    assert shown.split("\n\n") == [
        "the monks were writing of\nthe leaders of the church.",
        "Edgar mainly followed the policies of his\npredecessors in all but name.",
    ]


def test_a_table_written_column_by_column_keeps_its_order() -> None:
    pieces = [line("left one", 100), line("left two", 114), line("right one", 100, 400), line("right two", 114, 400)]

    assert in_reading_order(pieces) == pieces


def test_lines_written_from_the_bottom_up_are_put_in_order() -> None:
    upwards = [line(f"line number {number}", 100 + 14 * number) for number in reversed(range(6))]

    assert in_reading_order(upwards) == upwards[::-1]


def test_a_footer_and_a_title_that_come_out_of_turn_leave_the_lines_between_as_they_are() -> None:
    body = [line(f"left {number}", 100 + 14 * number) for number in range(6)]
    aside = [line(f"right {number}", 100 + 14 * number, 400) for number in range(6)]
    pieces = [line("footer", 700), *body, *aside, line("a title that is written last", 40)]

    assert in_reading_order(pieces) == pieces


def test_a_bracket_after_a_raised_sign_goes_on_with_its_word() -> None:
    raised = Piece("(km2", 40, 98, 62, 111)
    shown = text_of(raised, Piece(")", 62.5, 100, 66, 111))

    assert shown == "(km2)"


def test_of_a_few_lines_that_are_all_alike_the_first_is_the_heading() -> None:
    rows = as_rows([line("Rotated page fixture", 100), line("Second line of text", 116), line("Hello", 132)])

    assert heading_of(rows) == "Rotated page fixture"


def test_many_lines_that_are_all_alike_have_no_heading() -> None:
    assert heading_of(as_rows([line(f"Line number {n}", 100 + 16 * n) for n in range(6)])) is None
