"""Makes one text of a document's pages: running headers and footers dropped, what a page break tore apart joined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.domain.markdown import Block, BlockKind, blocks

__all__ = ["Placed", "joined_blocks"]

# Lines at a page's edge that may be running ones, and on how much of the pages they must repeat.
_EDGE_BLOCKS = 2
_EDGE_CHARS = 120
_LEAST_PAGES = 3
_REPEAT_SHARE = 0.5
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(
    r"^\W*(?:(?:page|seite|página|pagina|str\.|стр\.|第)\s*)?(?:\d{1,4}|[ivxlc]{1,6})"
    r"(?:\s*(?:/|of|von|de|di|из|页|頁|ページ)\s*\d{0,4})?\W*$",
    re.IGNORECASE,
)
_MARKS = re.compile(r"[#*_`>|\s]+")
_ENDS = (".", "!", "?", ":", ";", "。", "！", "？", "：", "；", "…", '."', ".”", ".)", "؟", "۔")
_HYPHENATED = re.compile(r"[^\W\d_]{2}[-\u2010\u00ad]$")
_LINE_HYPHEN = re.compile(r"([^\W\d_]{2,})[-\u2010\u00ad]\n[ \t]*([^\W\d_]+)")
_COMPOUND = re.compile(r"(?<!\w)[^\W\d_]{2,}-[^\W\d_]+(?![\w-])")
_SOFT_HYPHEN = "\u00ad"
_CJK = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


@dataclass(frozen=True, slots=True)
class Placed:
    """A block and the pages it stands on (1-based, inclusive)."""

    block: Block
    page_from: int
    page_to: int


def joined_blocks(pages: Sequence[tuple[int, str]]) -> list[Placed]:
    """Read pages into the blocks of one text.

    Args:
        pages: Page number and Markdown, in order.
    """
    read = [(number, blocks(markdown)) for number, markdown in pages]
    running = _running(read)
    compounds = frozenset(
        word.lower() for _, found in read for block in found for word in _COMPOUND.findall(block.text)
    )
    placed: list[Placed] = []
    for number, found in read:
        kept = _without_running(found, running)
        for index, block in enumerate(kept):
            before = placed[-1] if placed and index == 0 and placed[-1].page_to < number else None
            whole = _across(before.block, block, compounds) if before is not None else None
            if before is not None and whole is not None:
                placed[-1] = Placed(whole, before.page_from, number)
            else:
                placed.append(Placed(_dehyphenated(block, compounds), number, number))
    return placed


# --- running headers and footers -------------------------------------------------------------------------------------


def _running(pages: Sequence[tuple[int, Sequence[Block]]]) -> frozenset[str]:
    """What stands at the edge of at least half the pages, numbers aside."""
    if len(pages) < _LEAST_PAGES:
        return frozenset()
    seen: Counter[str] = Counter()
    for _, found in pages:
        edges = [*found[:_EDGE_BLOCKS], *found[-_EDGE_BLOCKS:]]
        seen.update({_shape(block) for block in edges if _may_run(block)})
    least = max(_LEAST_PAGES, _REPEAT_SHARE * len(pages))
    return frozenset(shape for shape, count in seen.items() if count >= least and shape)


def _may_run(block: Block) -> bool:
    return block.kind in (BlockKind.PARAGRAPH, BlockKind.HEADING) and len(block.text) <= _EDGE_CHARS


def _shape(block: Block) -> str:
    return _MARKS.sub(" ", _DIGITS.sub("#", block.text)).strip().casefold()


def _without_running(found: Sequence[Block], running: frozenset[str]) -> list[Block]:
    last = len(found) - _EDGE_BLOCKS
    return [
        block
        for index, block in enumerate(found)
        if not ((index < _EDGE_BLOCKS or index >= last) and _may_run(block) and _is_running(block, running))
    ]


def _is_running(block: Block, running: frozenset[str]) -> bool:
    # Numbers alone repeat only as page numbers do; "#" is the shape of every one.
    shape = _shape(block)
    if shape in running:
        return shape.strip(" #-–—/.") != "" or bool(_PAGE_NUMBER.match(block.text))
    return False


# --- joining ---------------------------------------------------------------------------------------------------------


def _across(before: Block, after: Block, compounds: frozenset[str]) -> Block | None:
    """The block that a page break tore in two; None when it did not."""
    if before.kind is BlockKind.PARAGRAPH and after.kind is BlockKind.PARAGRAPH:
        return _paragraph(before.text.rstrip(), after.text.lstrip(), compounds)
    if before.kind is BlockKind.TABLE and after.kind is BlockKind.TABLE:
        return _table(before.text, after.text)
    return None


def _paragraph(before: str, after: str, compounds: frozenset[str]) -> Block | None:
    if before.endswith(_ENDS):
        return None
    first = after[0]
    if _HYPHENATED.search(before) and first.islower():
        return _dehyphenated(Block(BlockKind.PARAGRAPH, f"{before}\n{after}"), compounds)
    # A sentence goes on in lower case; scripts without case go on as they are.
    if first.isupper() or not (first.isalpha() or first in "(\"'“‘«"):
        return None
    space = "" if _CJK.match(first) and _CJK.match(before[-1]) else " "
    return _dehyphenated(Block(BlockKind.PARAGRAPH, f"{before}{space}{after}"), compounds)


def _table(before: str, after: str) -> Block | None:
    """A table that goes on: the same header again, or as many columns under a header without words."""
    header, _, *rows = after.split("\n")
    first = before.split("\n")[0]
    same = _MARKS.sub(" ", header) == _MARKS.sub(" ", first)
    wordless = not _MARKS.sub("", header) and header.count("|") == first.count("|")
    return Block(BlockKind.TABLE, "\n".join([before, *rows])) if same or wordless else None


def _dehyphenated(block: Block, compounds: frozenset[str]) -> Block:
    """Join words that were hyphenated at a line's end; compounds that the document writes with a hyphen keep theirs."""
    if block.kind is not BlockKind.PARAGRAPH or not ("\n" in block.text or _SOFT_HYPHEN in block.text):
        return block

    def join(match: re.Match[str]) -> str:
        one, other = match.groups()
        keeps = not other[0].islower() or f"{one}-{other}".lower() in compounds
        return f"{one}-{other}" if keeps else f"{one}{other}"

    return Block(block.kind, _LINE_HYPHEN.sub(join, block.text).replace(_SOFT_HYPHEN, ""), block.level)
