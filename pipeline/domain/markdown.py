"""Markdown as blocks: read into them, and cut so that none is too long.

Only as much of CommonMark as decides where text may be cut: headings, fenced code, pipe tables, lists, quotes,
paragraphs. Whoever cuts passes a measure (characters, tokens), so sections and chunks are cut by one set of rules.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Block", "BlockKind", "blocks", "cut", "pack", "sentences"]

Measure = Callable[[str], int]

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
_ATX = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_SETEXT = re.compile(r"^ {0,3}(=+|-{2,})[ \t]*$")
# Possessive, so that spaces are not shared out in all ways between two patterns for them.
_ROW_RULE = re.compile(r"^ {0,3}\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*\|?[ \t]*$")
_ITEM = re.compile(r"^ {0,3}(?:[-*+•]|\d{1,9}[.)])(?:[ \t]+\S|[ \t]*$)")
_SENTENCE = re.compile(
    r"[^.!?。！？…\n]*[.!?。！？…]+[\"'”’)\]」』]*(?:[ \t]+|(?<=[。！？])|$)|[^.!?。！？…\n]+$|[^\n]+", re.MULTILINE
)
_WORD = re.compile(r"\s*\S+\s*")
_JOINER = "\u200d"
# Beside marks: joiners, vowels that are letters by their category (Thai, Lao, Hangul), skin tones, letters of flags.
_JOINED = re.compile("[\u200c\u200d\u0e33\u0eb3\u1160-\u11ff\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")
_VIRAMA = 9
_LEAST_LIMIT = 8
# What the seams with a head and a tail may add to their sizes.
_SEAM = 4


class BlockKind(StrEnum):
    """What a block is, as far as cutting is concerned."""

    HEADING = "heading"
    CODE = "code"
    TABLE = "table"
    LIST = "list"
    QUOTE = "quote"
    PARAGRAPH = "paragraph"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of Markdown that stands by itself.

    Attributes:
        text: Its lines as they were written, without the empty lines around them.
        level: 1 to 6 for a heading, else 0.
    """

    kind: BlockKind
    text: str
    level: int = 0

    @property
    def title(self) -> str:
        """A heading's words."""
        line = self.text.splitlines()[0]
        match = _ATX.match(line)
        if match is None:
            return line.strip()
        words = (match.group(2) or "").strip()
        bare = words.rstrip("#")
        return bare.rstrip() if not bare or bare[-1].isspace() else words


def blocks(markdown: str) -> list[Block]:
    """Read Markdown into blocks, in order; every line that isn't empty is in exactly one."""
    lines = markdown.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: list[Block] = []
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        kind, level, end = _block_at(lines, at)
        found.append(Block(kind, "\n".join(lines[at:end]).rstrip(), level))
        at = end
    return found


def _block_at(lines: Sequence[str], at: int) -> tuple[BlockKind, int, int]:
    line = lines[at]
    if fence := _FENCE.match(line):
        return BlockKind.CODE, 0, _after_fence(lines, at, fence.group(1))
    if atx := _ATX.match(line):
        return BlockKind.HEADING, len(atx.group(1)), at + 1
    if _starts_table(lines, at):
        return BlockKind.TABLE, 0, _while(lines, at + 2, lambda text: "|" in text and bool(text.strip()))
    if _ITEM.match(line):
        return BlockKind.LIST, 0, _after_list(lines, at)
    if line.lstrip().startswith(">"):
        return BlockKind.QUOTE, 0, _while(lines, at + 1, lambda text: bool(text.strip()))
    end = at + 1
    while end < len(lines) and lines[end].strip() and not _interrupts(lines, end):
        if setext := _SETEXT.match(lines[end]):
            # Only one line over the rule makes a heading here: "---" under a paragraph is nearly always a ruler.
            if end == at + 1:
                return BlockKind.HEADING, 1 if setext.group(1)[0] == "=" else 2, end + 1
            break
        end += 1
    return BlockKind.PARAGRAPH, 0, end


def _interrupts(lines: Sequence[str], at: int) -> bool:
    line = lines[at]
    return bool(_FENCE.match(line) or _ATX.match(line) or _ITEM.match(line)) or _starts_table(lines, at)


def _starts_table(lines: Sequence[str], at: int) -> bool:
    return (
        "|" in lines[at]
        and at + 1 < len(lines)
        and ("|" in lines[at + 1] or lines[at].count("|") <= 2)
        and bool(_ROW_RULE.match(lines[at + 1]))
    )


def _after_fence(lines: Sequence[str], at: int, fence: str) -> int:
    for index in range(at + 1, len(lines)):
        text = lines[index].strip()
        if text.startswith(fence) and not text.strip(fence[0]):
            return index + 1
    return len(lines)


def _after_list(lines: Sequence[str], at: int) -> int:
    end = at + 1
    while end < len(lines):
        line = lines[end]
        if line.strip():
            if not line.startswith((" ", "\t")) and not _ITEM.match(line) and _interrupts(lines, end):
                break
            end += 1
            continue
        after = next((index for index in range(end, len(lines)) if lines[index].strip()), None)
        if after is None or not (_ITEM.match(lines[after]) or lines[after].startswith(("  ", "\t"))):
            break
        end = after
    return end


def _while(lines: Sequence[str], at: int, holds: Callable[[str], bool]) -> int:
    while at < len(lines) and holds(lines[at]):
        at += 1
    return at


# --- cutting ---------------------------------------------------------------------------------------------------------


def cut(block: Block, limit: int, measure: Measure) -> list[str]:
    """Cut a block into pieces that measure at most ``limit``, at the best places it has.

    A table keeps its header in every piece, code its fences; a list is cut between items, text after sentences, then
    between words, and a word that is too long anywhere. Nothing is lost but white space.

    Args:
        block: What to cut.
        limit: At least 8.
        measure: The length of a text, in the limit's unit.
    """
    if limit < _LEAST_LIMIT:
        msg = f"limit {limit} is below {_LEAST_LIMIT}"
        raise ValueError(msg)
    if measure(block.text) <= limit:
        return [block.text]
    lines = block.text.split("\n")
    if block.kind is BlockKind.TABLE and len(lines) > 2:
        header = "\n".join(lines[:2])
        # A header that takes most of the room is not worth repeating.
        if measure(header) <= limit // 2:
            return pack([f"{line}\n" for line in lines[2:]], limit, measure, head=f"{header}\n")
    elif block.kind is BlockKind.CODE and (fence := _FENCE.match(lines[0])):
        closed = len(lines) > 1 and lines[-1].strip() == fence.group(1)
        body = lines[1:-1] if closed else lines[1:]
        if measure(lines[0] + fence.group(1)) <= limit // 2:
            ends = {"head": f"{lines[0]}\n", "tail": fence.group(1)}
            return pack([f"{line}\n" for line in body], limit, measure, **ends)
    elif block.kind is BlockKind.LIST:
        return pack(list(_items(lines)), limit, measure)
    return pack(sentences(block.text), limit, measure)


def pack(units: Sequence[str], limit: int, measure: Measure, *, head: str = "", tail: str = "") -> list[str]:
    """Put units together, in order, into as few pieces as fit; a unit that doesn't fit is cut further.

    Args:
        units: Texts that carry their own separators.
        limit: For each piece with ``head`` and ``tail``.
        measure: The length of a text.
        head: Put before each piece.
        tail: Put after each piece.
    """
    frame = _Frame(limit, measure, head, tail)
    pieces: list[str] = []
    batch: list[str] = []
    size = 0
    for unit in units:
        whole = frame.size(unit)
        # Counting is what takes the time: what is clearly small enough is counted once.
        fits = whole + _SEAM <= frame.room or frame.fits(unit)
        for part in [unit] if fits else _smaller(unit, frame):
            added = whole if fits else frame.size(part)
            if batch and size + added > frame.room:
                pieces.extend(_close(batch, frame))
                batch, size = [], 0
            batch.append(part)
            size += added
    pieces.extend(_close(batch, frame))
    return pieces


class _Frame:
    """The limit, and what is put around each piece."""

    def __init__(self, limit: int, measure: Measure, head: str, tail: str) -> None:
        self._limit, self._measure, self._head, self._tail = limit, measure, head, tail
        # A tokenizer may count its own start and end marks.
        self._marks = measure("")
        self.room = limit - (measure(head + tail) if head or tail else self._marks)

    def size(self, text: str) -> int:
        """What a text adds to a piece. Sizes add up but for a few tokens at the seams; ``fits`` has the last word."""
        return self._measure(text) - self._marks

    def put(self, body: str) -> str:
        return f"{self._head}{body}{self._tail}".rstrip() if self._head or self._tail else body.strip()

    def fits(self, body: str) -> bool:
        return self._measure(self.put(body)) <= self._limit


def _close(batch: Sequence[str], frame: _Frame) -> list[str]:
    """Make the pieces of a batch: one, unless its parts measure more together than alone."""
    body = "".join(batch)
    if not body.strip():
        return []
    if len(batch) < 2 or frame.fits(body):
        return [frame.put(body)]
    half = len(batch) // 2
    return _close(batch[:half], frame) + _close(batch[half:], frame)


def _smaller(unit: str, frame: _Frame) -> Iterator[str]:
    """Cut a unit that doesn't fit: by sentences, then words, then anywhere. Each part fits by itself."""
    for finer in (sentences, _words):
        parts = finer(unit)
        if len(parts) > 1:
            for part in parts:
                yield from [part] if frame.fits(part) else _smaller(part, frame)
            return
    at = 0
    while at < len(unit):
        end = _longest(unit, at, frame)
        yield unit[at:end]
        at = end


def _longest(text: str, at: int, frame: _Frame) -> int:
    """Where the longest part that begins at ``at`` and fits ends; it has at least one character."""
    low, high = at + 1, at + 2
    while high <= len(text) and frame.fits(text[at:high]):
        low, high = high, at + 2 * (high - at)
    high = min(high, len(text) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if frame.fits(text[at:middle]):
            low = middle
        else:
            high = middle
    end = low
    while at < end < len(text) and _is_one_sign(text, at, end):
        end -= 1
    return end if end > at else low


def _is_one_sign(text: str, start: int, at: int) -> bool:
    """Whether a cut at ``at`` would part what is written as one sign: the gist of Unicode's Annex 29.

    Args:
        start: Where a sign begins, at or before ``at``.
    """
    before, after = text[at - 1], text[at]
    if unicodedata.category(after).startswith("M") or _JOINED.match(after) or before == _JOINER:
        return True
    if unicodedata.combining(before) == _VIRAMA:
        # The sign that makes one of two consonants.
        return after.isalpha()
    if _FLAG_LETTER.match(after):
        first = at
        while first > start and _FLAG_LETTER.match(text[first - 1]):
            first -= 1
        return (at - first) % 2 == 1
    return False


def _items(lines: Sequence[str]) -> Iterator[str]:
    item: list[str] = []
    for line in lines:
        if item and _ITEM.match(line):
            yield "\n".join(item) + "\n"
            item = []
        item.append(line)
    if item:
        yield "\n".join(item)


def sentences(text: str) -> list[str]:
    """Sentences with the white space after them; a line break ends one only where a line ends a sentence."""
    parts: list[str] = []
    for line in text.splitlines(keepends=True):
        pieces = [match.group() for match in _SENTENCE.finditer(line.rstrip("\n"))] or [""]
        pieces[-1] += line[len(line.rstrip("\n")) :]
        parts.extend(pieces)
    return [part for part in parts if part]


def _words(text: str) -> list[str]:
    return _WORD.findall(text)
