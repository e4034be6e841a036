"""Search: what the words find and what the vectors find, joined by rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from pipeline.domain.errors import UsageError
from pipeline.domain.space import Space
from pipeline.store.documents import collection_id_of
from pipeline.store.hits import ChunkHit, read_hits, text_hits, vector_hits
from pipeline.store.reader import reader_of
from pipeline.store.session import Session, Sessions, hold_snapshot
from pipeline.store.space_reports import space_reports
from pipeline.store.space_switch import active_spaces

__all__ = ["Embed", "Hit", "Mode", "SearchResult", "search"]

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
            "id": chunk.stable_id,
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
        spaces: Whose vectors were searched.
    """

    query: str
    hits: list[Hit]
    notes: list[str]
    spaces: list[Space] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "hits": [hit.to_json() for hit in self.hits],
            "notes": self.notes,
            "spaces": [{"model": space.model, "dim": space.dim} for space in self.spaces],
        }


Embed = Callable[[Space], "Sequence[float] | None"]
"""The query as a space's embedder sees it; None when it could not be had."""


def search(
    sessions: Sessions,
    query: str,
    *,
    collection: str | None = None,
    k: int = 10,
    mode: Mode = Mode.HYBRID,
    embed: Embed | None = None,
) -> SearchResult:
    """Search what is live, all of it as of one moment.

    Args:
        collection: Only there; None for everywhere.
        k: Most hits.
        embed: Asked once for each space that the collections are searched by; it may wait.

    Raises:
        UsageError: An empty query, an unknown collection, an odd ``k``, or a vector search without a vector.
        ServiceUnavailable: Postgres is away.
    """
    if not query.strip():
        raise UsageError("the query is empty", 'say what to look for: tidegate search "words or a question"')
    if not 1 <= k <= MAX_HITS:
        raise UsageError(f"{k} hits were asked for", f"ask for 1 to {MAX_HITS}")
    vectors: dict[int, Sequence[float] | None] = {}
    while True:
        with sessions() as session:
            # One snapshot: no document is seen in two generations, or half in one, whatever is published meanwhile.
            hold_snapshot(session)
            scope = _scope(session, collection, mode)
            unknown = [space for space, _ in scope.spaces if space.id not in vectors]
            if not unknown:
                return _found(session, query, k, mode, scope, vectors)
        # Outside of it, for a model is asked. A collection that switches meanwhile is looked at again.
        vectors |= {space.id: embed(space) if embed is not None else None for space in unknown}


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is searched: a collection or all, and the spaces of its vectors."""

    collection_id: int | None
    spaces: list[tuple[Space, list[int]]]
    moving: list[str]


def _scope(session: Session, collection: str | None, mode: Mode) -> _Scope:
    collection_id = None
    if collection is not None:
        collection_id = collection_id_of(session, collection)
        if collection_id is None:
            raise UsageError(f"there is no collection {collection!r}", "its name comes from enqueue --collection")
    if mode is Mode.TEXT:
        return _Scope(collection_id, [], [])
    moving = [
        f"{one.collection} is being embedded by {one.next}; until all of it is, it is searched by {one.active}"
        for one in space_reports(reader_of(session), collection, counted=False)
        if one.next is not None
    ]
    return _Scope(collection_id, active_spaces(session, collection_id), moving)


def _found(
    session: Session,
    query: str,
    k: int,
    mode: Mode,
    scope: _Scope,
    vectors: Mapping[int, Sequence[float] | None],
) -> SearchResult:
    depth = max(_DEPTH, 2 * k)
    rankings: list[list[tuple[int, float]]] = []
    notes: list[str] = []
    if mode is not Mode.VECTOR:
        rankings.append(text_hits(session, query, scope.collection_id, depth))
    if mode is not Mode.TEXT and not scope.spaces:
        notes.append("nothing has been embedded yet; only words were searched")
    for space, collections in scope.spaces:
        vector = vectors[space.id]
        if vector is not None:
            # All that is embedded is in the one space of most installations.
            narrowed = None if len(scope.spaces) == 1 and scope.collection_id is None else collections
            rankings.append(vector_hits(session, space, vector, narrowed, depth))
        elif mode is Mode.VECTOR:
            raise UsageError(
                f"a vector search needs the query's vector, and {space.model} gave none", "use --mode text"
            )
        else:
            notes.append(f"the query could not be embedded by {space.model}; only words were searched there")
    notes += scope.moving
    ranked = (rankings[0] if len(rankings) == 1 and mode is not Mode.HYBRID else _fused(rankings))[:k]
    chunks = read_hits(session, [chunk_id for chunk_id, _ in ranked])
    spaces = [space for space, _ in scope.spaces]
    return SearchResult(query, [Hit(chunks[chunk_id], score) for chunk_id, score in ranked], notes, spaces)


def _fused(rankings: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, (chunk_id, _) in enumerate(ranking, 1):
            scores[chunk_id] += 1 / (_RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
