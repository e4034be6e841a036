"""How far an answer keeps to a page's own words: what it lost of them, and whether it went round in circles."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["lost_words", "repeated"]

# Without spaces between words a text is compared by pairs of its characters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_UNSPACED}]+")
_WORD = re.compile(r"[^\W_]{3,}")
_BROKEN = re.compile("(?<=\\w)[-\u00ad\u2010\x02][ \t]*\r?\n[ \t]*(?=\\w)")
_LETTERS = re.compile(r"[^\W_]+")

# (distinct words at least, the share of them that may be missing): of a few words many may be marks of the page.
_MAY_LOSE = ((20, 0.5), (8, 0.75), (4, 0.99))

_TOKEN = re.compile(f"[{_UNSPACED}]|[^\\W_]+")
_NUMBERED = re.compile(r"(?m)^[ \t]*(?:[-*+•][ \t]+)?\d{1,6}[.):][ \t]+")
_LONGEST_PERIOD = 80
_CIRCLES = 8
_CIRCLED_TOKENS = 150
_TIMES_SOURCE = 2


def lost_words(source: str, answer: str) -> str | None:
    """Say how much of a page's words an answer lost; None where it kept enough of them.

    Case, ligatures, accents and hyphens at a line's end make no difference, nor does the order.

    Args:
        source: The page's own text, which is believed.
        answer: What a model made of it.
    """
    words = _words(source)
    limit = next((share for least, share in _MAY_LOSE if len(words) >= least), None)
    if limit is None:
        return None
    lost = lost_share(source, answer)
    return f"the answer lost {lost:.0%} of the page's {len(words)} words" if lost > limit else None


def lost_share(source: str, answer: str) -> float:
    """The share of a text's distinct words that another lacks, 0 to 1."""
    words = _words(source)
    if not words:
        return 0.0
    folded = _folded(answer)
    there = _words_of(folded)
    # Words that the answer joins or parts otherwise (by a hyphen, by a cell) are still there.
    solid = "".join(_LETTERS.findall(folded))
    kept = sum(word in there or (len(word) > 3 and word in solid) for word in words)
    return 1 - kept / len(words)


def _words(text: str) -> set[str]:
    return _words_of(_folded(text))


def _words_of(folded: str) -> set[str]:
    pairs = {run[at : at + 2] for run in _RUN.findall(folded) for at in range(max(1, len(run) - 1))}
    return pairs | set(_WORD.findall(_RUN.sub(" ", folded)))


def _folded(text: str) -> str:
    """Lower case without accents, and words whole that a line's end has broken."""
    whole = unicodedata.normalize("NFKC", _BROKEN.sub("", text)).casefold()
    if whole.isascii():
        return whole
    apart = unicodedata.normalize("NFKD", whole)
    bare = "".join(ch for ch in apart if unicodedata.category(ch) != "Mn" or "\u3099" <= ch <= "\u309a")
    return unicodedata.normalize("NFC", bare)


def repeated(answer: str, source: str = "") -> str | None:
    """Say what an answer repeats without end; None where it doesn't, or where the page itself does.

    Rows of a form are alike on honest pages too: what counts is a stretch that no page has room for, or that is far
    longer than the page's own.
    """
    length, times, start, tokens = _longest_circle(answer)
    if not length:
        return None
    if source and _longest_circle(source)[0] * _TIMES_SOURCE >= length:
        return None
    words = " ".join(tokens[start : start + min(length // times, 12)])
    return f"the answer repeats itself ({times} times {words!r})"


def _longest_circle(text: str) -> tuple[int, int, int, list[str]]:
    """The longest stretch that is one run of tokens over and over: its length, how often, where it begins, all tokens.

    The length is 0 where nothing is repeated often enough.
    """
    tokens = _TOKEN.findall(_NUMBERED.sub("", text).casefold())
    best = (0, 0, 0)
    for period in range(1, min(_LONGEST_PERIOD, len(tokens) // _CIRCLES) + 1):
        length, end = _run_of_equals(tokens, period)
        total = length + period
        if total >= _CIRCLED_TOKENS and total >= _CIRCLES * period and total > best[0]:
            start = end - total
            # Columns of figures are alike on honest pages.
            if any(token.isalpha() for token in tokens[start : start + period]):
                best = total, total // period, start
    return (*best, tokens)


def _run_of_equals(tokens: list[str], period: int) -> tuple[int, int]:
    """The longest run of tokens that equal the one ``period`` before: its length, and where it ends."""
    longest = run = end = 0
    for at in range(period, len(tokens)):
        if tokens[at] == tokens[at - period]:
            run += 1
            if run > longest:
                longest, end = run, at + 1
        else:
            run = 0
    return longest, end
