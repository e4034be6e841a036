"""An answer made of the passages' own sentences, with citations: what ``local/extract`` answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.providers.local.cues import is_common
from pipeline.providers.local.words import plain, sentences, stem, tokens

__all__ = ["NOTHING_FOUND", "extract"]

NOTHING_FOUND = "The passages found do not answer this question."

_MAX_SENTENCES = 3
# A sentence without this share of the question's telling words (weighed by rarity) is not an answer to it.
_MIN_SHARE = 0.34


@dataclass(frozen=True, slots=True)
class _Candidate:
    score: float
    passage: int
    at: int
    sentence: str


def extract(question: str, passages: Sequence[str | Mapping[str, Any]]) -> str:
    """Up to three sentences that say most of what the question asks about, each with its passage's number as ``[n]``.

    Args:
        question: As it was asked.
        passages: Texts, or mappings with the text under ``text``; numbered from 1 in their order, best first.
    """
    texts = [plain(p if isinstance(p, str) else str(p.get("text", ""))) for p in passages]
    split = [sentences(text) for text in texts]
    asked = {stem(word) for word in tokens(question) if not is_common(word)} or _stems(question)
    spread: Counter[str] = Counter()
    for said in split:
        for sentence in said:
            spread.update(_stems(sentence) & asked)
    total = sum(len(said) for said in split)
    weight = {word: math.log(1 + (total + 1) / (spread[word] + 0.5)) for word in asked}
    possible = sum(weight.values())
    found: list[_Candidate] = []
    for number, said in enumerate(split, start=1):
        for at, sentence in enumerate(said):
            words = _stems(sentence)
            share = sum(weight[word] for word in words & asked) / possible if possible else 0.0
            if share >= _MIN_SHARE and not sentence.endswith(("?", "？")):
                rank = 1 / (1 + 0.1 * (number - 1))
                found.append(_Candidate(share * rank / math.log(8 + len(words)), number, at, sentence))
    best = sorted(found, key=lambda c: -c.score)
    chosen: list[_Candidate] = []
    for candidate in best:
        if len(chosen) == _MAX_SENTENCES or candidate.score < 0.5 * best[0].score:
            break
        if all(candidate.sentence != other.sentence for other in chosen):
            chosen.append(candidate)
    if not chosen:
        return NOTHING_FOUND
    return " ".join(f"{c.sentence} [{c.passage}]" for c in sorted(chosen, key=lambda c: (c.passage, c.at)))


def _stems(text: str) -> set[str]:
    return {stem(word) for word in tokens(text)}
