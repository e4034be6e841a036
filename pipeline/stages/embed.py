"""Embed: chunks with their context → vectors, a batch a call."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.domain.call import Answer
from pipeline.failover.records import CallContext
from pipeline.stages.ports import EmbeddingModel

__all__ = ["VERSION", "embed", "embedding_text"]

VERSION = 1


def embedding_text(text: str, heading: Sequence[str], context: str) -> str:
    """What a chunk's vector is made of: its context, its heading path, then itself."""
    head = [part for part in (context.strip(), " > ".join(heading)) if part]
    return "\n\n".join([*head, text])


async def embed(texts: Sequence[str], embedder: EmbeddingModel, context: CallContext) -> Answer[list[list[float]]]:
    """One vector a text, in order.

    Raises:
        ChainExhausted: No replica answered.
    """
    return await embedder.embed(texts, context)
