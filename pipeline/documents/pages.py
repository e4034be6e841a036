"""Makes pages of a document that has none: its sections, and its embedded images where they stood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipeline.documents.job import Begun, Ended, Event, Opened
from pipeline.domain.document import PageFile, ParsedPage, TextFormat, TextQuality
from pipeline.domain.markdown import BlockKind, blocks

__all__ = ["first_heading", "image_page", "number_pages", "text_page"]

_TITLE_CHARS = 200


def text_page(number: int, text: str, text_format: TextFormat, *, has_figures: bool = False) -> ParsedPage:
    """A section; blank when it holds no text."""
    blank = not text.strip()
    quality = TextQuality.NONE if blank else TextQuality.GOOD
    return ParsedPage(number, text, text_format, quality, has_figures=has_figures, blank=blank)


def image_page(number: int, image: PageFile | None, *, blank: bool = False) -> ParsedPage:
    """An image without text of its own."""
    return ParsedPage(
        number,
        "",
        TextFormat.PLAIN,
        TextQuality.NONE,
        has_figures=not blank,
        blank=blank,
        image=None if blank else image,
    )


def number_pages(pages: Iterable[ParsedPage], title: str | None) -> Iterator[Event]:
    """Wrap the pages of a file that is read at once in the events of a page-by-page reader.

    A document without any text still has one page, which is blank: it ends as empty, and says so with a page count.
    """
    made = list(pages) or [text_page(1, "", TextFormat.PLAIN)]
    yield Opened(len(made), title)
    for page in made:
        yield Begun(page.number)
        yield page
    yield Ended(title)


def first_heading(markdown: str) -> str | None:
    """The title that a Markdown text gives itself: its first heading of the highest level among its first blocks."""
    headings = [block for block in blocks(markdown[:20_000]) if block.kind is BlockKind.HEADING and block.title]
    if not headings:
        return None
    top = min(heading.level for heading in headings[:5])
    title = next(heading.title for heading in headings if heading.level == top)
    return title[:_TITLE_CHARS]
