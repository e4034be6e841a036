"""What floats over a workbook's cells, and the extraction library leaves out: after the table of the sheet it is on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from pipeline.documents.package import Package, line_of
from pipeline.documents.slides import plain

__all__ = ["ods_pictures", "with_pictures", "xlsx_pictures"]

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_DRAWN = "{http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_BREAKS = frozenset({f"{_A}br", f"{_A}tab"})
_WORKBOOK = "xl/workbook.xml"
_ANCHORS = ("oneCellAnchor", "twoCellAnchor", "absoluteAnchor")

_ODF = "urn:oasis:names:tc:opendocument:xmlns"
_TABLE = f"{{{_ODF}:table:1.0}}"
_DRAW = f"{{{_ODF}:drawing:1.0}}"
_SVG = f"{{{_ODF}:svg-compatible:1.0}}"
_HREF = "{http://www.w3.org/1999/xlink}href"

_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_NO_DESCRIPTION = re.compile(r"[\[\]\\]")
_MAX_COLUMN = 16_384


def xlsx_pictures(package: Package) -> Iterator[tuple[str, str]]:
    """The sheets of an XLSX over which something floats: the name, and Markdown for it, from top to bottom.

    A picture is a reference, a text box its words, a note what somebody wrote beside a cell.
    """
    book = package.xml(_WORKBOOK)
    if book is None:
        return
    parts = package.related(_WORKBOOK, "worksheet")
    for sheet in book.iter(f"{_MAIN}sheet"):
        part = parts.get(sheet.get(f"{_R}id", ""), "")
        found = [
            placed for drawing in package.related(part, "drawing").values() for placed in _anchored(package, drawing)
        ]
        blocks = [shown for _, shown in sorted(found)]
        if notes := [note for one in package.related(part, "comments").values() for note in _notes(package, one)]:
            blocks.append("\n".join(["Notes:", "", *notes]))
        if blocks:
            yield sheet.get("name", ""), "\n\n".join(blocks)


def _notes(package: Package, part: str) -> Iterator[str]:
    page = package.xml(part)
    for note in page.iter(f"{_MAIN}comment") if page is not None else ():
        words = " ".join("".join(piece.text or "" for piece in note.iter(f"{_MAIN}t")).split())
        if words:
            yield f"- {note.get('ref', '')}: {plain(words)}"


def _anchored(package: Package, drawing: str) -> Iterator[tuple[tuple[int, int], str]]:
    page = package.xml(drawing)
    images = package.related(drawing, "image")
    for anchor in page if page is not None else ():
        if anchor.tag.removeprefix(_DRAWN) not in _ANCHORS:
            continue
        place = _number(anchor, "row"), _number(anchor, "col")
        for picture in anchor.iter(f"{_DRAWN}pic"):
            shown = next(picture.iter(f"{_A}blip"), None)
            target = images.get(shown.get(f"{_R}embed", ""), "") if shown is not None else ""
            named = next(picture.iter(f"{_DRAWN}cNvPr"), None)
            if target:
                yield place, _reference(named.get("descr", "") if named is not None else "", target, _cell(place))
        # What newer programs draw is there for older ones once more.
        for words in dict.fromkeys(map(_words, anchor.iter(f"{_DRAWN}sp"))):
            if words:
                yield place, words


def _words(shape: Element) -> str:
    lines = (line_of(paragraph, f"{_A}t", _BREAKS) for paragraph in shape.iter(f"{_A}p"))
    return "\n\n".join(plain(line) for line in lines if line)


def _number(anchor: Element, name: str) -> int:
    digits = anchor.findtext(f"{_DRAWN}from/{_DRAWN}{name}") or ""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else -1


def _cell(place: tuple[int, int]) -> str:
    row, column = place
    if row < 0 or not 0 <= column < _MAX_COLUMN:
        return ""
    letters = ""
    column += 1
    while column:
        column, letter = divmod(column - 1, 26)
        letters = chr(65 + letter) + letters
    return f"{letters}{row + 1}"


def ods_pictures(package: Package) -> Iterator[tuple[str, str]]:
    """The sheets of an ODS that show pictures, likewise."""
    content = package.xml("content.xml")
    for table in content.iter(f"{_TABLE}table") if content is not None else ():
        references = []
        for frame in table.iter(f"{_DRAW}frame"):
            picture = frame.find(f"{_DRAW}image")
            if picture is not None and (target := picture.get(_HREF, "")):
                said = frame.findtext(f"{_SVG}desc") or frame.findtext(f"{_SVG}title") or ""
                references.append(_reference(said, target, ""))
        if references:
            yield table.get(f"{_TABLE}name", ""), "\n\n".join(references)


def _reference(said: str, target: str, cell: str) -> str:
    words = " ".join(_NO_DESCRIPTION.sub(" ", said).split())
    alt = f"{words or 'a picture'} at {cell}" if cell else words
    return f"![{alt}]({target.replace(' ', '%20')})"


def with_pictures(markdown: str, pictures: Iterator[tuple[str, str]]) -> str:
    """Put references after the sheets they belong to; those of a sheet without any cell come last, under its name."""
    waiting = dict(pictures)
    parts: list[str] = []
    first, *rest = _HEADING.split(markdown)
    parts.append(first)
    for name, content in zip(rest[::2], rest[1::2], strict=True):
        references = waiting.pop(_ESCAPE.sub("", name).strip(), "")
        parts.append(f"## {name}{content.rstrip()}\n\n{references}\n\n" if references else f"## {name}{content}")
    parts += [f"\n\n## {name}\n\n{references}" for name, references in waiting.items()]
    return "".join(parts)
