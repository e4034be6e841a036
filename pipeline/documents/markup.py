"""HTML made ready for the Markdown converter, and XML of unknown vocabularies as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import escape, unescape
from xml.etree import ElementTree

from selectolax.lexbor import LexborHTMLParser

from pipeline.documents.encodings import decode
from pipeline.documents.limits import check_markup
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["closed_html", "html_text", "read_html", "read_xml"]

# What isn't shown. Titles and metadata too: the converter would write them as a heading over the text.
_UNSEEN = re.compile(r"<!--|<(?:script|style|title|noscript|template|meta|link|base)\b", re.IGNORECASE)
_ENDS = {
    tag: re.compile(rf"</{tag}\s*>", re.IGNORECASE) for tag in ("script", "style", "title", "noscript", "template")
}
_ENDS["!--"] = re.compile("-->")
_TAG_END = re.compile(">")
_XHTML = re.compile(r"\s*<\?xml\b")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/<>]*)([^<>]*)>")
_PREFORMATTED = re.compile(r"(<pre\b.*?</pre>)", re.DOTALL)
_BLOCK_EDGE = re.compile(r"<h[1-6]\b[^>]*>|</(?:h[1-6]|p|div|table|blockquote|center|section|article)>")
_SPACE = re.compile(r"\s+")
# Of XHTML, TEI and OpenDocument.
_LINE_ENDS = frozenset({"br", "lb", "pb", "cb", "tab", "line-break"})
_MAX_TITLE_CHARS = 300
# The converter drops without a word what lies below some 60 elements (html-to-markdown 3.14).
_DEEPEST = 48
# Browsers go no deeper either; a parser of HTML looks through all that is open at each tag.
_DEEPEST_PARSED = 512
# What holds rows or items is kept only where these are kept too.
_HOLDERS = frozenset({"table", "ul", "ol", "dl", "menu", "select"})
_HELD_DEPTH = 8
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
# In HTML an empty element of XML would stay open.
_EMPTY = re.compile(rf"<((?!(?:{'|'.join(sorted(_VOID))})\b)[A-Za-z][^\s/<>]*)([^<>]*)/>")
# Their end is implied by what comes next.
_END_BY_THEMSELVES = frozenset(
    ("p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "option", "optgroup", "rt", "rp")
)
_IN_LINE = re.compile(
    r"a|abbr|acronym|b|bdi|bdo|big|cite|code|del|em|font|i|ins|kbd|label|mark|nobr|q|s|samp|small|span|strike|strong|sub"
    r"|sup|time|tt|u|var|.*\W.*"
)


def read_html(data: bytes) -> tuple[str | None, str]:
    """Decode an HTML page and take out what isn't shown.

    Returns:
        The title, and the page.
    """
    page = safe_text(decode(data, declares=True))
    if _XHTML.match(page):
        page = _EMPTY.sub(r"<\1\2></\1>", _without_cdata(page))
    seen, titles = _seen(page)
    title = _SPACE.sub(" ", unescape(titles[0])).strip()[:_MAX_TITLE_CHARS] if titles else ""
    return title or None, seen


def _without_cdata(page: str) -> str:
    """Write what HTML takes for a comment as the text that XML means by it."""
    # Past the last end, each beginning would be looked through to the end of the page.
    end = page.rfind("]]>") + 3
    return _CDATA.sub(lambda found: escape(found[1], quote=False), page[:end]) + page[end:]


def html_text(data: bytes) -> str:
    """The words that an HTML page shows, without any order of tables and lists: enough to compare it by."""
    _, page = read_html(data)
    return unescape(_TAG.sub(lambda tag: "" if _IN_LINE.fullmatch(tag[2].lower()) else " ", page))


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


def closed_html(page: str) -> str:
    """The same page with every element closed, as HTML's own rules close them, and none deeper than a converter goes.

    Many end tags may be left out, and are. The converter knows few of the rules: it nests one unclosed paragraph in
    the other, and of a table it may read the first cell. It also joins the words of two lines before an element, and
    those of two blocks in a cell: no line ends here but where it is preformatted, and blocks have a space around them.
    """
    tree = LexborHTMLParser(_flat(page, _DEEPEST_PARSED, not_counted=_END_BY_THEMSELVES))
    _spell_out(tree)
    parsed = tree.html or ""
    pieces = _PREFORMATTED.split(_flat(parsed, _DEEPEST))
    return " ".join(piece if number % 2 else _spaced(piece) for number, piece in enumerate(pieces))


def _spell_out(tree: LexborHTMLParser) -> None:
    """Put the words of each drawing in its place: the converter writes that there is one."""
    for drawing in tree.css("svg"):
        words = [
            " ".join(part.text(strip=True, separator=" ").split())
            for part in drawing.css("title, desc, text, foreignObject")
        ]
        if any(words):
            drawing.replace_with(f" {' '.join(filter(None, words))} ")


def _spaced(page: str) -> str:
    return _SPACE.sub(" ", _BLOCK_EDGE.sub(r" \g<0> ", page))


def _flat(page: str, deepest: int, *, not_counted: frozenset[str] = frozenset()) -> str:
    """Take out the tags, not the words, of what lies deeper; one pass, whatever is open or closed twice."""
    kept: list[str] = []
    done = 0
    # Open elements with whether their tags were taken out: once one's are, so are those of all within it.
    open_elements: list[tuple[str, bool]] = []
    is_open: Counter[str] = Counter()
    for tag in _TAG.finditer(page):
        ends, name = bool(tag[1]), tag[2].lower()
        if name in _VOID or name in not_counted or tag[3].endswith("/"):
            continue
        if not ends:
            depth = len(open_elements) + (_HELD_DEPTH if name in _HOLDERS else 0)
            out = depth >= deepest or (bool(open_elements) and open_elements[-1][1])
            open_elements.append((name, out))
            is_open[name] += 1
        elif is_open[name]:
            out = _close(name, open_elements, is_open)
        else:
            continue
        if out:
            kept += [page[done : tag.start()], _instead(name)]
            done = tag.end()
    return "".join([*kept, page[done:]]) if kept else page


def _close(name: str, open_elements: list[tuple[str, bool]], is_open: Counter[str]) -> bool:
    """End the innermost element of a name with all that is open in it; returns whether its tags were taken out."""
    while True:
        closed, out = open_elements.pop()
        is_open[closed] -= 1
        if closed == name:
            return out


def _instead(name: str) -> str:
    """What keeps the words on both sides of a tag apart as the tag did."""
    if _IN_LINE.fullmatch(name):
        return ""
    return " " if name in ("td", "th") else "<br>"


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
            words = _SPACE.sub(" ", "".join(_texts(item))).strip()
            attributes = " ".join(f"{name.rpartition('}')[2]}={value}" for name, value in item.attrib.items())
            if words or attributes:
                yield tag, " ".join(filter(None, [words, f"({attributes})" if attributes else ""]))
        else:
            stack.extend(reversed(item))


def _texts(element: ElementTree.Element) -> Iterator[str]:
    """All text of an element in order, with a space for what ends a line."""
    stack: list[ElementTree.Element | str] = [element]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
            continue
        yield " " if item.tag.rpartition("}")[2].lower() in _LINE_ENDS else item.text or ""
        stack.extend(part for child in reversed(item) for part in (child.tail or "", child))
