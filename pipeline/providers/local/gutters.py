"""Parting detected lines that run over the gutter between two columns, before they are read.

The detector takes two lines for one where the gutter is hardly wider than the space between words; read as one, they
would end both columns there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["part_at_gutters"]

Pixels = npt.NDArray[np.uint8]
Boxes = npt.NDArray[np.float32]

_MIN_LINES = 5
# A line of prose is this many times as long as it is high.
_PROSE_RATIO = 8.0
_MAX_COLUMNS = 4


def part_at_gutters(pixels: Pixels, boxes: Boxes) -> Boxes:
    """The boxes, those cut in two that cross a gutter which other lines keep to and in which they have no ink.

    Args:
        pixels: The upright page, height x width x 3.
        boxes: Corners from the top left clockwise, n x 4 x 2 (px).
    """
    for _ in range(_MAX_COLUMNS - 1):
        parted = _part_once(pixels, boxes)
        if len(parted) == len(boxes):
            return boxes
        boxes = parted
    return boxes


def _part_once(pixels: Pixels, boxes: Boxes) -> Boxes:
    low, high = boxes.min(axis=1), boxes.max(axis=1)
    unit = float(np.median(high[:, 1] - low[:, 1]))
    prose = (high[:, 0] - low[:, 0]) > _PROSE_RATIO * unit
    x = _gutter(low[prose, 0], high[prose, 0])
    if x is None:
        return boxes
    kept: list[npt.NDArray[np.float32]] = []
    for box, (x0, y0), (x1, y1) in zip(boxes, low, high, strict=True):
        crosses = x0 < x - 4 * unit and x1 > x + 4 * unit and y1 - y0 < 1.5 * unit
        if crosses and _blank(pixels, (x - 0.3 * unit, y0, x + 0.3 * unit, y1), (x0, x1)):
            kept.extend(_cut(box, x))
        else:
            kept.append(box)
    return np.asarray(kept, dtype=np.float32)


def _gutter(starts: npt.NDArray[np.float32], ends: npt.NDArray[np.float32]) -> float | None:
    """The middle of the strip that has most lines on both its sides, more than cross it; None when few have."""
    best, best_lines = None, _MIN_LINES - 1
    for end in np.unique(ends):
        left, right = ends <= end, starts > end
        lines = int(min(left.sum(), right.sum()))
        if lines > best_lines and lines >= len(ends) - int(left.sum()) - int(right.sum()):
            opposite = float(starts[right].min())
            best, best_lines = (float(ends[ends <= opposite].max()) + opposite) / 2, lines
    return best


def _blank(pixels: Pixels, strip: tuple[float, float, float, float], whole: tuple[float, float]) -> bool:
    x0, y0, x1, y1 = (max(0, round(v)) for v in strip)
    line = pixels[y0:y1, max(0, round(whole[0])) : round(whole[1])].mean(axis=2)
    inside = pixels[y0:y1, x0:x1].mean(axis=2)
    if not inside.size or not line.size:
        return False
    return float(np.ptp(inside)) < 0.3 * float(np.ptp(line))


def _cut(box: npt.NDArray[np.float32], x: float) -> list[npt.NDArray[np.float32]]:
    top_left, top_right, bottom_right, bottom_left = box

    def at(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        share = (x - a[0]) / (b[0] - a[0])
        point: npt.NDArray[np.float32] = (a + share * (b - a)).astype(np.float32)
        return point

    top, bottom = at(top_left, top_right), at(bottom_left, bottom_right)
    return [
        np.stack([top_left, top, bottom, bottom_left]),
        np.stack([top, top_right, bottom_right, bottom]),
    ]
