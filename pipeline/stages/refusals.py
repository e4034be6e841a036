"""Answers that decline the task instead of doing it, told from pages that quote such an answer.

A refusal opens the answer; a page that holds the same sentence has it somewhere, and mostly in its own text as well.
What is not in that text and reads like a refusal is taken for one: the next target is asked, and nothing is lost.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from pipeline.stages.tongues import SPACED, UNSPACED, Tongue

__all__ = ["refusal_in"]

_LONG_CHARS = 600
"""No refusal goes on for longer; what does is a page, unless it opens by saying that no picture was seen."""
_OPENING_CHARS = 1500
_OPENING_SENTENCES = 2
_QUOTED_WORDS = 0.9


@dataclass(frozen=True, slots=True)
class _Ways:
    leads: re.Pattern[str]
    blind: re.Pattern[str]
    declines: re.Pattern[str]


def _compiled(tongue: Tongue, *, after_lead: str = "") -> _Ways:
    leads = re.compile(rf"(?:(?:{tongue.leads}){after_lead}[\s,，،、;:.。!！—–-]*)+")
    return _Ways(leads, re.compile("|".join(tongue.blind)), re.compile("|".join(tongue.blind + tongue.declines)))


_WAYS = (*(_compiled(tongue, after_lead=r"(?!\w)") for tongue in SPACED), *map(_compiled, UNSPACED))

# A heading says nothing yet; a list item, a table's row, a quotation and code are the page's and no answer of a model.
_HEADING = re.compile(r"\s*(?:#{1,6}\s|[*_]{2}[^*_]{1,80}[*_]{2}\s*$)")
_QUOTING = re.compile(r"\s*(?:[-+•>|\"“„«「『]|\*\s|\d+[.)]\s|```|~~~|figure:)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_MARKS = re.compile(r"^[\s*_`~]+|[\s*_`~]+$")
_NOT_LETTERS = re.compile(r"[\W_]+")


def refusal_in(answer: str, source: str = "") -> str | None:
    """The sentence by which an answer declines the task; None where it is none, or where the page says the same.

    Args:
        answer: What the model said.
        source: The page's own text, as far as it is known.
    """
    is_long = len(answer) > _LONG_CHARS
    for sentence in _opening(answer)[: 1 if is_long else _OPENING_SENTENCES]:
        if _declines(sentence, is_long) and not _is_quoted(sentence, source):
            return sentence[:200]
    return None


def _declines(sentence: str, is_long: bool) -> bool:
    said = _folded(sentence)
    for ways in _WAYS:
        lead = ways.leads.match(said)
        rest = said[lead.end() :] if lead else said
        if (ways.blind if is_long else ways.declines).match(rest):
            return True
    return False


def _opening(answer: str) -> list[str]:
    """The first sentences of running text, unless the page's own marks come before any."""
    sentences: list[str] = []
    for line in answer[:_OPENING_CHARS].splitlines():
        if not line.strip() or _HEADING.match(line):
            continue
        if _QUOTING.match(line):
            break
        sentences += [kept for part in _SENTENCE_END.split(line) if (kept := _MARKS.sub("", part))]
        if len(sentences) >= _OPENING_SENTENCES + 1:
            break
    # "I'm sorry." by itself says nothing yet.
    return [one for one in sentences if not _is_lead(one)]


def _is_lead(sentence: str) -> bool:
    said = _folded(sentence)
    return any((lead := ways.leads.match(said)) is not None and not said[lead.end() :].strip() for ways in _WAYS)


def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'").replace("\u02bc", "'").casefold()
    return " ".join(plain.split())


def _is_quoted(sentence: str, source: str) -> bool:
    """Whether the page itself says this: as it stands, or but for what OCR makes of a word."""
    said, there = _folded(sentence), _folded(source)
    letters = _NOT_LETTERS.sub("", said)
    if not there:
        return False
    if letters in _NOT_LETTERS.sub("", there):
        return True
    words = set(_NOT_LETTERS.split(said)) - {""}
    known = set(_NOT_LETTERS.split(there))
    return len(words) >= 5 and len(words & known) >= _QUOTED_WORDS * len(words)
