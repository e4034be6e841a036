"""What the extraction library leaves out of slides: order, notes and some shapes of a PPTX, and all of an ODP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from pipeline.documents.package import Package, in_utf8, line_of, rewritten
from pipeline.documents.text import table_rows

__all__ = ["odp_slides", "plain", "pptx_slides", "pptx_text", "restore_bars"]

_RID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDE_NUMBER = re.compile(r"([0-9]{1,8})\.xml$")
_PRESENTATION = "ppt/presentation.xml"
# Placeholders of a notes page that hold no notes: the slide's picture, its number, the date, header and footer.
_NO_NOTES = frozenset({"sldImg", "sldNum", "dt", "hdr", "ftr"})

_ODF = "urn:oasis:names:tc:opendocument:xmlns"
_TEXT = f"{{{_ODF}:text:1.0}}"
_TABLE = f"{{{_ODF}:table:1.0}}"
_DRAW = f"{{{_ODF}:drawing:1.0}}"
_SHOWN = f"{{{_ODF}:presentation:1.0}}"
_SVG = f"{{{_ODF}:svg-compatible:1.0}}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_SLIDE = re.compile(r"ppt/slides/slide\d+\.xml$")
# None goes past the next one's beginning: a file may open any number.
_CHOICE = re.compile(
    r"<mc:AlternateContent\b[^<>]*>\s*<mc:Choice\b[^<>]*>((?:(?!<mc:AlternateContent\b).)*?)</mc:Choice>"
    r"(?:(?!<mc:AlternateContent\b).)*?</mc:AlternateContent>",
    re.DOTALL,
)
_NEXT_RUN = re.compile(r"</a:t>\s*</a:r>\s*<a:r>\s*(?:<a:rPr\b[^<>]*/>\s*)?<a:t>")
_RUN_LOOKS = re.compile(r"<a:rPr\b[^<>]*>")
_BOLD_OR_ITALIC = re.compile(r"\s[bi]=[\"'][^\"']*[\"']")
_BAR = "\U0010fff4"
_MAX_REPEATED = 50
_MAX_DEPTH = 60
_REPEATED = re.compile(r"^[0-9]{1,8}$")
_SPECIAL = re.compile(r"([\\`*_\[\]<|])")
_AT_START = re.compile(r"^(#{1,6}|[-+>]|\d{1,9}[.)])(?=\s)")


def pptx_text(pptx: bytes) -> bytes:
    """Rewrite a PPTX so that its text is read as it stands there.

    Between two runs of a word the library puts a space, around bold ones stars that it then escapes, and shapes that
    newer programs draw in another way it passes over (kreuzberg 4.10.4).
    """
    return rewritten(pptx, _SLIDE, in_utf8(_plain_slide))


def _plain_slide(slide: str) -> str:
    shown = _CHOICE.sub(lambda match: match[1] if "<a:t>" in match[1] else match[0], slide)
    shown = shown.replace("|", _BAR)
    return _NEXT_RUN.sub("", _RUN_LOOKS.sub(lambda match: _BOLD_OR_ITALIC.sub("", match[0]), shown))


def restore_bars(markdown: str) -> str:
    """Put the bars back that ``pptx_text`` took out: in a cell the library took one for the end of it."""
    lines = markdown.split("\n")
    return "\n".join(line.replace(_BAR, "\\|" if line.startswith("| ") else "|") for line in lines)


def pptx_slides(package: Package) -> list[tuple[int, str, str]]:
    """The slides in the order in which they are shown: the number that the library gives each, its part and its notes.

    The library numbers slides by their file names (``slide9.xml`` is before ``slide10.xml``), which is the order in
    which they were made (kreuzberg 4.10.4).
    """
    show = package.xml(_PRESENTATION)
    parts = package.related(_PRESENTATION, "slide")
    numbers = {part: number for number, part in enumerate(sorted(set(parts.values()), key=_by_number), start=1)}
    slides: list[tuple[int, str, str]] = []
    for entry in show.iter(f"{_P}sldId") if show is not None else ():
        part = parts.get(entry.get(_RID, ""), "")
        if part in numbers:
            slides.append((numbers.pop(part), part, _notes(package, part)))
    return slides + [(number, part, _notes(package, part)) for part, number in numbers.items()]


def _by_number(part: str) -> tuple[int, str]:
    digits = _SLIDE_NUMBER.search(part)
    return (int(digits[1]) if digits else 1 << 30, part)


def _notes(package: Package, slide: str) -> str:
    pages = (package.xml(part) for part in package.related(slide, "notesSlide").values())
    return "\n\n".join(words for page in pages if page is not None for words in _pptx_paragraphs(page))


def _pptx_paragraphs(page: Element) -> Iterator[str]:
    for shape in page.iter(f"{_P}sp"):
        place = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
        if place is not None and place.get("type") in _NO_NOTES:
            continue
        for paragraph in shape.iter(f"{_A}p"):
            if words := line_of(paragraph, f"{_A}t", frozenset({f"{_A}br"})):
                yield plain(words)


def odp_slides(package: Package) -> Iterator[str]:
    """Each slide of an OpenDocument presentation as Markdown; its pictures as references to their parts."""
    content = package.xml("content.xml")
    if content is None:
        return
    for page in content.iter(f"{_DRAW}page"):
        blocks = list(_blocks(page, 0))
        notes = [block for part in page.iter(f"{_SHOWN}notes") for block in _blocks(part, 0)]
        if notes:
            blocks += ["Notes:", *notes]
        yield "\n\n".join(blocks)


def _blocks(parent: Element, depth: int) -> Iterator[str]:
    """The blocks of a page in the order of the file, which is the order from back to front."""
    if depth > _MAX_DEPTH:
        return
    for item in parent:
        match item.tag.removeprefix(f"{{{_ODF}:"):
            case "presentation:1.0}notes":
                pass
            case "text:1.0}p" | "text:1.0}h":
                if words := _words(item):
                    yield plain(words)
            case "text:1.0}list":
                yield "\n".join(_items(item, 0))
            case "table:1.0}table":
                if rows := list(_rows(item)):
                    yield table_rows(rows)
            case "drawing:1.0}frame":
                yield from _frame(item, depth)
            case _:
                yield from _blocks(item, depth + 1)


def _frame(frame: Element, depth: int) -> Iterator[str]:
    picture = frame.find(f"{_DRAW}image")
    # A table or a chart comes with a picture of itself.
    if picture is not None and frame.find(f"{_TABLE}table") is None:
        said = frame.findtext(f"{_SVG}desc") or frame.findtext(f"{_SVG}title") or ""
        yield f"![{plain(' '.join(said.split()))}]({picture.get(_HREF, '')})"
        return
    blocks = list(_blocks(frame, depth + 1))
    if frame.get(f"{_SHOWN}class") == "title" and blocks:
        yield f"## {' '.join(blocks)}"
    else:
        yield from blocks


def _items(parent: Element, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    for entry in parent:
        for item in entry:
            if item.tag == f"{_TEXT}list":
                yield from _items(item, depth + 1)
            elif words := _words(item):
                yield f"{'  ' * depth}- {plain(words)}"


def _rows(table: Element) -> Iterator[list[str]]:
    for row in table.iter(f"{_TABLE}table-row"):
        cells: list[str] = []
        for cell in row:
            words = " ".join(filter(None, (_words(item) for item in cell)))
            repeated = cell.get(f"{_TABLE}number-columns-repeated", "1")
            cells += [words] * (min(int(repeated), _MAX_REPEATED) if _REPEATED.match(repeated) else 1)
        if any(cells):
            yield cells


def _words(item: Element) -> str:
    """The text of a paragraph; spaces, tabs and line breaks are elements in it."""
    return " ".join("".join(_in_order(item)).split())


def _in_order(item: Element) -> Iterator[str]:
    stack: list[Element | str] = [item]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            yield top
            continue
        if top.tag in (f"{_TEXT}s", f"{_TEXT}tab", f"{_TEXT}line-break"):
            yield " "
        yield top.text or ""
        for child in reversed(top):
            stack += [child.tail or "", child]


def plain(words: str) -> str:
    """Words as Markdown that means just them."""
    return _AT_START.sub(r"\\\1", _SPECIAL.sub(r"\\\1", words))
