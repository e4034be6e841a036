"""The words that text search indexes and asks for.

Words are cut here and not by Postgres' parser, which takes ``a/b`` for a file name and knows nothing of scripts
without spaces: runs of those become overlapping pairs of characters (bigrams), on both sides. What is indexed has the
pairs over a space or a line's end as well: scans, PDFs and Korean writers put those anywhere, also inside a word.

What is indexed is each word twice: as it stands (``simple``) and stemmed (``english``). Documents of one installation
mix languages, and nothing says reliably which one a chunk is in. Foreign words go through the English stemmer on both
sides alike, so they still meet; the plain form ranks an exact match above a stem that two words happen to share, and
finds names that are English stop words ("The Who").
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from sqlalchemy import ColumnElement, func, literal_column

__all__ = ["index_terms", "query_terms", "tsv_of"]

_MAX_WORD_CHARS = 256
"""Longer "words" are data (base64, hashes in a row); Postgres would refuse one above 2 KB anyway."""

# Scripts written without spaces, and Hangul, whose words carry their particles with them.
_SPACELESS: tuple[tuple[int, int], ...] = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul letters
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration mark, closing mark, zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x3130, 0x318F),  # Hangul compatibility letters
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xAC00, 0xD7AF),  # Hangul syllables
    (0xF900, 0xFAFF),  # Han, compatibility
    (0x20000, 0x323AF),  # Han, extensions B to H
)


_Terms = str | ColumnElement[str]


_SIGN = "\x1f"

# Marks that some writers set and others don't: Hebrew points, Arabic vowels and the line that stretches a word, and
# which shape of a character is meant.
_UNSAID: tuple[tuple[int, int], ...] = (
    (0x0591, 0x05BD),
    (0x05BF, 0x05C7),
    (0x0610, 0x061A),
    (0x0640, 0x0640),
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0xFE00, 0xFE0F),
    (0xE0100, 0xE01EF),
)


class _WordChars(dict[int, int | None]):
    """``str.translate``'s table: letters, marks, digits and spaces stay, signs part. Filled as it is asked.

    What nobody sees (joiners, soft hyphens, directions) goes.
    """

    def __missing__(self, code: int) -> int | None:
        kept = self._of(code)
        self[code] = kept
        return kept

    @staticmethod
    def _of(code: int) -> int | None:
        category = unicodedata.category(chr(code))
        if category == "Cf" or any(low <= code <= high for low, high in _UNSAID):
            return None
        if category[0] in "LMN":
            return code
        return 0x20 if chr(code).isspace() else ord(_SIGN)


_WORD_CHARS = _WordChars()


def index_terms(text: str) -> str:
    """The words of ``text`` as they are indexed, spaces between; a spaceless run gives its characters and bigrams."""
    return " ".join(_terms(text, single=True))


def query_terms(text: str) -> list[str]:
    """The distinct words of a query, in order; a spaceless run of two or more gives bigrams only."""
    return list(dict.fromkeys(_terms(text, single=False)))


def tsv_of(text: _Terms, context: _Terms | None = None, cues: _Terms | None = None) -> ColumnElement[Any]:
    """The ``tsvector`` expression of a chunk, from words as ``index_terms`` makes them or parameters for these.

    Args:
        text: The chunk itself; weighs most (A).
        context: Its heading path and the sentence that situates it (B).
        cues: Keywords and likely questions (C).
    """
    whole = _weighted(text, "A")
    for part, weight in ((context, "B"), (cues, "C")):
        if part is not None:
            whole = whole.op("||")(_weighted(part, weight))
    return whole


def _weighted(terms: _Terms, weight: str) -> ColumnElement[Any]:
    both = func.to_tsvector(literal_column("'simple'::regconfig"), terms).op("||")(
        func.to_tsvector(literal_column("'english'::regconfig"), terms)
    )
    return func.setweight(both, literal_column(f"'{weight}'::\"char\""))


def _terms(text: str, *, single: bool) -> Iterator[str]:
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_WORD_CHARS)
    for phrase in folded.split(_SIGN):
        before = ""
        for word in phrase.split():
            if single and before and _is_spaceless(before) and _is_spaceless(word[0]):
                yield before + word[0]
            before = word[-1]
            yield from _word_terms(word, single=single)


def _word_terms(word: str, *, single: bool) -> Iterator[str]:
    for spaceless, group in groupby(word, _is_spaceless):
        run = "".join(group)
        if not spaceless:
            yield run[:_MAX_WORD_CHARS]
            continue
        if single or len(run) == 1:
            yield from run
        yield from (first + second for first, second in pairwise(run))


def _is_spaceless(char: str) -> bool:
    code = ord(char)
    return code >= 0x0E00 and any(low <= code <= high for low, high in _SPACELESS)
