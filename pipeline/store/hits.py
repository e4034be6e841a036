"""Finding chunks: by their words and by their vectors. Only chunks of live runs are ever found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from pipeline.domain.digest import digest_of
from pipeline.domain.space import Space
from pipeline.store.spaces import vector_expression
from pipeline.store.text import query_terms

__all__ = ["ChunkHit", "read_hits", "text_hits", "vector_hits"]

_EF_SEARCH = 100
"""How wide the index is searched: recall@10 0.99 at 100,000 chunks, where pgvector's default gives 0.93."""


@dataclass(frozen=True, slots=True)
class ChunkHit:
    """A found chunk with what a reader needs to judge it.

    Attributes:
        models: The targets that answered for its pages and itself, by model stage; None where none was asked.
        degraded: True when any of them was not the first of its chain.
        copy: How many chunks before it, in its document, say the same under the same headings.
    """

    chunk_id: int
    document_id: UUID
    uri: str
    title: str | None
    ordinal: int
    page_from: int
    page_to: int
    heading: tuple[str, ...]
    text: str
    context: str
    degraded: bool
    models: dict[str, str | None]
    copy: int = 0

    @property
    def stable_id(self) -> str:
        """Names what it says where: the same text of the same document keeps it, however often it is taken in."""
        return digest_of(str(self.document_id), self.heading, self.text, self.copy)[:16]


def text_hits(session: Session, query: str, collection_id: int | None, limit: int) -> list[tuple[int, float]]:
    """The chunks that share words with ``query`` as (chunk id, score), the best first.

    Any shared word finds a chunk (people ask in sentences); chunks that hold all of the words come first.
    """
    words = query_terms(query)
    if not words:
        return []
    # A stop word would find every chunk; a query of nothing else ("The Who") is taken at its word.
    telling = list(session.scalars(_TELLING, {"words": words})) or words
    quoted = [f"'{word}'" for word in telling]
    rows = session.execute(
        _BY_TEXT_IN if collection_id is not None else _BY_TEXT,
        {
            "any": " | ".join(quoted),
            "all": " & ".join(quoted),
            "collection_id": collection_id,
            "limit": limit,
        },
    )
    return [(row.id, row.score) for row in rows]


_TELLING = text(
    """
    select word from unnest(cast(:words as text[])) with ordinality as given (word, place)
    where cardinality(ts_lexize('english_stem', word)) > 0
    order by place
    """
)

_TEXT_SEARCH = """
    with asked as (
        select to_tsquery('simple', :any) || to_tsquery('english', :any) as any_of,
               to_tsquery('simple', :all) || to_tsquery('english', :all) as all_of
    )
    select chunk.id, ts_rank('{{0.1, 0.3, 0.5, 1.0}}', chunk.tsv, asked.any_of, 1) as score
    from asked, chunk
    join document on document.live_run_id = chunk.run_id
    where chunk.tsv @@ asked.any_of {condition}
    order by (chunk.tsv @@ asked.all_of) desc, score desc, chunk.id
    limit :limit
"""
_BY_TEXT = text(_TEXT_SEARCH.format(condition=""))
_BY_TEXT_IN = text(_TEXT_SEARCH.format(condition="and chunk.collection_id = :collection_id"))


def vector_hits(
    session: Session, space: Space, vector: Sequence[float], collection_ids: Sequence[int] | None, limit: int
) -> list[tuple[int, float]]:
    """The chunks nearest to ``vector`` as (chunk id, cosine similarity), the nearest first.

    Args:
        vector: As many finite numbers as the space is wide.
        collection_ids: Only in these; None for all.

    Raises:
        ValueError: The vector is of another width, or holds what is no number.
    """
    if len(vector) != space.dim or not all(math.isfinite(number) for number in vector):
        raise ValueError(f"a query's vector must be {space.dim} finite numbers, not {len(vector)}")
    asked = {"vector": f"[{','.join(repr(float(number)) for number in vector)}]", "limit": limit}
    condition = ""
    if collection_ids is not None:
        condition = f"and chunk.collection_id in ({', '.join(f'{one:d}' for one in collection_ids)})"
    session.execute(text(f"set local hnsw.ef_search = {max(_EF_SEARCH, min(limit, 1000)):d}"))
    session.execute(text("set local hnsw.iterative_scan = relaxed_order"))
    found = _nearest(session, _INDEXED, space, condition, asked)
    if len(found) < limit:
        # The scan gave up (few of many rows pass the filter), or there are no more: the rest is few enough to measure.
        found = _nearest(session, _EXACT, space, condition, asked)
    return found


# The space's id must be a literal, or a generic plan misses the partial index. Relaxed order is put right outside.
_INDEXED = """
    with nearest as materialized (
        select embedding.chunk_id, {expression} <=> cast(:vector as {type}) as distance
        from embedding
        join chunk on chunk.id = embedding.chunk_id
        join document on document.live_run_id = chunk.run_id
        where embedding.space_id = {space_id} {condition}
        order by {expression} <=> cast(:vector as {type})
        limit :limit
    )
    select chunk_id, 1 - distance as score from nearest order by distance, chunk_id
"""
_EXACT = """
    with live as materialized (
        select embedding.chunk_id, {expression} <=> cast(:vector as {type}) as distance
        from document
        join chunk on chunk.run_id = document.live_run_id
        join embedding on embedding.chunk_id = chunk.id and embedding.space_id = {space_id}
        where true {condition}
    )
    select chunk_id, 1 - distance as score from live order by distance, chunk_id limit :limit
"""


def _nearest(
    session: Session, statement: str, space: Space, condition: str, asked: dict[str, Any]
) -> list[tuple[int, float]]:
    expression = vector_expression(space.dim, "embedding.vector")
    filled = statement.format(
        expression=expression.replace("::", r"\:\:"),
        type=expression.rstrip(")").rpartition("::")[2] + ")",
        space_id=f"{space.id:d}",
        condition=condition,
    )
    return [(row.chunk_id, row.score) for row in session.execute(text(filled), asked)]


def read_hits(session: Session, chunk_ids: Sequence[int]) -> dict[int, ChunkHit]:
    """What is shown of found chunks, by id."""
    rows = session.execute(_READ, {"ids": list(chunk_ids)})
    return {
        row.id: ChunkHit(
            chunk_id=row.id,
            document_id=row.document_id,
            uri=row.source_uri,
            title=row.title,
            ordinal=row.ordinal,
            page_from=row.page_from,
            page_to=row.page_to,
            heading=tuple(row.heading),
            text=row.text,
            context=row.context,
            degraded=bool(row.degraded),
            models={
                "describe": row.describe,
                "format": row.format,
                "retrieve": row.retrieve,
                "embed": row.embed,
            },
            copy=row.copy,
        )
        for row in rows
    }


_READ = text(
    """
    select chunk.id, document.id as document_id, document.source_uri, document.title, chunk.ordinal, chunk.page_from,
           chunk.page_to, chunk.heading, chunk.text, chunk.context, made.*,
           (select count(*) from chunk twin
            where twin.run_id = chunk.run_id and twin.ordinal < chunk.ordinal
              and twin.text = chunk.text and twin.heading = chunk.heading) as copy
    from chunk
    join run on run.id = chunk.run_id
    join document on document.id = run.document_id
    cross join lateral (
        select bool_or(unit.degraded) as degraded,
               string_agg(distinct answered_by, ', ') filter (where stage = 'describe') as describe,
               string_agg(distinct answered_by, ', ') filter (where stage = 'format') as format,
               string_agg(distinct answered_by, ', ') filter (where stage = 'retrieve') as retrieve,
               string_agg(distinct answered_by, ', ') filter (where stage = 'embed') as embed
        from unit
        where unit.run_id = chunk.run_id and unit.state = 'done'
          and ((stage in ('describe', 'format') and unit.ordinal between chunk.page_from and chunk.page_to)
               or (stage in ('retrieve', 'embed') and unit.ordinal = chunk.ordinal))
    ) made
    where chunk.id = any(cast(:ids as bigint[]))
    """
)
