"""What the vectors of one index have in common."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EmbedSpace"]


@dataclass(frozen=True, slots=True)
class EmbedSpace:
    """The embedding model and width that a collection's vectors are made with."""

    model: str
    dim: int
