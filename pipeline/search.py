"""Search: what the words find and what the vectors find, joined by rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from pipeline.domain.errors import UsageError
from pipeline.recipe import EmbedSpace
from pipeline.store.documents import collection_id_of
from pipeline.store.hits import ChunkHit, read_hits, text_hits, vector_hits
from pipeline.store.session import Sessions
from pipeline.store.spaces import find_space

__all__ = ["Hit", "Mode", "SearchResult", "search"]

_RANK_CONSTANT = 60
"""Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion" (SIGIR 2009): damps the weight of the very first ranks."""
_DEPTH = 50
MAX_HITS = 1000


class Mode(StrEnum):
    """What is asked: words, vectors, or both."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Hit:
    """A found chunk.

    Attributes:
        score: Comparable within one result only: a fused rank (hybrid), a cosine similarity, or a text rank.
    """

    chunk: ChunkHit
    score: float

    @property
    def document(self) -> UUID:
        return self.chunk.document_id

    def to_json(self) -> dict[str, Any]:
        chunk = self.chunk
        return {
            "document": str(chunk.document_id),
            "path": chunk.uri,
            "title": chunk.title,
            "chunk": chunk.ordinal,
            "pages": [chunk.page_from, chunk.page_to],
            "heading": " > ".join(chunk.heading),
            "text": chunk.text,
            "context": chunk.context,
            "score": round(self.score, 6),
            "degraded": chunk.degraded,
            "models": chunk.models,
        }


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits, the best first.

    Attributes:
        notes: What a reader should know about this result, a line each.
    """

    query: str
    hits: list[Hit]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return {"query": self.query, "hits": [hit.to_json() for hit in self.hits], "notes": self.notes}


def search(
    sessions: Sessions,
    query: str,
    *,
    collection: str | None = None,
    k: int = 10,
    mode: Mode = Mode.HYBRID,
    query_vector: Sequence[float] | None = None,
    space: EmbedSpace | None = None,
) -> SearchResult:
    """Search what is live.

    Args:
        collection: Only there; None for everywhere.
        k: Most hits.
        query_vector: The query as the embedder of ``space`` sees it; None when it could not be had, which a hybrid
            search does without.
        space: The space to look in.

    Raises:
        UsageError: An empty query, an unknown collection, an odd ``k``, or a vector search without a vector.
        ServiceUnavailable: Postgres is away.
    """
    if not query.strip():
        raise UsageError("the query is empty", 'say what to look for: tidegate search "words or a question"')
    if not 1 <= k <= MAX_HITS:
        raise UsageError(f"{k} hits were asked for", f"ask for 1 to {MAX_HITS}")
    if mode is Mode.VECTOR and (query_vector is None or space is None):
        raise UsageError("a vector search needs the query's vector, and the embedder gave none", "use --mode text")
    depth = max(_DEPTH, 2 * k)
    rankings: list[list[tuple[int, float]]] = []
    notes: list[str] = []
    space_id = find_space(sessions, space.model, space.dim) if space is not None and mode is not Mode.TEXT else None
    with sessions() as session:
        collection_id = None
        if collection is not None:
            collection_id = collection_id_of(session, collection)
            if collection_id is None:
                raise UsageError(f"there is no collection {collection!r}", "its name comes from enqueue --collection")
        if mode is not Mode.VECTOR:
            rankings.append(text_hits(session, query, collection_id, depth))
        if mode is not Mode.TEXT and space is not None and query_vector is not None:
            if space_id is None:
                notes.append(f"nothing has been embedded by {space.model} yet; only words were searched")
            else:
                rankings.append(vector_hits(session, space_id, space.dim, query_vector, collection_id, depth))
        elif mode is Mode.HYBRID:
            notes.append("the query could not be embedded; only words were searched")
        ranked = (_fused(rankings) if mode is Mode.HYBRID else rankings[0] if rankings else [])[:k]
        chunks = read_hits(session, [chunk_id for chunk_id, _ in ranked])
    # A chunk may go between the two reads, with the generation it belonged to.
    hits = [Hit(chunks[chunk_id], score) for chunk_id, score in ranked if chunk_id in chunks]
    return SearchResult(query, hits, notes)


def _fused(rankings: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, (chunk_id, _) in enumerate(ranking, 1):
            scores[chunk_id] += 1 / (_RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
