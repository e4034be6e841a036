"""What the stages ask of models; ``adapters/`` answers with chains, a test with a few lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pipeline.domain.call import Answer
from pipeline.failover.records import CallContext
from pipeline.failover.upstream import ChatRequest, Reply

__all__ = ["ChatModel", "EmbeddingModel", "ReplyCheck", "estimate_tokens"]

ReplyCheck = Callable[[Reply], str | None]
"""Says why a reply can't be used, or None; a refused reply counts as ``invalid_output`` of its target."""

_CHARS_PER_TOKEN = 3
"""Low on purpose: a contract check that errs must err towards a target with room."""


class ChatModel(Protocol):
    """A vision or language model role."""

    async def chat(self, request: ChatRequest, context: CallContext, check: ReplyCheck | None = None) -> Answer[Reply]:
        """One answer, from the first target of the role's chain that gives one.

        Raises:
            ChainExhausted: No target answered.
        """
        ...


class EmbeddingModel(Protocol):
    """The embedding role of one space."""

    async def embed(self, texts: Sequence[str], context: CallContext) -> Answer[list[list[float]]]:
        """One unit-length vector a text, in order, but an empty one for each of which none was made while others were.

        No text may be empty.

        Raises:
            ChainExhausted: No replica answered.
        """
        ...


def estimate_tokens(*texts: str) -> int:
    """A generous guess of a text's length in tokens, for contract checks only."""
    return sum(len(text) // _CHARS_PER_TOKEN + 1 for text in texts)
