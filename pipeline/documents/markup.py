"""HTML made ready for the Markdown converter, and XML of unknown vocabularies as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from xml.etree import ElementTree

from pipeline.documents.encodings import decode
from pipeline.documents.limits import check_markup
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["read_html", "read_xml"]

# What isn't shown. Titles and metadata too: the converter would write them as a heading over the text.
_UNSEEN = re.compile(r"<!--|<(?:script|style|title|noscript|template|meta|link|base)\b", re.IGNORECASE)
_ENDS = {
    tag: re.compile(rf"</{tag}\s*>", re.IGNORECASE) for tag in ("script", "style", "title", "noscript", "template")
}
_ENDS["!--"] = re.compile("-->")
_TAG_END = re.compile(">")
_SPACE = re.compile(r"\s+")
_MAX_TITLE_CHARS = 300


def read_html(data: bytes) -> tuple[str | None, str]:
    """Decode an HTML page and take out what isn't shown.

    Returns:
        The title, and the page.
    """
    page = safe_text(decode(data, declares=True))
    seen, titles = _seen(page)
    title = _SPACE.sub(" ", unescape(titles[0])).strip()[:_MAX_TITLE_CHARS] if titles else ""
    return title or None, seen


def _seen(page: str) -> tuple[str, list[str]]:
    """What is shown, and the titles. One pass: a file may open any number of elements and close none."""
    kept: list[str] = []
    titles: list[str] = []
    endless: set[str] = set()
    done = at = 0
    while (opening := _UNSEEN.search(page, at)) is not None:
        tag = opening[0][1:].lower()
        inner = opening.end() if tag == "!--" else _past(_TAG_END, page, opening.end(), ">", endless)
        end = _past(_ENDS[tag], page, inner, tag, endless) if inner and tag in _ENDS else inner
        if not inner or not end:
            at = opening.end()
            continue
        if tag == "title":
            titles.append(_ENDS["title"].sub("", page[inner:end]))
        kept.append(page[done : opening.start()])
        done = at = end
    return "".join([*kept, page[done:]]), titles


def _past(end: re.Pattern[str], page: str, at: int, name: str, endless: set[str]) -> int:
    """Where the next such end is over; 0 when there is none, which is looked for once."""
    found = end.search(page, at) if name not in endless else None
    if found is None:
        endless.add(name)
        return 0
    return found.end()


def read_xml(data: bytes) -> tuple[str | None, str]:
    """Read XML as text: one paragraph an element with text of its own, under the name of its tag.

    Raises:
        RejectedInput: ``corrupt``: it is not well-formed; ``unsafe``: it declares entities.
    """
    # A byte string is decoded as it declares; expat knows few encodings, so we decode and drop the declaration.
    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", safe_text(decode(data, declares=True)))
    # Only now, because UTF-32 and others hide from a search through the bytes.
    check_markup(text.encode())
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 -- entities were refused
    except ElementTree.ParseError as exc:
        raise RejectedInput("corrupt", f"not well-formed XML: {exc}") from exc
    lines = list(_lines(root))
    title = next((words for tag, words in lines if tag == "title"), None)
    return title, "\n\n".join(f"**{tag}**: {words}" if len(words) < 2000 else words for tag, words in lines)


def _lines(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Elements with words of their own are taken whole, with what they hold; the others are gone into."""
    stack = [element]
    while stack:
        item = stack.pop()
        tag = item.tag.rpartition("}")[2]
        own = [item.text, *(child.tail for child in item)]
        if any(text and text.strip() for text in own) or len(item) == 0:
            words = _SPACE.sub(" ", "".join(item.itertext())).strip()
            attributes = " ".join(f"{name.rpartition('}')[2]}={value}" for name, value in item.attrib.items())
            if words or attributes:
                yield tag, " ".join(filter(None, [words, f"({attributes})" if attributes else ""]))
        else:
            stack.extend(reversed(item))
