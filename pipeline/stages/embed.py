"""Embed: chunks with their context → vectors, a batch a call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.domain.call import Answer
from pipeline.failover.records import CallContext
from pipeline.stages.ports import EmbeddingModel

__all__ = ["USUAL_WINDOW", "VERSION", "embed", "embedding_text", "tokens_at_most"]

VERSION = 2

USUAL_WINDOW = 512
"""Tokens that about every embedding model takes; what is assumed of one whose window nobody stated."""

# An empty line before the next part, and some doubt about how it is counted.
_SEAM = 3
_PARTS = re.compile(r" ?[A-Za-z]+|[^A-Za-z]", re.DOTALL)
# Other runs of letters are codes, and come out letter by letter.
_LONGEST_WORD = 16
_VOWEL = re.compile(r"[aeiouy]", re.IGNORECASE)
_WORD = re.compile(r"\S+\s*")


def embedding_text(text: str, heading: Sequence[str], context: str, room: int | None = None) -> str:
    """What a chunk's vector is made of: its context, its heading path, then itself.

    Args:
        text: The chunk; never cut, as it was made to fit.
        heading: Outermost first; where there is no room for all, the innermost stay.
        context: What situates the chunk; its beginning stays.
        room: Tokens that the model takes beside the chunk; None for no bound.
    """
    path, context = " > ".join(heading), context.strip()
    if room is not None:
        kept = list(heading)
        while kept and tokens_at_most(path) + _SEAM > room:
            del kept[0]
            path = " > ".join(kept)
        left = room - (tokens_at_most(path) + _SEAM if path else 0) - _SEAM
        context = _beginning(context, left)
    head = [part for part in (context, path) if part]
    return "\n\n".join([*head, text])


def tokens_at_most(text: str) -> int:
    """About the most tokens that any vocabulary makes of a text: by letters, and by bytes where they aren't Latin."""
    return sum(_part_at_most(part) for part in _PARTS.findall(text))


def _part_at_most(part: str) -> int:
    letters = part.strip()
    if letters.isalpha() and letters.isascii() and len(letters) <= _LONGEST_WORD and _VOWEL.search(letters):
        return (len(letters) + 1) // 2
    return len(part.encode("utf-8", "replace"))


def _beginning(text: str, room: int) -> str:
    if tokens_at_most(text) <= room:
        return text
    kept, size = [], 0
    for word in _WORD.findall(text):
        size += tokens_at_most(word)
        if size > room:
            break
        kept.append(word)
    return "".join(kept).strip()


async def embed(texts: Sequence[str], embedder: EmbeddingModel, context: CallContext) -> Answer[list[list[float]]]:
    """One vector a text, in order; an empty one where none was made of a text while others had theirs.

    Raises:
        ChainExhausted: No replica answered.
    """
    return await embedder.embed(texts, context)
