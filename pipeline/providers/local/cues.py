"""Retrieval cues taken from the text itself: what ``local/cues`` answers, and the scoring that ``extract`` shares."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypedDict

from pipeline.providers.local.words import is_han, is_spaceless, plain, sentences, tokens

__all__ = ["CuesDocument", "cues", "is_common"]

_MAX_KEYWORDS = 8
_LONGEST_NAME = 4
_MAX_QUESTIONS = 3
_MAX_SENTENCE_CHARS = 240
# Splits a sentence into what stands between words and, at every second place, the words.
_NAME = re.compile(r"([^\W\d_][\w-]*)")
# Words of Han and katakana; the commonest particles of Chinese stand between them.
_RUN = re.compile(r"[\u30a0-\u30ff]{3,16}|(?:(?![的是了在和与及而被把也都])[\u3400-\u4dbf\u4e00-\u9fff々]){2,}")
_LONGEST_RUN = 6
_DEFINES = re.compile(
    r"^(The |An? )?((?:[\w'’/-]+ ){0,4}[\w'’/-]+) (is|are|was|were) (?:an?|the|one of|called|defined)\b"
)
_DEFINES_ZH = re.compile(r"^([\u4e00-\u9fffA-Za-z0-9]{2,12})是(?!否|不)")
_DEFINES_JA = re.compile(r"^([\u3400-\u9fff々\u30a0-\u30ffA-Za-z0-9]{2,16})(?:とは|は)")
_PRONOUNS = frozenset(
    {"it", "this", "that", "there", "these", "those", "he", "she", "they", "we", "i", "you", "what", "which", "who"}
)

# Words that say nothing about a text, in the languages most documents are in. Not a dictionary: what it misses, the
# spread over sentences finds.
_COMMON_WORDS = """
a about above after again all also although am an and any are as at be because been before being below between both
but by can could did do does doing down during each either etc few for from further had has have having he her here
hers him his how however i if in into is it its itself just may me might more most must my no nor not now of off on
once one only or other our ours out over own per same shall she should since so some such than that the their them
then there these they this those through thus to too under until up upon us very via was we were what when where
whether which while who whom why will with within without would yet you your yours
aber als am an auch auf aus bei bin bis das dass dem den der des die doch durch ein eine einem einen einer eines er
es für hat haben ich im in ist kann kein keine mit muss nach nicht noch nur oder sein sich sie sind so über um und
uns unter vom von vor war was wenn werden wie wir wird zu zum zur
au aux avec ce ces cette dans de des du elle en est et il ils je la le les leur mais ne nous on ou par pas pour
plus que qui sa se ses son sont sur un une vous
al como con de del el ella en entre era es esta este ha hay la las lo los más no o para pero por que se ser sin
sobre son su sus un una y ya
che con da dal dalla dei del della di è gli ha il in la le lo ma nel nella non per più sono su un una
ao aos as com da das do dos e em essa esse foi mais mas na nas não nos os ou para pela pelo por que se sem seu sua
são um uma
aan bij dan dat de die dit een en er het ik in is maar met naar niet of om ook op te tot uit van voor was wat worden
zijn
"""
_COMMON = frozenset(_COMMON_WORDS.split())


class CuesDocument(TypedDict):
    """What retrieval adds to a chunk."""

    context: str
    keywords: list[str]
    questions: list[str]


def is_common(token: str) -> bool:
    """Whether a word carries no subject of its own."""
    if is_spaceless(token[0]):
        return all("\u3040" <= ch <= "\u309f" for ch in token)  # kana alone are endings and particles
    return token in _COMMON or len(token) < 2


def cues(chunk: str, heading: Sequence[str] | str, title: str, before: str, after: str) -> CuesDocument:
    """Where the chunk stands and what it is about, in its own words.

    Args:
        chunk: Markdown.
        heading: The heading path, outermost first.
        title: The document's; may be empty.
        before: The end of the chunk before; may be empty.
        after: The start of the chunk after; may be empty.
    """
    path = [heading] if isinstance(heading, str) else list(heading)
    path = [plain(part).strip() for part in path if part and part.strip()]
    text = plain(chunk)
    said = [_Sentence(sentence, tokens(sentence)) for sentence in sentences(text)]
    around = [*sentences(plain(before)), *sentences(plain(after))]
    weights = _weights(said, around, " ".join([title, *path]))
    return {
        "context": _context(said, weights, title.strip(), path),
        "keywords": _keywords(text, said, weights),
        "questions": _questions(said, weights),
    }


class _Sentence(NamedTuple):
    """A sentence of the chunk, and its words as they are weighed."""

    text: str
    words: list[str]


class _Name(NamedTuple):
    """A word as it is written, and what that says: whether it may begin a name, and whether it has a subject."""

    written: str
    folded: str
    is_capital: bool
    is_upper: bool
    is_subject: bool


def _weights(said: Sequence[_Sentence], around: Sequence[str], headed: str) -> dict[str, float]:
    """How much each word of the chunk tells: often here, in few sentences, and named above it."""
    frequency: Counter[str] = Counter()
    spread: Counter[str] = Counter()
    for sentence in said:
        frequency.update(sentence.words)
        spread.update(set(sentence.words))
    for other in around:
        spread.update(set(tokens(other)))
    of = len(said) + len(around)
    above = set(tokens(headed))
    return {
        word: (1 + math.log(count))
        * math.log(1 + (of + 1) / spread[word])
        * (1.6 if word in above else 1.0)
        * min(1.0, 0.4 + 0.1 * len(word) if not is_spaceless(word[0]) else 0.8)
        for word, count in frequency.items()
        if not is_common(word)
    }


def _salience(sentence: _Sentence, weights: Mapping[str, float]) -> float:
    words = set(sentence.words)
    return sum([weights.get(word, 0.0) for word in words]) / math.sqrt(8 + len(words))


def _context(said: Sequence[_Sentence], weights: Mapping[str, float], title: str, path: Sequence[str]) -> str:
    place = " › ".join(part for part in dict.fromkeys([title, *path]) if part)
    headed = [tokens(part) for part in (title, *path)]
    candidates = [sentence for sentence in said if sentence.words not in headed]
    if not candidates:
        return place
    # The opening sentence mostly says what follows; others must tell clearly more to take its place.
    best = max(range(len(candidates)), key=lambda i: _salience(candidates[i], weights) * (1.5 if i == 0 else 1.0))
    sentence = _shortened(candidates[best].text)
    return f"{place}: {sentence}" if place else sentence


def _shortened(sentence: str) -> str:
    if len(sentence) <= _MAX_SENTENCE_CHARS:
        return sentence
    cut = sentence[:_MAX_SENTENCE_CHARS]
    return (cut if is_spaceless(cut[-1]) else cut.rsplit(" ", 1)[0]) + "…"


def _keywords(text: str, said: Sequence[_Sentence], weights: Mapping[str, float]) -> list[str]:
    parted = [_NAME.split(sentence.text) for sentence in said]
    names = [[_name(word) for word in parts[1::2]] for parts in parted]
    phrases = _phrases(said, parted, names)
    shown = _as_written(names, phrases)
    scored: dict[str, float] = {}
    for word, weight in weights.items():
        if _tells(word) and not is_spaceless(word[0]):
            scored[word] = weight * 1.3 if shown.get(word, word) != word else weight
    for phrase, count in phrases.items():
        scored[phrase] = max([weights.get(p, 0.0) for p in phrase.split(" ")]) * (1.4 + 0.1 * count)
    for run, count in ({} if text.isascii() else _runs(text)).items():
        pairs = tokens(run)
        scored[run] = (1 + math.log(count)) * math.sqrt(len(run)) * sum(weights.get(p, 0.0) for p in pairs) / len(pairs)
    chosen: list[str] = []
    parts_chosen: set[str] = set()
    for _, word in sorted([(-score, word) for word, score in scored.items()]):
        if len(chosen) == _MAX_KEYWORDS:
            break
        if word in parts_chosen:
            continue
        if is_spaceless(word[0]) and any(word in other or other in word for other in chosen):
            continue
        chosen.append(word)
        parts_chosen.update(word.split(" "))
    return [shown.get(word, word) for word in chosen]


def _runs(text: str) -> Counter[str]:
    """Words of scripts without spaces: short runs as they are, and what comes twice within the long ones."""
    runs = _RUN.findall(text)
    found = Counter(run for run in runs if len(run) <= _LONGEST_RUN or not is_han(run[0]))
    pieces: Counter[str] = Counter()
    for run in runs:
        if is_han(run[0]):
            pieces.update(run[i : i + size] for size in (4, 3, 2) for i in range(len(run) - size + 1))
    again = {piece: count for piece, count in pieces.items() if count >= 2 and piece not in found}
    # A piece that never stands without its neighbour is a part of a word.
    whole = {
        p: n for p, n in again.items() if not any(p in other and n == m for other, m in again.items() if other != p)
    }
    return found + Counter(whole)


def _tells(word: str) -> bool:
    return len(word) >= 3 and any(ch.isalpha() for ch in word)


def _as_written(said: Sequence[Sequence[_Name]], phrases: Mapping[str, int]) -> dict[str, str]:
    """How words are written: in the middle of sentences where they stand there, for capitals mean a name then."""
    seen: dict[str, dict[str, int]] = {}
    written: dict[str, str] = {}
    for names in said:
        for number, name in enumerate(names):
            if number > 0 or name.is_upper:
                forms = seen.get(name.folded)
                if forms is None:
                    seen[name.folded] = {name.written: 1}
                else:
                    forms[name.written] = forms.get(name.written, 0) + 1
            else:
                written.setdefault(name.folded, name.written)
    for folded, forms in seen.items():
        # The first of those that are written most often.
        written[folded] = max(forms, key=forms.__getitem__)
    for phrase in phrases:
        written[phrase] = " ".join([written.get(part, part) for part in phrase.split(" ")])
    return written


def _phrases(
    said: Sequence[_Sentence], parted: Sequence[Sequence[str]], names: Sequence[Sequence[_Name]]
) -> Counter[str]:
    """Names of several words, and pairs of telling words that come twice.

    Args:
        parted: Each sentence as ``_NAME`` splits it.
        names: The words of each.
    """
    pairs: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for sentence, parts, words in zip(said, parted, names, strict=True):
        name: list[str] = []
        last = len(words) - 1
        for at, word in enumerate(words):
            if not word.is_subject:
                name = []
                continue
            after = words[at + 1] if at < last and parts[2 * at + 2] == " " else None
            if after is not None and not after.is_subject:
                after = None
            if after is not None:
                pairs[f"{word.folded} {after.folded}"] += 1
            if word.is_capital:
                name.append(word.folded)
                if after is not None and after.is_capital:
                    continue
                if 2 <= len(name) <= _LONGEST_NAME and not sentence.text.isupper():
                    found[" ".join(name)] += 1
            name = []
    twice = {pair: n for pair, n in pairs.items() if n >= 2 and not any(pair in name for name in found)}
    return found + Counter(twice)


# The words of a document come again with every chunk.
@lru_cache(maxsize=4096)
def _name(word: str) -> _Name:
    return _Name(word, word.casefold(), word[:1].isupper(), word.isupper(), _is_subject(word))


def _is_subject(word: str) -> bool:
    return _tells(word) and not is_common(word.casefold()) and not is_spaceless(word[0])


def _questions(said: Sequence[_Sentence], weights: Mapping[str, float]) -> list[str]:
    """Questions that the chunk asks itself, then the ones that its definitions answer."""
    asked = [s.text for s in said if s.text.endswith(("?", "？", "؟")) and len(s.text) <= _MAX_SENTENCE_CHARS]
    defined: list[tuple[float, str]] = []
    for sentence in said:
        question = _asks_for(sentence.text)
        if question:
            defined.append((-_salience(sentence, weights), question))
    return list(dict.fromkeys([*asked, *(question for _, question in sorted(defined))]))[:_MAX_QUESTIONS]


def _asks_for(sentence: str) -> str:
    english = _DEFINES.match(sentence)
    if english:
        article, subject, verb = (english[1] or "").lower(), english[2], english[3]
        if subject.split(" ")[0].casefold() in _PRONOUNS:
            return ""
        return f"What {verb} {article}{subject}?"
    japanese = _DEFINES_JA.match(sentence)
    if japanese:
        return f"{japanese[1]}とは何ですか？"
    chinese = _DEFINES_ZH.match(sentence)
    return f"{chinese[1]}是什么？" if chinese else ""
