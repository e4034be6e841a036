"""Embedding spaces: a model and a width, each with an index of its own.

The vectors of all spaces share a column without a width, so an index covers one space by an expression cast, and
serves only queries that write the same expression and the space's id as a literal.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, text, update
from sqlalchemy.dialects.postgresql import insert

from pipeline.domain.errors import ConfigError
from pipeline.domain.space import Space
from pipeline.store.schema import EmbeddingSpace
from pipeline.store.session import Session, Sessions

__all__ = ["MAX_DIM", "ensure_space", "find_space", "read_space", "remember_embedder", "vector_expression"]

MAX_DIM = 4000
_MAX_FULL_DIM = 2000
"""pgvector indexes ``vector`` up to this width, and ``halfvec`` up to twice as much."""


def vector_expression(dim: int, column: str = "vector") -> str:
    """The SQL that a space's index is built on, for ``dim`` numbers a vector.

    Raises:
        ConfigError: No index holds vectors of this width.
    """
    return f"({column}::{_kind(dim)}({dim}))"


def find_space(sessions: Sessions, model: str, dim: int) -> int | None:
    """A space's id; None when nothing was embedded into it yet."""
    with sessions() as session:
        return session.scalar(select(EmbeddingSpace.id).where(EmbeddingSpace.model == model, EmbeddingSpace.dim == dim))


def read_space(session: Session, space_id: int) -> Space:
    """A space by its id."""
    row = session.get_one(EmbeddingSpace, space_id)
    return Space(row.id, row.model, row.dim, row.embedder)


def remember_embedder(sessions: Sessions, model: str, dim: int, embedder: dict[str, Any]) -> None:
    """Keep where a space's model is asked, for the time when the configuration names another.

    Args:
        embedder: ``kb.embedder`` as it is written; it names variables, and holds no key.
    """
    space_id = ensure_space(sessions, model, dim)
    with sessions.begin() as session:
        session.execute(
            update(EmbeddingSpace)
            .where(EmbeddingSpace.id == space_id, EmbeddingSpace.embedder.is_distinct_from(embedder))
            .values(embedder=embedder)
            .execution_options(synchronize_session=False)
        )


def ensure_space(sessions: Sessions, model: str, dim: int) -> int:
    """The id of a model's space, made with its index if it is not there.

    Raises:
        ConfigError: ``dim`` is wider than any index holds.
    """
    found = find_space(sessions, model, dim)
    if found is not None:
        return found
    kind = _kind(dim)
    with sessions.begin() as session:
        made: int | None = session.scalar(
            insert(EmbeddingSpace)
            .values(model=model, dim=dim)
            .on_conflict_do_nothing(index_elements=["model", "dim"])
            .returning(EmbeddingSpace.id)
        )
        if made is not None:
            # Row and index come in one transaction: a space without its index is never seen.
            session.execute(
                text(
                    f"create index hnsw_space_{made:d} on embedding"
                    f" using hnsw ({vector_expression(dim)} {kind}_cosine_ops) where space_id = {made:d}"
                )
            )
            return made
        return session.scalars(
            select(EmbeddingSpace.id).where(EmbeddingSpace.model == model, EmbeddingSpace.dim == dim)
        ).one()


def _kind(dim: int) -> str:
    if not 1 <= dim <= MAX_DIM:
        raise ConfigError(
            f"embedder.dim is {dim}, and an index holds vectors of 1 to {MAX_DIM} numbers",
            "choose a model, or a dimension of it, within that",
        )
    return "vector" if dim <= _MAX_FULL_DIM else "halfvec"
