"""The embedding role of one space: replicas of one model, each checked against the space's reference vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from pipeline.domain.call import Answer
from pipeline.domain.digest import digest_of
from pipeline.failover.call import Caller
from pipeline.failover.records import CallContext
from pipeline.failover.target import Chain
from pipeline.failover.upstream import EmbedRequest, Vectors

__all__ = ["MIN_LIKENESS", "PROBE_TEXT", "FallbackEmbedder", "SpaceReference", "likeness", "unit_length"]

PROBE_TEXT = "The tide gate opens when the water inside stands higher than the water outside."
MIN_LIKENESS = 0.99
"""Cosine between a replica's vector for the probe text and the space's own, below which it is another build."""


class SpaceReference(Protocol):
    """Where a space keeps the vector of the probe text."""

    async def reference(self) -> list[float] | None:
        """The space's reference vector; None before its first answer."""
        ...

    async def propose(self, vector: list[float]) -> list[float]:
        """Make ``vector`` the reference if there is none yet; returns the one that stands."""
        ...


def unit_length(vector: Sequence[float]) -> list[float]:
    """The vector scaled to length 1, so that a cosine is a dot product whatever the model returns."""
    length = math.hypot(*vector)
    return [x / length for x in vector] if length else list(vector)


def likeness(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine of two vectors of length 1."""
    return sum(x * y for x, y in zip(a, b, strict=True))


class FallbackEmbedder:
    """Embeds with the first replica that answers (port ``EmbeddingModel``).

    A target's first answer carries the probe text along; one that does not agree with the space's reference is a
    silently different build, and its answer is ``invalid_output``, also while the primary is down.
    """

    def __init__(self, caller: Caller, chain: Chain, dim: int, space: SpaceReference) -> None:
        self._caller = caller
        self._chain = chain
        self._dim = dim
        self._space = space
        self._trusted: set[str] = set()

    async def embed(self, texts: Sequence[str], context: CallContext) -> Answer[list[list[float]]]:
        """See ``EmbeddingModel.embed``.

        Raises:
            ValueError: A text is empty.
            ChainExhausted: No replica answered.
        """
        if not all(text.strip() for text in texts):
            msg = "an empty text has no embedding"
            raise ValueError(msg)
        probing = any(target.key not in self._trusted for target in self._chain.targets)
        sent = (*texts, PROBE_TEXT) if probing else tuple(texts)
        reference = await self._space.reference() if probing else None

        def differs(answer: Vectors) -> str | None:
            if not any(map(len, answer.vectors[: len(texts)])):
                return "a vector for the probe text, and none for what was asked"
            if probing and not len(answer.vectors[-1]):
                return "no vector for the probe text"
            if reference is None:
                return None
            agreement = likeness(unit_length(answer.vectors[-1]), reference)
            if agreement >= MIN_LIKENESS:
                return None
            return f"another build of the model: its probe vector agrees with the space's by {agreement:.3f} only"

        request = EmbedRequest(sent, self._dim, digest_of(*sent))
        answer = await self._caller.embed(self._chain, request, context, check=differs)
        vectors = [unit_length(vector) for vector in answer.value.vectors]
        if probing:
            probe = vectors.pop()
            if reference is None and likeness(probe, await self._space.propose(probe)) < MIN_LIKENESS:
                # Somebody else's first answer became the reference meanwhile: ask again, compared this time.
                return await self.embed(texts, context)
            self._trusted.add(answer.target)
        return Answer(vectors, answer.target, answer.position, answer.degraded, answer.tries, answer.usage)
