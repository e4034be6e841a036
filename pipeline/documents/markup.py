"""HTML made ready for the Markdown converter, and XML of unknown vocabularies as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from xml.etree import ElementTree

from pipeline.documents.encodings import decode
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["read_html", "read_xml"]

_TITLE = re.compile(r"<title[^>]*>(.*?)</title\s*>", re.IGNORECASE | re.DOTALL)
# What isn't shown. Titles and metadata too: the converter would write them as a heading over the text.
_UNSEEN = re.compile(
    r"<(script|style|title|noscript|template)\b[^>]*>.*?</\1\s*>|<(?:meta|link|base)\b[^>]*>|<!--.*?-->",
    re.IGNORECASE | re.DOTALL,
)
_SPACE = re.compile(r"\s+")
_MAX_TITLE_CHARS = 300


def read_html(data: bytes) -> tuple[str | None, str]:
    """Decode an HTML page and take out what isn't shown.

    Returns:
        The title, and the page.
    """
    page = safe_text(decode(data, declares=True))
    match = _TITLE.search(page)
    title = _SPACE.sub(" ", unescape(match.group(1))).strip()[:_MAX_TITLE_CHARS] if match else ""
    return title or None, _UNSEEN.sub("", page)


def read_xml(data: bytes) -> tuple[str | None, str]:
    """Read XML as text: one paragraph an element with text of its own, under the name of its tag.

    The caller has refused entity declarations.

    Raises:
        RejectedInput: ``corrupt``: it is not well-formed.
    """
    try:
        # A byte string is decoded as it declares; expat knows few encodings, so we decode and drop the declaration.
        text = re.sub(r"^\s*<\?xml[^>]*\?>", "", safe_text(decode(data, declares=True)))
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
