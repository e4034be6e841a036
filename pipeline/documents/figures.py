"""What a PDF page draws besides text: how much of it images cover, and whether it shows a figure."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as pdfium

__all__ = ["Drawn", "look"]

_MAX_OBJECTS = 20_000
_MAX_DEPTH = 8
_FIGURE_PT = 24.0
_FIGURE_SHARE = 0.008
_STROKES = 10
_STROKES_SHARE = 0.03

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn on a page.

    Attributes:
        anything: Any image, path or shading at all.
        image_share: Share of the page under images, 0 to 1; overlaps count once for the largest.
        has_figures: An image of some size, or curves and slants over some area (a chart, a map, a drawing).
    """

    anything: bool
    image_share: float
    has_figures: bool


def look(page: Any, width_pt: float, height_pt: float) -> Drawn:
    """Look through a page's objects (pdfium's ``FPDF_PAGE``)."""
    area = max(width_pt * height_pt, 1.0)
    images: list[Box] = []
    strokes: list[Box] = []
    anything = False
    for item in _objects(page):
        kind = pdfium.FPDFPageObj_GetType(item)
        if kind == pdfium.FPDF_PAGEOBJ_TEXT:
            continue
        anything = True
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            images.append(_bounds(item))
        elif kind == pdfium.FPDF_PAGEOBJ_SHADING or (kind == pdfium.FPDF_PAGEOBJ_PATH and _is_drawing(item)):
            strokes.append(_bounds(item))
    shares = [_area(box) / area for box in images if _is_seen(box)]
    figure = any(share >= _FIGURE_SHARE for share in shares) or _is_figure(strokes, area)
    return Drawn(anything, min(1.0, sum(shares)), figure)


def _objects(page: Any) -> Iterator[Any]:
    count = pdfium.FPDFPage_CountObjects(page)
    budget = [_MAX_OBJECTS]
    for index in range(min(count, _MAX_OBJECTS)):
        yield from _flat(pdfium.FPDFPage_GetObject(page, index), 0, budget)


def _flat(item: Any, depth: int, budget: list[int]) -> Iterator[Any]:
    budget[0] -= 1
    if budget[0] < 0:
        return
    if pdfium.FPDFPageObj_GetType(item) != pdfium.FPDF_PAGEOBJ_FORM:
        yield item
    elif depth < _MAX_DEPTH:
        for index in range(pdfium.FPDFFormObj_CountObjects(item)):
            yield from _flat(pdfium.FPDFFormObj_GetObject(item, index), depth + 1, budget)


def _is_drawing(path: Any) -> bool:
    """A path that is no rule, box or underline: it has a curve, a slant, or more corners than a box."""
    count = pdfium.FPDFPath_CountSegments(path)
    if count > 6:
        return True
    before: tuple[float, float] | None = None
    for index in range(count):
        segment = pdfium.FPDFPath_GetPathSegment(path, index)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        if kind == pdfium.FPDF_SEGMENT_BEZIERTO:
            return True
        point = _point(segment)
        if kind == pdfium.FPDF_SEGMENT_LINETO and before is not None and _is_slanted(before, point):
            return True
        before = point
    return False


def _is_slanted(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return abs(one[0] - other[0]) > 1.0 and abs(one[1] - other[1]) > 1.0


# One set for all calls: the child has one thread, and making them costs more than filling them.
_FLOATS = tuple(ctypes.c_float() for _ in range(4))
_REFERENCES = tuple(map(ctypes.byref, _FLOATS))


def _point(segment: Any) -> tuple[float, float]:
    pdfium.FPDFPathSegment_GetPoint(segment, *_REFERENCES[:2])
    return _FLOATS[0].value, _FLOATS[1].value


def _bounds(item: Any) -> Box:
    if not pdfium.FPDFPageObj_GetBounds(item, *_REFERENCES):
        return 0.0, 0.0, 0.0, 0.0
    left, bottom, right, top = (value.value for value in _FLOATS)
    return left, bottom, right, top


def _area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def _is_seen(box: Box) -> bool:
    return box[2] - box[0] >= _FIGURE_PT / 2 and box[3] - box[1] >= _FIGURE_PT / 2


def _is_figure(strokes: list[Box], area: float) -> bool:
    if len(strokes) < _STROKES:
        return any(_area(box) > 4 * _STROKES_SHARE * area for box in strokes)
    left, bottom = min(box[0] for box in strokes), min(box[1] for box in strokes)
    right, top = max(box[2] for box in strokes), max(box[3] for box in strokes)
    return _area((left, bottom, right, top)) > _STROKES_SHARE * area
