from __future__ import annotations

import math

from pipeline.providers.local.reading import Line, transcribe

WIDTH, HEIGHT = 1000, 1400


def line(text: str, x: float, y: float, h: float = 20.0, width: float | None = None) -> Line:
    w = width if width is not None else len(text) * h * 0.45
    return Line(((x, y), (x + w, y), (x + w, y + h), (x, y + h)), text)


def turned(source: Line, degrees: float) -> Line:
    a = math.radians(degrees)
    cx, cy = WIDTH / 2, HEIGHT / 2
    return Line(
        tuple(
            (
                cx + (x - cx) * math.cos(a) - (y - cy) * math.sin(a),
                cy + (x - cx) * math.sin(a) + (y - cy) * math.cos(a),
            )
            for x, y in source.box
        ),
        source.text,
    )


def two_columns() -> list[Line]:
    left = [line(f"left column prose, line number {i}", 80, 200 + 28 * i, width=390) for i in range(8)]
    right = [line(f"right column prose, line number {i}", 490, 200 + 28 * i, width=390) for i in range(8)]
    title = line("A title over both of the columns", 200, 120, h=34)
    foot = line("and a line below both of them, quite long", 300, 500)
    return [item for pair in zip(right, left, strict=True) for item in pair] + [foot, title]


def test_no_lines_are_no_text() -> None:
    assert transcribe([], WIDTH, HEIGHT) == ""


def test_columns_are_read_one_after_the_other() -> None:
    text = transcribe(two_columns(), WIDTH, HEIGHT)
    assert text.startswith(("# A title over both", "## A title over both"))
    assert text.index("left column prose, line number 7") < text.index("right column prose, line number 0")
    assert text.endswith("and a line below both of them, quite long")


def test_a_page_that_was_scanned_askew_reads_the_same() -> None:
    assert transcribe([turned(item, 2.0) for item in two_columns()], WIDTH, HEIGHT) == transcribe(
        two_columns(), WIDTH, HEIGHT
    )


def test_rows_of_cells_become_a_table() -> None:
    head = [line("Item", 100, 100), line("Price", 400, 100), line("Note|s", 600, 100)]
    rows = [
        item for i in range(4) for item in (line(f"thing {i}", 100, 140 + 40 * i), line(f"{i}.50", 400, 140 + 40 * i))
    ]
    text = transcribe([*head, *rows], WIDTH, HEIGHT)
    assert text.splitlines()[:3] == ["| Item | Price | Note\\|s |", "| --- | --- | --- |", "| thing 0 | 0.50 |  |"]


def test_large_letters_are_headings_and_bullets_are_not() -> None:
    body = [line(f"plain text that goes on and on, {i}", 80, 300 + 28 * i) for i in range(4)]
    text = transcribe([line("Chapter One", 80, 100, h=40), line("• a big bullet", 80, 200, h=30), *body], WIDTH, HEIGHT)
    assert text.startswith("# Chapter One\n\n• a big bullet")


def test_a_gap_parts_paragraphs_and_lines_stay_lines() -> None:
    lines = [line(f"a line of the first, number {i}", 80, 100 + 28 * i, width=600) for i in range(3)]
    lines += [line(f"a line of the second, number {i}", 80, 220 + 28 * i, width=600) for i in range(3)]
    assert [len(block.splitlines()) for block in transcribe(lines, WIDTH, HEIGHT).split("\n\n")] == [3, 3]
