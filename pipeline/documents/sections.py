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
    for block in blocks(markdown):
        pieces = cut(block, max_chars, len)
        begins = block.kind is BlockKind.HEADING and size > _FULL_ENOUGH * max_chars
        for piece in pieces:
            if current and (begins or size + len(piece) + 2 > max_chars):
                yield "\n\n".join(current)
                current, size = [], 0
            current.append(piece)
            size += len(piece) + 2
            begins = False
    if current:
        yield "\n\n".join(current)


def plain_sections(text: str, max_chars: int = MAX_SECTION_CHARS) -> Iterator[str]:
    """Cut plain text after empty lines where it can, else after lines, sentences or words."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    paragraphs: list[str] = []
    for line in lines:
        if not paragraphs or (line.strip() and paragraphs[-1].endswith("\n\n")):
            paragraphs.append("")
        paragraphs[-1] += line.rstrip() + "\n"
    yield from pack(paragraphs, max_chars, len)
