"""What the vectors of one index have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["EmbedSpace", "Space"]


@dataclass(frozen=True, slots=True)
class EmbedSpace:
    """The embedding model and width that a collection's vectors are made with."""

    model: str
    dim: int


@dataclass(frozen=True, slots=True)
class Space:
    """An embedding model and a width that have an index.

    Attributes:
        embedder: ``kb.embedder`` as it was when the configuration last named this model; empty for the built-in one,
            None when nobody has said.
    """

    id: int
    model: str
    dim: int
    embedder: dict[str, Any] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.model} ({self.dim})"
