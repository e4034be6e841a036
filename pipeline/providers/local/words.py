"""Words, sentences and scripts, without a dictionary of any language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["is_han", "is_spaceless", "paragraphs", "plain", "sentences", "stem", "tokens"]

# Han, kana, Thai, Lao, Khmer, Burmese: written without spaces between words.
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f"
)
_IS_SPACELESS = re.compile(f"[{_SPACELESS}]")
_FIRST_SPACELESS = "\u0e00"
_TOKEN = re.compile(f"[{_SPACELESS}]+|[^\\W_{_SPACELESS}]+(?:[-'’.][^\\W_{_SPACELESS}]+)*")
# The same of ASCII in lower case.
_ASCII_TOKEN = re.compile(r"[a-z0-9]+(?:[-'.][a-z0-9]+)*")
# Begins with the sign itself, for which a text is searched far faster than for what stands after one.
_SENTENCE_END = re.compile(
    r"[.!?…。！？\n](?:(?<=[.!?…])[\"'”’)\]]*\s+(?=[^\s\d]|\d+[^\s.)\d])|(?<=[。！？])[」』”）]*\s*|(?<=\n)\n+)"
)
_ABBREVIATED = re.compile(r"(?:\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|No|Nr|Fig|Eq|vs|etc|al|cf|e\.g|i\.e|approx|Inc)\.)$")
_LONGEST_ABBREVIATION = 8
# Bounded, or a page of opening brackets would take minutes.
_LINK = re.compile(r"!?\[([^\[\]]{0,500})\]\([^()\s]{0,2000}(?:\s[^()]{0,200})?\)")
_BLOCK_MARK = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+][ \t]+|\d{1,3}\.[ \t]+(?=\S))", re.MULTILINE)
# Before a word or after one; searched for by its first sign, like the end of a sentence.
_EMPHASIS = re.compile(r"[*_`](?:(?<!\w[*_`])[*_`]{0,2}(?=\S)|(?<=\S[*_`])[*_`]{0,2}(?!\w))")
_RULE_LINE = re.compile(r"^[ \t|:-]+$", re.MULTILINE)
_TABLE_LINE = re.compile(r"^[ \t]*\|(.*)\|[ \t]*$", re.MULTILINE)


def is_spaceless(character: str) -> bool:
    """Whether this is a letter of a script that puts no spaces between words."""
    return character >= _FIRST_SPACELESS and _IS_SPACELESS.match(character) is not None


def is_han(character: str) -> bool:
    """Whether this is a Chinese character (of any language that uses them)."""
    return "\u3400" <= character <= "\u9fff" or character >= "\U00020000"


def tokens(text: str) -> list[str]:
    """The words, compatibility-composed and case-folded; runs without spaces come as overlapping pairs of letters."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    found: list[str] = []
    for word in _TOKEN.findall(unicodedata.normalize("NFKC", text)):
        if not is_spaceless(word[0]):
            found.append(word.casefold())
        elif len(word) == 1:
            found.append(word)
        else:
            found.extend([word[i : i + 2] for i in range(len(word) - 1)])
    return found


def stem(token: str) -> str:
    """The word without the commonest endings of English, which many languages share in part; for comparing only."""
    if len(token) > 4 and not is_spaceless(token[0]):
        for ending in ("ing", "ed", "es", "s"):
            if token.endswith(ending) and len(token) - len(ending) >= 3 and not token.endswith("ss"):
                return token[: -len(ending)].rstrip("e")
        return token.rstrip("e")
    return token


def sentences(text: str) -> list[str]:
    """The sentences in order, white space folded."""
    found: list[str] = []
    for piece in _sentence_pieces(text):
        sentence = " ".join(piece.split())
        if not sentence:
            continue
        if found and _is_abbreviated(found[-1]):
            found[-1] = f"{found[-1]} {sentence}"
        else:
            found.append(sentence)
    return found


def _sentence_pieces(text: str) -> Iterator[str]:
    at = 0
    for end in _SENTENCE_END.finditer(text):
        first = end.start()
        yield text[at : first if text[first] == "\n" else first + 1]
        at = end.end()
    yield text[at:]


def _is_abbreviated(sentence: str) -> bool:
    return (
        sentence[-1] == "." and _ABBREVIATED.search(sentence, max(0, len(sentence) - _LONGEST_ABBREVIATION)) is not None
    )


def paragraphs(text: str) -> list[str]:
    """What blank lines part."""
    return [block.strip("\n") for block in re.split(r"\n[ \t]*(?:\n[ \t]*)+", text) if block.strip()]


def plain(markdown: str) -> str:
    """Markdown without its marks: what a reader would hear. List items and table rows come as paragraphs."""
    text = markdown
    # Most text has none of these, which is known sooner than it is searched.
    if "---" in text:
        text = _RULE_LINE.sub(lambda line: "" if "---" in line[0] else line[0], text)
    if "|" in text:
        text = _TABLE_LINE.sub(_table_row, text)
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    text = _BLOCK_MARK.sub("\n\n", text)
    return _EMPHASIS.sub("", text).strip("\n")


def _table_row(row: re.Match[str]) -> str:
    cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row[1])]
    return "\n\n" + ", ".join(cell for cell in cells if cell)
