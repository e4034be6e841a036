from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.providers.local.gutters import part_at_gutters

PAGE = (600, 1000, 3)


def box(x0: int, y: int, x1: int) -> list[list[int]]:
    return [[x0, y], [x1, y], [x1, y + 20], [x0, y + 20]]


def page(boxes: list[list[list[int]]], gutter: tuple[int, int] | None) -> npt.NDArray[np.uint8]:
    """White, with stripes of ink in each box, but none in the gutter."""
    pixels = np.full(PAGE, 255, dtype=np.uint8)
    for (x0, y0), _, (x1, y1), _ in boxes:
        pixels[y0 + 4 : y1 - 4, x0:x1:3] = 0
    if gutter:
        pixels[:, gutter[0] : gutter[1]] = 255
    return pixels


def columns() -> list[list[list[int]]]:
    return [b for y in range(100, 400, 30) for b in (box(80, y, 480), box(500, y, 900))]


def parted(boxes: list[list[list[int]]], gutter: tuple[int, int] | None) -> list[list[list[float]]]:
    answer: list[list[list[float]]] = part_at_gutters(page(boxes, gutter), np.array(boxes, dtype=np.float32)).tolist()
    return answer


def test_a_line_over_the_gutter_is_two_lines() -> None:
    boxes = [*columns(), box(80, 400, 900)]
    assert parted(boxes, (480, 500))[-2:] == [box(80, 400, 490), box(490, 400, 900)]


def test_a_line_with_ink_in_the_gutter_is_one_line() -> None:
    assert len(parted([*columns(), box(80, 40, 900)], None)) == 21


def test_a_page_without_columns_is_left_alone() -> None:
    boxes = [box(80, y, 900) for y in range(100, 400, 30)]
    assert parted(boxes, (480, 500)) == boxes
