"""What a PDF page draws besides text: how much of it images cover, and whether it shows a figure."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

__all__ = ["Drawn", "look"]

_MAX_OBJECTS = 20_000
_MAX_DEPTH = 8
_FIGURE_PT = 24.0
_FIGURE_SHARE = 0.008
_COVER_SHARE = 0.7
_OPAQUE = 230
# An image is rendered at a pixel a point to see whether it covers: on a page of four by four metres that is too much.
_MAX_LOOK_PT2 = 40e6
_STROKES = 10
_SLANT_PT = 1.0
_STROKES_SHARE = 0.03

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn on a page.

    Attributes:
        anything: Any image, path or shading at all.
        image_share: Share of the page under images, 0 to 1; overlaps count once for the largest.
        hidden_text: Share of the page's texts that an image of the whole page was drawn over, 0 to 1.
        has_figures: An image of some size, or curves and slants over some area (a chart, a map, a drawing).
    """

    anything: bool
    image_share: float
    hidden_text: float
    has_figures: bool


def look(page: pypdfium2.PdfPage, width_pt: float, height_pt: float) -> Drawn:
    """Look through a page's objects."""
    if _is_text_alone(page.raw):
        return Drawn(anything=False, image_share=0.0, hidden_text=0.0, has_figures=False)
    area = max(width_pt * height_pt, 1.0)
    images: list[Box] = []
    strokes: list[Box] = []
    anything = False
    texts = hidden = 0
    for item, is_nested in _objects(page.raw):
        kind = pdfium.FPDFPageObj_GetType(item)
        if kind == pdfium.FPDF_PAGEOBJ_TEXT:
            texts += 1
            continue
        anything = True
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            images.append(_bounds(item))
            # What is nested has the box of its form, not of the page.
            covers = texts > hidden and not is_nested and _COVER_SHARE * area < _area(images[-1]) < _MAX_LOOK_PT2
            if covers and not _shows_through(page, item):
                hidden = texts
        elif kind == pdfium.FPDF_PAGEOBJ_SHADING or (kind == pdfium.FPDF_PAGEOBJ_PATH and _is_drawing(item)):
            strokes.append(_bounds(item))
    shares = [_area(box) / area for box in images if _is_seen(box)]
    figure = any(share >= _FIGURE_SHARE for share in shares) or _is_figure(strokes, area)
    return Drawn(anything, min(1.0, sum(shares)), hidden / texts if texts else 0.0, figure)


def _is_text_alone(page: Any) -> bool:
    """Whether a page draws nothing but text, as most do: that needs no look at each object."""
    count = min(pdfium.FPDFPage_CountObjects(page), _MAX_OBJECTS)
    items = map(pdfium.FPDFPage_GetObject, repeat(page), range(count))
    return all(kind == pdfium.FPDF_PAGEOBJ_TEXT for kind in map(pdfium.FPDFPageObj_GetType, items))


def _shows_through(page: pypdfium2.PdfPage, image: Any) -> bool:
    """Whether what lies under an image can be seen: only its rendering tells whether it has a mask."""
    if pdfium.FPDFPageObj_HasTransparency(image):
        return True
    raw = pdfium.FPDFImageObj_GetRenderedBitmap(page.pdf.raw, page.raw, image)
    if not raw:
        return True
    with closing(pypdfium2.PdfBitmap.from_raw(raw)) as bitmap:
        picture = bitmap.to_pil()
        if "A" not in picture.getbands():
            return False
        opacity = picture.getchannel("A").histogram()
        return bool(sum(opacity[_OPAQUE:]) < _COVER_SHARE * sum(opacity))


def _objects(page: Any) -> Iterator[tuple[Any, bool]]:
    """The page's objects in the order they are drawn, and whether a form holds them."""
    count = pdfium.FPDFPage_CountObjects(page)
    budget = [_MAX_OBJECTS]
    for index in range(min(count, _MAX_OBJECTS)):
        item = pdfium.FPDFPage_GetObject(page, index)
        is_form = pdfium.FPDFPageObj_GetType(item) == pdfium.FPDF_PAGEOBJ_FORM
        for one in _flat(item, 0, budget):
            yield one, is_form


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
        if (
            kind == pdfium.FPDF_SEGMENT_LINETO
            and before is not None
            and abs(before[0] - point[0]) > _SLANT_PT
            and abs(before[1] - point[1]) > _SLANT_PT
        ):
            return True
        before = point
    return False


# One set for all calls: the child has one thread, and making them costs more than filling them.
_FLOATS = tuple(ctypes.c_float() for _ in range(4))
_REFERENCES = tuple(map(ctypes.byref, _FLOATS))
_POINT_REFERENCES = _REFERENCES[:2]


def _point(segment: Any) -> tuple[float, float]:
    pdfium.FPDFPathSegment_GetPoint(segment, *_POINT_REFERENCES)
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
