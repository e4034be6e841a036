"""Charts and diagrams of Office documents, which the extraction library leaves out: their numbers and words."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from pipeline.documents.package import Package, line_of
from pipeline.documents.slides import plain
from pipeline.documents.text import table_rows

__all__ = ["graphics"]

_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_D = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
# The points of a diagram that people write; the others are about how it looks.
_WRITTEN = frozenset({"node", "asst"})
_MAX_CELLS = 20_000


def graphics(package: Package, part: str) -> Iterator[str]:
    """Markdown for each chart (a table) and each diagram (a list) that a part of a document shows.

    Args:
        package: The document.
        part: A slide, or the text of a DOCX.
    """
    for name in package.related(part, "chart").values():
        chart = package.xml(name)
        if chart is not None and (table := _chart(chart)):
            yield table
    for name in package.related(part, "diagramData").values():
        diagram = package.xml(name)
        if diagram is not None and (lines := list(_points(diagram))):
            yield "\n".join(f"- {plain(line)}" for line in lines)


def _chart(chart: Element) -> str:
    """Each series is a column; what it is drawn over comes first."""
    title = next((" ".join(_words(one)) for one in chart.iter(f"{_C}title")), "")
    series = list(chart.iter(f"{_C}ser"))
    over: dict[int, str] = {}
    columns: list[dict[int, str]] = []
    cells = 0
    for one in series:
        over |= _values(one, "cat") | _values(one, "xVal")
        columns.append(_values(one, "val") | _values(one, "yVal"))
        cells += len(columns[-1])
        if cells > _MAX_CELLS:
            break
    rows = sorted(set(over).union(*columns))[: _MAX_CELLS // max(1, len(columns))]
    names = [next((value.text or "" for value in one.iterfind(f"{_C}tx//{_C}v")), "") for one in series[: len(columns)]]
    table = [["", *names], *([over.get(row, ""), *(column.get(row, "") for column in columns)] for row in rows)]
    return "\n\n".join(filter(None, [plain(title), table_rows(table) if columns else ""]))


def _values(series: Element, of: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for point in series.iterfind(f"{_C}{of}//{_C}pt"):
        place, value = point.get("idx", ""), point.findtext(f"{_C}v")
        if value and place.isascii() and place.isdigit() and len(place) < 8:
            found[int(place)] = value
    return found


def _points(diagram: Element) -> Iterator[str]:
    for point in diagram.iter(f"{_D}pt"):
        if point.get("type", "node") in _WRITTEN and (words := " ".join(_words(point))):
            yield words


def _words(item: Element) -> Iterator[str]:
    for paragraph in item.iter(f"{_A}p"):
        if words := line_of(paragraph, f"{_A}t", frozenset({f"{_A}br"})):
            yield words
