"""Makes one text of a document's pages: what a page break or a line's end tore apart is joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.domain.markdown import Block, BlockKind, blocks
from pipeline.stages.running import Aside, without_running

__all__ = ["Placed", "is_cjk", "joined_blocks", "solid_length"]

# A sentence's end, and what may close after it.
_ENDED = re.compile(r"[.!?:;。．！？：；…؟۔।॥][\"'”’»)\]」』）】*_]*$")
_HYPHENATED = re.compile(r"[^\W\d_]{2}[-\u2010\u00ad]$")
_LINE_HYPHEN = re.compile(r"([^\W\d_]{2,})[-\u2010\u00ad]\n[ \t]*([^\W\d_]+)")
_COMPOUND = re.compile(r"(?<!\w)[^\W\d_]{2,}-[^\W\d_]+(?![\w-])")
_SOFT_HYPHEN = "\u00ad"
# After these a sentence goes on, also with a capital or a number.
_GOES_ON = re.compile(
    r"(?:[,，、(（–—]|(?<!\w)(?:a|an|the|of|and|or|in|on|to|by|for|with|from|at|is|are|der|die|das|den|dem|des|und|oder|"
    r"von|mit|im|ein|eine|einer|le|la|les|de|du|des|et|el|los|las|y|il|e|di|da|do|dos|het|een|van))$"
)
_OPENING = "(\"'“‘«（「『"
# "3 Who decides", "2.1 Scope", "4) Then": a number that begins something.
_NUMBERED = re.compile(r"\d{1,3}(?:\.\d{1,3})*[.)]?\s+[A-ZÀ-ÞА-Я]")
_PIPE = re.compile(r"(?<!\\)\|")
_AMOUNT = re.compile(r"[-+−(]?[$€£¥]?\s?\d[\d.,'\s]*\s?[%€£¥)]?$")

# Scripts whose lines break between any two letters, without a space: Han, kana, and their signs.
_CJK = "\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003134f"
_IS_CJK = re.compile(f"[{_CJK}]")
# A line as short as a name or a verse was broken on purpose.
_CJK_BREAK = re.compile(rf"(?<=[{_CJK}])[ \t]*\n[ \t]*(?=[{_CJK}])")
_LEAST_WRAPPED = 12


@dataclass(frozen=True, slots=True)
class Placed:
    """A block and the pages that it stands on.

    Attributes:
        pages: Where each page's part begins, in characters that aren't white space, with its 1-based number; the first
            begins at 0.
        length: Of the whole, in the same unit.
    """

    block: Block
    pages: tuple[tuple[int, int], ...]
    length: int

    @property
    def last_page(self) -> int:
        return self.pages[-1][1]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """First and last page of the part from ``start`` to ``end``, in characters that aren't white space."""
        first = max(page for at, page in self.pages if at <= start)
        last = max((page for at, page in self.pages if at < end), default=first)
        return first, max(first, last)


def joined_blocks(pages: Sequence[tuple[int, str]]) -> tuple[list[Placed], list[Aside]]:
    """Read pages into the blocks of one text, and the running headers and footers that are none of it.

    Args:
        pages: Page number and Markdown, in order.
    """
    read, asides = without_running([(number, blocks(markdown)) for number, markdown in pages])
    compounds = frozenset(
        word.lower() for _, found in read for block in found for word in _COMPOUND.findall(block.text)
    )
    placed: list[Placed] = []
    for number, found in read:
        for index, block in enumerate(found):
            before = placed[-1] if placed and index == 0 and placed[-1].last_page < number else None
            joined = _across(before.block, block, compounds) if before is not None else None
            if before is not None and joined is not None:
                whole, added = joined
                parts = (*before.pages, (before.length, number))
                placed[-1] = Placed(whole, parts, before.length + solid_length(added))
            else:
                mended = _mended(block, compounds)
                placed.append(Placed(mended, ((0, number),), solid_length(mended.text)))
    return placed, asides


def solid_length(text: str) -> int:
    """How many characters of a text aren't white space."""
    return sum(map(len, text.split()))


def is_cjk(character: str) -> bool:
    """Whether no space stands beside this letter or sign where a line goes on."""
    return _IS_CJK.match(character) is not None


def _across(before: Block, after: Block, compounds: frozenset[str]) -> tuple[Block, str] | None:
    """The block that a page break tore in two, and what the second page adds to it; None when it did not."""
    if after.kind is BlockKind.PARAGRAPH and before.kind in (BlockKind.PARAGRAPH, BlockKind.LIST):
        text = after.text.lstrip()
        whole = _text(before, text, compounds)
        return None if whole is None else (whole, text)
    if before.kind is BlockKind.TABLE and after.kind is BlockKind.TABLE:
        return _table(before.text, after.text)
    return None


def _text(block: Block, after: str, compounds: frozenset[str]) -> Block | None:
    before = block.text.rstrip()
    if _ENDED.search(before):
        return None
    first = after[0]
    if _HYPHENATED.search(before) and first.islower():
        return _mended(Block(block.kind, f"{before}\n{after}"), compounds)
    if not _continues(before, after):
        return None
    space = "" if is_cjk(first) and is_cjk(before[-1]) else " "
    return _mended(Block(block.kind, f"{before}{space}{after}"), compounds)


def _continues(before: str, after: str) -> bool:
    first = after[0]
    if _GOES_ON.search(before):
        return first.isalnum() or first in _OPENING
    if first.isdigit():
        # An amount in the middle of a sentence; a heading's number otherwise.
        return before[-1].isalnum() and not _NUMBERED.match(after)
    # A sentence goes on in lower case; scripts without case go on as they are.
    return not first.isupper() and (first.isalpha() or first in _OPENING)


def _table(before: str, after: str) -> tuple[Block, str] | None:
    """A table that goes on: the same header again, or as many columns under none, or under a row of amounts."""
    header, _, rest = after.partition("\n")
    rows = rest.partition("\n")[2]
    first = before.partition("\n")[0]
    if _cells(header) != _cells(first):
        if len(_cells(header)) != len(_cells(first)):
            return None
        if any(_cells(header)):
            if not _is_row(_cells(header), before):
                return None
            rows = f"{header}\n{rows}" if rows else header
    return Block(BlockKind.TABLE, f"{before}\n{rows}" if rows else before), rows


def _is_row(cells: Sequence[str], table: str) -> bool:
    """Whether what was taken for a header is a row of this table: an amount below words, where others stand."""
    head, _, *rows = (_cells(line) for line in table.split("\n", 12)[:12])
    return any(
        _AMOUNT.match(cell)
        and not _AMOUNT.match(head[column])
        and any(column < len(row) and _AMOUNT.match(row[column]) for row in rows)
        for column, cell in enumerate(cells)
    )


def _cells(row: str) -> list[str]:
    return [" ".join(cell.split()) for cell in _PIPE.split(row.strip().strip("|"))]


def _mended(block: Block, compounds: frozenset[str]) -> Block:
    """Join what a line's end tore apart: hyphenated words, and text of scripts without spaces.

    Compounds that the document writes with a hyphen keep theirs.
    """
    if block.kind not in (BlockKind.PARAGRAPH, BlockKind.LIST):
        return block
    if not ("\n" in block.text or _SOFT_HYPHEN in block.text):
        return block

    def join(match: re.Match[str]) -> str:
        one, other = match.groups()
        keeps = not other[0].islower() or f"{one}-{other}".lower() in compounds
        return f"{one}-{other}" if keeps else f"{one}{other}"

    text = _LINE_HYPHEN.sub(join, block.text).replace(_SOFT_HYPHEN, "")
    if block.kind is BlockKind.PARAGRAPH:
        text = _CJK_BREAK.sub(lambda gap: "" if _wrapped(text, gap.start()) else gap.group(), text)
    return Block(block.kind, text, block.level)


def _wrapped(text: str, end: int) -> bool:
    """Whether the line that ends here is as long as one that had to be broken."""
    return end - (text.rfind("\n", 0, end) + 1) >= _LEAST_WRAPPED
