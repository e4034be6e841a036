"""Cuts a document without pages of its own into sections of bounded size; each is treated as a page."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.domain.markdown import BlockKind, blocks, cut, pack

__all__ = ["MAX_SECTION_CHARS", "plain_sections", "sections"]

MAX_SECTION_CHARS = 6000
# A heading starts a new section once the current one is this full.
_FULL_ENOUGH = 0.5


def sections(markdown: str, max_chars: int = MAX_SECTION_CHARS) -> Iterator[str]:
    """Cut Markdown at block boundaries, before headings where it can; a longer block is cut by its own rules."""
    current: list[str] = []
    size = 0
    only_headings = True
    for block in blocks(markdown):
        # A long block begins under its heading, not on the next page.
        room = max_chars - size if only_headings and size < max_chars // 2 else max_chars
        pieces = cut(block, room, len)
        begins = block.kind is BlockKind.HEADING and size > _FULL_ENOUGH * max_chars
        for piece in pieces:
            if current and (begins or size + len(piece) + 2 > max_chars):
                yield "\n\n".join(current)
                current, size, only_headings = [], 0, True
            current.append(piece)
            only_headings = only_headings and block.kind is BlockKind.HEADING
            size += len(piece) + 2
            begins = False
    if current:
        yield "\n\n".join(current)


def plain_sections(text: str, max_chars: int = MAX_SECTION_CHARS) -> Iterator[str]:
    """Cut plain text after empty lines where it can, else after lines, sentences or words."""
    yield from pack(list(_paragraphs(text)), max_chars, len)


def _paragraphs(text: str) -> Iterator[str]:
    """Lines up to and with the empty ones after them."""
    paragraph: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        written = line.rstrip()
        if written and len(paragraph) > 1 and not paragraph[-1]:
            yield "\n".join([*paragraph, ""])
            paragraph = []
        paragraph.append(written)
    yield "\n".join([*paragraph, ""])
