"""Embeddings out of nothing but hashing: the same text gives the same unit vector, in every process."""

import hashlib
import math
import re

_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_SLOTS = 4


def tokens(text: str) -> list[str]:
    """Lower-cased words; runs of Chinese, Japanese or Korean as single characters and pairs."""
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        if _CJK.search(word):
            found += list(word)
            found += [word[i : i + 2] for i in range(len(word) - 1)]
        else:
            found.append(word)
    return found


def embed(text: str, dim: int, seed: str = "") -> list[float]:
    """A unit vector of width `dim`: signed feature hashing of the words, so texts that share words are near.

    A small part hashes the whole text, so two texts with the same words in another order still differ. Another `seed`
    is another "build" of the model: its vectors of the same text have nothing in common with these.
    """
    vector = [0.0] * dim
    for token in tokens(text):
        _add(vector, f"{seed}\0{token}", 1.0)
    _add(vector, f"{seed}\0\0{text}", 0.1)
    norm = math.sqrt(sum(x * x for x in vector))
    if norm == 0.0:  # the slots of one hash cancelled out, which takes a very narrow vector
        vector[0] = norm = 1.0
    return [x / norm for x in vector]


def _add(vector: list[float], key: str, weight: float) -> None:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4 * _SLOTS).digest()
    for slot in range(_SLOTS):
        value = int.from_bytes(digest[4 * slot : 4 * slot + 4])
        vector[(value >> 1) % len(vector)] += weight if value & 1 else -weight
