"""Makes one text of a document's pages: what a page break or a line's end tore apart is joined."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from pipeline.domain.markdown import Block, BlockKind, blocks
from pipeline.stages.running import Aside, without_running

__all__ = ["Placed", "is_cjk", "joined_blocks", "solid_length"]

# A sentence's end, and what may close after it.
_ENDS = ".!?:;。．！？：；…؟۔।॥"
_CLOSING = "\"'”’»)]」』】）*_"
_HYPHENATED = re.compile(r"[^\W\d_]{2}[-\u2010\u00ad]$")
# From a word's beginning and with no way back, or a word of a million letters is looked through from each of them.
_LINE_HYPHEN = re.compile(r"(?<![^\W\d_])([^\W\d_]{2,}+)[-\u2010\u00ad]\n[ \t]*([^\W\d_]+)")
_HYPHENS = "-\u2010\u00ad"
_INSIDE = frozenset(f"{_ENDS}{_CLOSING}{_HYPHENS}")
_COMPOUND = re.compile(r"(?<!\w)[^\W\d_]{2,}-[^\W\d_]+(?![\w-])")
# "Vor- und Nachteile", "pre- and post-war": the hyphen stands for a word that comes later.
_BESIDE = frozenset({"und", "oder", "bzw", "sowie", "and", "or", "och", "og", "eller"})
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

# As much of a text's end as decides how it goes on: more than the longest word of ``_GOES_ON``, and than a short line.
_NEAR_CHARS = 32
# As much of a table's beginning as tells its columns.
_FIRST_ROWS = 12

_BEGINNING = itemgetter(0)


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

    def span(self, start: int, end: int) -> tuple[int, int]:
        """First and last page of the part from ``start`` to ``end``, in characters that aren't white space."""
        first = self.pages[bisect_right(self.pages, start, key=_BEGINNING) - 1][1]
        last = bisect_left(self.pages, end, key=_BEGINNING)
        return first, max(first, self.pages[last - 1][1] if last else first)


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
    last: _Open | None = None
    for number, found in read:
        for index, block in enumerate(found):
            if last is not None:
                if index == 0 and last.page < number and last.takes(block, number, compounds):
                    continue
                placed.append(last.closed())
            last = _Open(_mended(block, compounds), number)
    if last is not None:
        placed.append(last.closed())
    return [item for item in placed if item.block.text], asides


def solid_length(text: str) -> int:
    """How many characters of a text aren't white space."""
    return sum(map(len, text.split()))


def is_cjk(character: str) -> bool:
    """Whether no space stands beside this letter or sign where a line goes on."""
    return _IS_CJK.match(character) is not None


class _Open:
    """The last block so far, which the next page may go on with.

    Of a text only the end is at hand, of a table the beginning: what a page adds then takes as long as that page, and
    not as long as all before it.
    """

    def __init__(self, block: Block, page: int) -> None:
        self._block = block
        self._above: list[str] = []
        self._below: list[str] = []
        self._pages = [(0, page)]
        self._length = solid_length(block.text)

    @property
    def page(self) -> int:
        """The last one that it stands on."""
        return self._pages[-1][1]

    def takes(self, after: Block, page: int, compounds: frozenset[str]) -> bool:
        """Go on with a page's first block where the page break tore the two apart; whether it did."""
        if after.kind is BlockKind.PARAGRAPH and self._block.kind in (BlockKind.PARAGRAPH, BlockKind.LIST):
            added = after.text.lstrip()
            self._set_settled_aside(compounds)
            whole = _text(self._block, added, compounds)
            if whole is None:
                return False
            self._block = whole
        elif self._block.kind is after.kind is BlockKind.TABLE:
            self._set_rows_aside()
            rows = _more_rows(self._block.text, _mended(after, compounds).text)
            if rows is None:
                return False
            added = rows
            if rows:
                self._below.append(f"\n{rows}")
        else:
            return False
        self._pages.append((self._length, page))
        self._length += solid_length(added)
        return True

    def closed(self) -> Placed:
        """The whole of it."""
        text = "".join([*self._above, self._block.text, *self._below]).rstrip(_SOFT_HYPHEN)
        return Placed(Block(self._block.kind, text, self._block.level), tuple(self._pages), self._length)

    def _set_settled_aside(self, compounds: frozenset[str]) -> None:
        """Keep the end, from the beginning of a word on, unless mending would find more to do."""
        text = self._block.text
        at = len(text) - _NEAR_CHARS
        while at > 0 and (text[at - 1].isalnum() or text[at - 1] in _INSIDE):
            at -= 1
        if at > 0 and not text[-1].isspace() and _mended(self._block, compounds).text == text:
            self._above.append(text[:at])
            self._block = Block(self._block.kind, text[at:], self._block.level)

    def _set_rows_aside(self) -> None:
        *first, rest = self._block.text.split("\n", _FIRST_ROWS)
        if len(first) == _FIRST_ROWS:
            self._block = Block(self._block.kind, "\n".join(first), self._block.level)
            self._below.append(f"\n{rest}")


def _text(block: Block, after: str, compounds: frozenset[str]) -> Block | None:
    """The text that a page break tore in two; None when it did not."""
    before = block.text.rstrip()
    if before.rstrip(_CLOSING).endswith(tuple(_ENDS)):
        return None
    near, first = before[-_NEAR_CHARS:], after[0]
    if _HYPHENATED.search(near) and first.isalpha():
        return _mended(Block(block.kind, f"{before}\n{after}"), compounds)
    if not _continues(near, after):
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


def _more_rows(before: str, after: str) -> str | None:
    """The rows that a table goes on with: the same header again, or as many columns under none, or under amounts."""
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
    return rows


def _is_row(cells: Sequence[str], table: str) -> bool:
    """Whether what was taken for a header is a row of this table: an amount below words, where others stand."""
    head, _, *rows = (_cells(line) for line in table.split("\n", _FIRST_ROWS)[:_FIRST_ROWS])
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

    Compounds that the document writes with a hyphen keep theirs. Soft hyphens, which no search knows, go; the last is
    left where the next page may go on with its word.
    """
    if block.kind is BlockKind.CODE:
        return block
    if block.kind not in (BlockKind.PARAGRAPH, BlockKind.LIST):
        return replace(block, text=block.text.replace(_SOFT_HYPHEN, ""))
    if not ("\n" in block.text or _SOFT_HYPHEN in block.text):
        return block

    def join(match: re.Match[str]) -> str:
        one, other = match.groups()
        if other in _BESIDE:
            return f"{one}- {other}"
        keeps = not other[0].islower() or f"{one}-{other}".lower() in compounds
        return f"{one}-{other}" if keeps else f"{one}{other}"

    end = _SOFT_HYPHEN if block.text.endswith(_SOFT_HYPHEN) else ""
    text = _LINE_HYPHEN.sub(join, block.text).replace(_SOFT_HYPHEN, "") + end
    if block.kind is BlockKind.PARAGRAPH:
        text = _CJK_BREAK.sub(lambda gap: "" if _wrapped(text, gap.start()) else gap.group(), text)
    return Block(block.kind, text, block.level)


def _wrapped(text: str, end: int) -> bool:
    """Whether the line that ends here is as long as one that had to be broken."""
    return end - (text.rfind("\n", 0, end) + 1) >= _LEAST_WRAPPED
