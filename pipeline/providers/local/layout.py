"""A page's canonical Markdown from its description and its own text: what ``local/layout`` answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.providers.local.reading import markdown_table
from pipeline.providers.local.words import is_spaceless, paragraphs, plain, tokens

__all__ = ["canonical", "completed"]

_CONTROL = re.compile(r"[\x00-\x01\x03-\x08\x0b-\x1f\x7f\ufffe\uffff]")
# pdfium marks a hyphen that the typesetter put in with U+0002, others use the soft hyphen.
_TYPESET_HYPHEN = re.compile(r"(?:\x02|\u00ad(?=\s*\n))[ \t]*\n?[ \t]*")
_ATX = re.compile(r"^ {0,3}(#{1,6})[ \t]*(?![#!])(\S.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_SETEXT = re.compile(r"^ {0,3}(=+|-{3,})[ \t]*$")
_BULLET = re.compile(r"^(\s*)[•●○▪■◦‣·*+–—-][ \t]+(?=\S)|^(\s*)[•●○▪■◦‣](?=\S)")
_NUMBERED = re.compile(r"^(\s*)\(?(\d{1,3})[.)][ \t]+(?=\S)")
_SECTION = re.compile(r"^(\d{1,2}(?:\.\d{1,2}){0,4})\.?[ \t]+(?=[^\W\d_])")
_HYPHEN_END = re.compile(r"([^\W\d_]+)[-‐]$")
_CELLS = re.compile(r" {3,}")
_ENDS = ".!?:;…。！？：；"
_MIN_HEADED_WIDTH = 40
_MAX_HEADING = 70
# The share of a text's words that must be found in the other text for it to count as being in there.
_SAME_PAGE = 0.7
_READ_WELL = 0.75
_SAID_ALREADY = 0.6


def canonical(description: str, text: str, text_format: str, title: str | None = None) -> str:
    """One page's Markdown.

    Where the description transcribes the page, it gives the structure, and passages that only the text layer has are
    added; where it tells only of figures, the text gives the structure and what the description alone says follows.

    Args:
        description: Markdown of a vision model or of OCR; may be empty.
        text: The page's own text; may be empty.
        text_format: ``plain`` for a text layer, ``markdown`` when ``text`` is Markdown already.
        title: The document's, marked as the top heading where the page opens with it.
    """
    described = _normalised(description)
    own = _normalised(text) if text_format == "markdown" else _from_text_layer(text)
    if not own or not described:
        merged = own or described
    elif text_format != "markdown" and _share(own, described) >= _SAME_PAGE:
        merged = _joined(described, _missing(own, described, 0.3))
    else:
        merged = _joined(own, _missing(described, own, _SAID_ALREADY))
    return _titled(merged, title)


def completed(reading: str, text: str) -> str:
    """What was read from a page's picture, with what it lost of the page's own text.

    Letters too small for the picture are no loss where the file says them.

    Args:
        reading: Markdown of OCR; may be empty.
        text: The page's text layer, which is believed.
    """
    return reading if _share(text, reading) >= _READ_WELL else canonical(reading, text, "plain")


def _joined(body: str, more: Iterable[str]) -> str:
    return "\n\n".join([body, *more])


def _missing(source: str, body: str, known: float) -> Iterator[str]:
    """The paragraphs of ``source`` of which ``body`` has less than the share ``known``."""
    have = Counter(tokens(body))
    for block in paragraphs(source):
        if _share_of(Counter(tokens(block)), have) < known:
            yield block


def _share(text: str, other: str) -> float:
    return _share_of(Counter(tokens(text)), Counter(tokens(other)))


def _share_of(words: Counter[str], have: Counter[str]) -> float:
    total = words.total()
    return (words & have).total() / total if total else 1.0


def _titled(markdown: str, title: str | None) -> str:
    if not title or not markdown:
        return markdown
    first, _, rest = markdown.partition("\n\n")
    wanted = tokens(title)
    if wanted and "\n" not in first and not first.startswith("|") and tokens(plain(first)) == wanted:
        return f"# {plain(first).strip()}" + (f"\n\n{rest}" if rest else "")
    return markdown


def _cleaned(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n\n")
    text = text.replace("\f", "\n\n").replace("\x0b", "\n")
    text = _TYPESET_HYPHEN.sub("", text).replace("\u00ad", "").replace("\u00a0", " ").replace("\ufeff", "")
    return _CONTROL.sub("", text)


def _normalised(markdown: str) -> str:
    """Markdown with one way to write headings, lists and blank lines; wrapped paragraphs are unwrapped."""
    cleaned = _cleaned(markdown)
    scribe = _Scribe(_Hyphens.of(cleaned))
    for line in cleaned.split("\n"):
        scribe.take(line)
    return scribe.finish()


class _Scribe:
    """Takes Markdown line by line and writes it down in blocks."""

    def __init__(self, hyphens: _Hyphens) -> None:
        self._hyphens = hyphens
        self._out: list[str] = []
        self._block: list[str] = []
        self._fence = ""

    def take(self, line: str) -> None:
        fence = _FENCE.match(line)
        if self._fence:
            self._block.append(line.rstrip())
            if fence and fence[1] == self._fence:
                self._close_fence()
        elif fence:
            self._flush()
            self._fence = fence[1]
            self._block.append(line.rstrip())
        elif heading := _ATX.match(line):
            self._flush()
            self._out.append(f"{heading[1]} {heading[2]}")
        elif _SETEXT.match(line) and self._may_be_heading():
            self._out.append(f"{'#' if line.lstrip()[0] == '=' else '##'} {self._block.pop().strip()}")
        elif line.strip():
            self._block.append(line.rstrip() + ("  " if line.endswith("  ") else ""))
        else:
            self._flush()

    def finish(self) -> str:
        if self._fence:
            self._block.append(self._fence)
            self._close_fence()
        self._flush()
        return "\n\n".join(self._out)

    def _may_be_heading(self) -> bool:
        return len(self._block) == 1 and not self._block[0].lstrip().startswith(("|", "-", "*", ">"))

    def _close_fence(self) -> None:
        self._out.append("\n".join(self._block))
        self._block.clear()
        self._fence = ""

    def _flush(self) -> None:
        if self._block:
            self._out.append(_block(self._block, self._hyphens))
            self._block.clear()


def _block(lines: Sequence[str], hyphens: _Hyphens) -> str:
    if all(line.lstrip().startswith("|") for line in lines):
        return "\n".join(line.strip() for line in lines)
    if lines[0].startswith(("    ", "\t", ">", "<")) or any("|" in line for line in lines[:2]):
        return "\n".join(line.rstrip() for line in lines)
    return "\n".join(_unwrapped(lines, hyphens))


def _unwrapped(lines: Sequence[str], hyphens: _Hyphens) -> list[str]:
    """Lines that run on into the next are joined; list items and short lines stay apart."""
    width = max(_extent(line) for line in lines)
    out: list[str] = []
    last = ""
    for raw in lines:
        line, is_item = _listed(raw)
        if out and not is_item and _runs_on(last, line.strip(), width):
            out[-1] = hyphens.join(out[-1], line.strip())
        else:
            out.append(line if is_item else line.strip() + ("  " if line.endswith("  ") else ""))
        last = raw
    return out


def _runs_on(last: str, line: str, width: int) -> bool:
    if last.endswith("  "):
        return False
    return line[:1].islower() or _HYPHEN_END.search(last) is not None or _extent(last) >= 0.75 * width


def _listed(line: str) -> tuple[str, bool]:
    """The line with its bullet or number in Markdown's way, and whether it had one."""
    bullet = _BULLET.match(line)
    if bullet:
        return f"{_indent(bullet[1] or bullet[2] or '')}- {line[bullet.end() :]}", True
    number = _NUMBERED.match(line)
    if number:
        return f"{_indent(number[1])}{number[2]}. {line[number.end() :]}", True
    return line, False


def _indent(space: str) -> str:
    return " " * min(len(space.expandtabs(4)) // 2 * 2, 8)


def _extent(text: str) -> int:
    return sum(2 if is_spaceless(ch) else 1 for ch in text.strip())


@dataclass(frozen=True, slots=True)
class _Hyphens:
    """The page's words, which tell a hyphen of the word from one of the line break."""

    words: frozenset[str]

    @classmethod
    def of(cls, text: str) -> _Hyphens:
        return cls(frozenset(word.casefold() for word in re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", text)))

    def join(self, head: str, tail: str) -> str:
        head = head.rstrip()
        broken = _HYPHEN_END.search(head)
        if broken and tail[:1].isalpha():
            rest = re.match(r"[^\W\d_]+", tail)
            second = rest.group() if rest else ""
            whole = f"{broken[1]}{second}".casefold()
            hyphenated = f"{broken[1]}-{second}".casefold()
            if hyphenated in self.words or (whole not in self.words and not tail[0].islower()):
                return head + tail
            return head[:-1] + tail
        if head and tail and is_spaceless(head[-1]) and is_spaceless(tail[0]):
            return head + tail
        return f"{head} {tail}"


def _from_text_layer(text: str) -> str:
    """Markdown from a PDF's text layer: a line a line, mostly without blank lines between paragraphs."""
    cleaned = _cleaned(text)
    # Tabs at a line's end are a table row's empty cells.
    lines = [line.rstrip(" \r") for line in cleaned.split("\n")]
    extents = sorted(_extent(line) for line in lines if line.strip())
    if not extents:
        return ""
    width = extents[int(0.9 * (len(extents) - 1))]
    hyphens = _Hyphens.of(cleaned)
    blocks: list[str] = []
    paragraph: list[str] = []

    def flush() -> None:
        if paragraph:
            blocks.append(_one(paragraph, hyphens))
            paragraph.clear()

    at = 0
    while at < len(lines):
        line = lines[at]
        table, length = _table_at(lines, at)
        if table:
            flush()
            blocks.append(table)
            at += length
            continue
        at += 1
        if not line.strip():
            flush()
            continue
        before = paragraph[-1] if paragraph else ""
        line = _folded(line)
        # A text layer sets headings apart by an empty line on both sides.
        after = next((following for following in lines[at : at + 2] if following.strip()), "")
        heading = _heading(line.strip(), before, after, width)
        if heading:
            flush()
            blocks.append(heading)
            continue
        if paragraph and not _continues(before, line.strip(), width):
            flush()
        paragraph.append(line)
    flush()
    return "\n\n".join(_lists_together(blocks))


def _folded(line: str) -> str:
    """The line with single spaces, its indent kept."""
    body = line.lstrip()
    return line[: len(line) - len(body)] + " ".join(body.split())


def _one(lines: Sequence[str], hyphens: _Hyphens) -> str:
    text, _ = _listed(lines[0])
    text = text.strip()
    for line in lines[1:]:
        text = hyphens.join(text, line.strip())
    return text


def _continues(before: str, line: str, width: int) -> bool:
    if _listed(line)[1]:
        return False
    if line[:1].islower() or _HYPHEN_END.search(before):
        return True
    full = _extent(before) >= 0.75 * width
    return full if width >= _MIN_HEADED_WIDTH else full and before.rstrip()[-1:] not in _ENDS


def _heading(line: str, before: str, after: str, width: int) -> str:
    """The line as a heading, or nothing: a short line of its own, above prose, that is no sentence."""
    if _extent(line) > _MAX_HEADING or line[-1] in _ENDS + ",、" or sum(ch.isalpha() for ch in line) < 3:
        return ""
    if before and _extent(before) >= 0.75 * width and before.rstrip()[-1] not in _ENDS:
        return ""
    prose_follows = _extent(after) >= max(0.6 * width, _MIN_HEADED_WIDTH) and not after.strip()[:1].islower()
    if not prose_follows or width < _MIN_HEADED_WIDTH or _extent(line) >= 0.75 * width:
        return ""
    section = _SECTION.match(line)
    if section:
        return f"{'#' * min(2 + section[1].count('.'), 6)} {line}"
    if ": " in line or _listed(line)[1] or not (line[0].isupper() or is_spaceless(line[0])):
        return ""
    return f"{'##' if line.isupper() else '###'} {line}"


def _table_at(lines: Sequence[str], at: int) -> tuple[str, int]:
    """A table that starts at a line, told by tabs or wide gaps, and how many lines it takes; nothing when none does."""
    grid: list[list[str]] = []
    least = 2 if "\t" in lines[at] else 3
    for line in lines[at:]:
        # A text layer parts cells by one tab each, so that an empty cell is two of them; else wide gaps tell.
        cells = [cell.strip() for cell in (line.split("\t") if "\t" in line else _CELLS.split(line.strip()))]
        if len(cells) < 2 or _BULLET.match(f"{cells[0]} x") or (grid and len(cells) != len(grid[0])):
            break
        grid.append(cells)
    return (markdown_table(grid), len(grid)) if len(grid) >= least else ("", 0)


def _lists_together(blocks: Iterable[str]) -> list[str]:
    """Items that follow each other make one list."""
    out: list[str] = []
    for block in blocks:
        item = re.match(r"(?:- |\d{1,3}\. )", block)
        if item and out and re.match(r"(?:- |\d{1,3}\. )", out[-1]):
            out[-1] = f"{out[-1]}\n{block}"
        else:
            out.append(block)
    return out
