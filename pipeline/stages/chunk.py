"""The chunk stage: a document's pages in, the pieces that are searched and embedded out. Pure.

Pages are one text again first: running headers and footers go, and what a page break tore apart is joined. Then blocks
are gathered under their headings into chunks of at most ``max_tokens``. Where a section is longer than that, each chunk
begins with the end of the one before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from pipeline.domain.document import Chunk
from pipeline.domain.markdown import Block, BlockKind, cut
from pipeline.stages.joining import Placed, is_cjk, joined_blocks, solid_length
from pipeline.stages.overlap import REPEATED, tail
from pipeline.stages.running import Aside

__all__ = ["VERSION", "cautious", "chunk"]

VERSION = "3"

CountTokens = Callable[[str], int]

# A section that leaves a chunk emptier than this takes in the next one beside it.
_FULL_ENOUGH = 0.35
_MAX_HEADING_CHARS = 200
_LEAST_TOKENS = 8
# Tokens that an empty line between two parts may cost.
_SEAM = 2
_ROOMY = 0.7
# No vocabulary has a word this long; and a tokenizer's time grows faster than what it is given.
_MAX_TOKEN_CHARS = 64
# What a model adds of its own: a mark before a text, and one after.
_OWN_MARKS = 2
# Counts that are kept while a document is cut: words come again and again, and a piece is counted on its way into a
# block, a chunk and its row.
_COUNTS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a block, small enough for a chunk."""

    text: str
    tokens: int
    page_from: int
    page_to: int
    item: Placed

    def after(self, before: _Piece, overlap: int, limit: int, count_tokens: CountTokens) -> _Piece:
        """Itself, led by at most ``overlap`` tokens of what stands before it; alone where that doesn't fit."""
        if self.item.block.kind not in REPEATED:
            return self
        room = min(overlap, limit - self.tokens - _SEAM)
        end = tail(before.text, before.item.block.kind, room, count_tokens)
        if not end:
            return self
        text = f"{end}{self._seam(before, end)}{self.text}"
        tokens = count_tokens(text)
        return _Piece(text, tokens, before.page_to, self.page_to, self.item) if tokens <= limit else self

    def _seam(self, before: _Piece, end: str) -> str:
        if self.item is not before.item:
            return "\n\n"
        if self.item.block.kind is not BlockKind.PARAGRAPH:
            return "\n"
        return "" if is_cjk(end[-1]) and is_cjk(self.text[0]) else " "


@dataclass(slots=True)
class _Draft:
    """A chunk being filled; ``path`` is what the heading paths of its parts have in common."""

    path: tuple[str, ...]
    pieces: list[_Piece] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    @property
    def text(self) -> str:
        return "\n\n".join(piece.text for piece in self.pieces)

    def parted(self, max_tokens: int, count_tokens: CountTokens) -> Iterator[_Draft]:
        """Itself; or its halves, should its parts have measured less alone than together."""
        if len(self.pieces) < 2 or count_tokens(self.text) <= max_tokens:
            yield self
            return
        half = len(self.pieces) // 2
        for pieces in (self.pieces[:half], self.pieces[half:]):
            yield from _Draft(self.path, pieces).parted(max_tokens, count_tokens)

    def finished(self, ordinal: int, count_tokens: CountTokens) -> Chunk:
        return Chunk(
            ordinal=ordinal,
            text=self.text,
            heading=self.path,
            page_from=min(piece.page_from for piece in self.pieces),
            page_to=max(piece.page_to for piece in self.pieces),
            tokens=count_tokens(self.text),
        )


def cautious(count_tokens: CountTokens, factor: float) -> CountTokens:
    """A count for a model whose tokenizer isn't at hand, meant never to be below the model's own.

    ASCII is counted as the other's and multiplied; that holds for small and large vocabularies alike. Other letters are
    counted one by one, since a vocabulary may know nothing of a script: a token each, or two in scripts that take three
    bytes a letter (cl100k makes 1.2 of a Chinese one, Claude's 1.9 of a Thai one; WordPiece never more than one).

    Args:
        count_tokens: Another model's count; returned as it is where ``factor`` is 1.
        factor: What ASCII text is multiplied by.
    """
    if factor == 1:
        return count_tokens

    def count(text: str) -> int:
        plain = text.encode("ascii", "ignore").decode()
        foreign = sum(_letter_tokens(ord(char)) for char in text if not char.isascii()) if len(plain) < len(text) else 0
        return math.ceil(factor * count_tokens(plain)) + foreign + _OWN_MARKS

    return count


def _letter_tokens(code: int) -> int:
    return 1 if code < 0x800 else 2 if code < 0x10000 else 4


def chunk(
    pages: Sequence[tuple[int, str]],
    *,
    title: str | None,
    max_tokens: int,
    count_tokens: CountTokens,
    overlap_tokens: int = 0,
) -> tuple[Chunk, ...]:
    """Cut a document into chunks.

    Tables keep their header in every piece, code its fences; lists are cut between items, text after sentences. No word
    is lost but those of repeated running headers and footers, and page numbers. The same input gives the same chunks.

    Where a section goes on in another chunk, that one begins with the last sentences, or list items, of the one before.
    Tables and code are not repeated, and nothing is over a heading.

    Args:
        pages: Page number (1-based) and Markdown of each page, in order.
        title: The document's title, which is the first element of each heading path unless its own first heading says
            the same.
        max_tokens: Most tokens of a chunk's text, at least 8.
        count_tokens: The embedding model's count.
        overlap_tokens: Most tokens that a chunk repeats, at most half of ``max_tokens``.

    Raises:
        ValueError: ``max_tokens`` is below 8, or the overlap is above its half.
    """
    if max_tokens < _LEAST_TOKENS:
        msg = f"max_tokens {max_tokens} is below {_LEAST_TOKENS}"
        raise ValueError(msg)
    if not 0 <= 2 * overlap_tokens <= max_tokens:
        msg = f"overlap_tokens {overlap_tokens} is not within half of max_tokens {max_tokens}"
        raise ValueError(msg)

    counted = lru_cache(_COUNTS_KEPT)(count_tokens)

    def measure(text: str) -> int:
        return max_tokens + 1 if len(text) > _MAX_TOKEN_CHARS * max_tokens else counted(text)

    placed, asides = joined_blocks(pages)
    drafts = _Gatherer(title, max_tokens, overlap_tokens, measure).gather(placed)
    fitting = (part for draft in drafts for part in draft.parted(max_tokens, measure))
    chunks = [draft.finished(ordinal, counted) for ordinal, draft in enumerate(fitting, start=1)]
    return tuple(_with_asides(chunks, asides))


def _with_asides(chunks: Sequence[Chunk], asides: Sequence[Aside]) -> Iterator[Chunk]:
    """Each running line goes with the first chunk of the page where it first stood, or the next."""
    waiting = deque(sorted(asides, key=lambda aside: aside.page))
    for number, chunk_ in enumerate(chunks, start=1):
        last = number == len(chunks)
        taken: list[str] = []
        while waiting and (waiting[0].page <= chunk_.page_to or last):
            taken.append(waiting.popleft().text)
        yield replace(chunk_, aside=tuple(taken)) if taken else chunk_


class _Gatherer:
    """Fills chunks with blocks; headings wait for the text under them, so that none is left at a chunk's end."""

    def __init__(self, title: str | None, max_tokens: int, overlap_tokens: int, count_tokens: CountTokens) -> None:
        self._root = (title,) if title else ()
        self._max = max_tokens
        self._overlap = overlap_tokens
        self._count = count_tokens
        self._headings: list[tuple[int, str]] = []
        self._waiting: list[_Piece] = []
        self._draft: _Draft | None = None

    def gather(self, placed: Sequence[Placed]) -> Iterator[_Draft]:
        for item in placed:
            if item.block.kind is BlockKind.HEADING:
                if self._waiting and self._is_beside(item.block):
                    # A heading without text of its own: what comes now is not below it.
                    yield from self._put([])
                self._enter(item.block)
                self._waiting.extend(self._pieces(item, self._max))
            else:
                lead = sum(piece.tokens for piece in self._waiting)
                for piece in self._pieces(item, max(self._max - lead - _SEAM * len(self._waiting), self._max // 2)):
                    yield from self._put([piece])
        yield from self._put([])
        if self._draft is not None:
            yield self._draft

    def _pieces(self, item: Placed, limit: int) -> Iterator[_Piece]:
        block = item.block
        if block.kind is BlockKind.CODE and limit < self._count(block.text) <= self._max:
            # Whole, though its heading then stands alone.
            limit = self._max
        elif block.kind in REPEATED and self._count(block.text) > limit:
            # Whatever part comes first in a chunk leaves room for what it repeats.
            limit = max(limit - self._overlap - _SEAM, limit // 2)
        head = "\n".join(block.text.split("\n", 2)[:2]) if block.kind is BlockKind.TABLE else ""
        at = 0
        for index, text in enumerate(cut(block, max(limit, _LEAST_TOKENS), self._count)):
            repeated = solid_length(head) if head and index and text.startswith(head) else 0
            end = at + solid_length(text) - repeated
            yield _Piece(text, self._count(text), *item.span(at, end), item)
            at = end

    def _put(self, pieces: list[_Piece]) -> Iterator[_Draft]:
        """Add what waits and ``pieces`` to the chunk, or begin a new one; yields the chunks that are full."""
        begins = bool(self._waiting)
        group = [*self._waiting, *pieces]
        self._waiting = []
        if not group:
            return
        path = self._path()
        if self._draft is not None and not self._takes(self._draft, group, begins):
            yield self._draft
            if not begins:
                group[0] = group[0].after(self._draft.pieces[-1], self._overlap, self._max, self._count)
            self._draft = None
        for piece in group:
            if self._draft is not None and not self._fits(self._draft, [piece]):
                yield self._draft
                self._draft = None
            if self._draft is None:
                self._draft = _Draft(path)
            self._draft.path = _common(self._draft.path, path)
            self._draft.pieces.append(piece)

    def _takes(self, draft: _Draft, group: Sequence[_Piece], begins: bool) -> bool:
        # A new section begins a new chunk, unless the chunk is so short that it had better not stand alone.
        return not (begins and draft.tokens > _FULL_ENOUGH * self._max) and self._fits(draft, group)

    def _fits(self, draft: _Draft, group: Sequence[_Piece]) -> bool:
        size = draft.tokens + sum(piece.tokens for piece in group)
        # Sizes add up but for the seams, so the whole need not be counted while there is room.
        if size > self._max or size < _ROOMY * self._max:
            return size <= self._max
        return self._count(_Draft((), [*draft.pieces, *group]).text) <= self._max

    def _is_beside(self, heading: Block) -> bool:
        return bool(self._headings) and heading.level <= self._headings[-1][0]

    def _enter(self, heading: Block) -> None:
        while self._headings and self._headings[-1][0] >= heading.level:
            self._headings.pop()
        if words := heading.title[:_MAX_HEADING_CHARS]:
            self._headings.append((heading.level, words))

    def _path(self) -> tuple[str, ...]:
        words = tuple(heading for _, heading in self._headings)
        if self._root and words and words[0].casefold() == self._root[0].casefold():
            return words
        return self._root + words


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return one[:shared]
