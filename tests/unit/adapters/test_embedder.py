"""What becomes of an embedder's odd vectors, the probe text's among them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipeline.adapters.embedder import FallbackEmbedder, unit_length
from pipeline.domain.call import Answer
from pipeline.domain.errors import ChainExhausted
from pipeline.failover.target import Chain
from pipeline.failover.upstream import Vectors
from tests.unit.failover.fakes import CONTEXT, World, target

CHAIN = Chain("embedder", (target("a"),))


class Reference:
    """A space's reference vector, in memory."""

    vector: list[float] | None = None

    async def reference(self) -> list[float] | None:
        return self.vector

    async def propose(self, vector: list[float]) -> list[float]:
        self.vector = self.vector or vector
        return self.vector


def embed(*vectors: list[float], space: Reference | None = None) -> Answer[list[list[float]]]:
    """Two texts' vectors by a target that answers for the first time, and with the probe text's last."""

    async def ask() -> Any:
        world = World()
        world.upstream.scripts["a"] = [[Vectors(vectors)]]
        return await FallbackEmbedder(world.caller, CHAIN, 2, space or Reference()).embed(["one", "two"], CONTEXT)

    return asyncio.run(ask())


def test_a_text_without_a_vector_is_left_empty() -> None:
    assert embed([3.0, 4.0], [], [1.0, 0.0]).value == [[0.6, 0.8], []]


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (([], [], [1.0, 0.0]), "none for what was asked"),
        (([1.0, 0.0], [1.0, 0.0], []), "no vector for the probe text"),
    ],
)
def test_an_answer_to_the_probe_or_to_the_texts_alone_is_none(vectors: Any, said: str) -> None:
    space = Reference()
    with pytest.raises(ChainExhausted) as caught:
        embed(*vectors, space=space)
    assert said in (caught.value.tries[0].message or "")
    assert space.vector is None


def test_long_vectors_keep_their_direction() -> None:
    assert unit_length([3e200, 4e200]) == pytest.approx([0.6, 0.8])
