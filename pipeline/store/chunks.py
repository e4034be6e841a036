"""Chunks, their cues and their vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ARRAY, Integer, Text, any_, bindparam, insert, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.orm import Session, defer

from pipeline.domain.document import Chunk, Cues
from pipeline.store.schema import Base, ChunkRow, Embedding, Run
from pipeline.store.text import index_terms, tsv_of

__all__ = ["NewVector", "chunks_of", "insert_chunks", "neighbours", "set_cues", "store_vectors"]


@dataclass(frozen=True, slots=True)
class NewVector:
    """A chunk's vector, and the digest of the text that it was made of."""

    chunk_id: int
    text_digest: str
    vector: Sequence[float] = field(repr=False)


def insert_chunks(session: Session, run: Run, chunks: Sequence[Chunk]) -> None:
    """Store a run's chunks; they are searchable once the run is published."""
    rows = [
        {
            "run_id": run.id,
            "collection_id": run.collection_id,
            "ordinal": chunk.ordinal,
            "text": chunk.text,
            "heading": list(chunk.heading),
            "page_from": chunk.page_from,
            "page_to": chunk.page_to,
            "tokens": chunk.tokens,
            "text_terms": index_terms(chunk.text),
            "heading_terms": index_terms(" | ".join((*chunk.heading, *chunk.aside))),
        }
        for chunk in chunks
    ]
    if rows:
        session.execute(_INSERT_CHUNKS, rows)


# One statement, prepared once and sent for all rows together; so are those below.
_CHUNKS = Base.metadata.tables[ChunkRow.__tablename__]
_INSERT_CHUNKS = insert(_CHUNKS).values(
    tsv=tsv_of(bindparam("text_terms", type_=Text), bindparam("heading_terms", type_=Text))
)


def chunks_of(session: Session, run_id: int, ordinals: Iterable[int]) -> list[ChunkRow]:
    """The chunks with the given ordinals, in order."""
    return list(session.scalars(_CHUNKS_OF, {"run": run_id, "ordinals": list(ordinals)}))


def neighbours(session: Session, run_id: int, ordinals: Sequence[int]) -> Mapping[int, str]:
    """The texts of the chunks and of those just before and after them, by ordinal."""
    wanted = {n + d for n in ordinals for d in (-1, 0, 1)}
    rows = session.execute(_TEXTS_OF, {"run": run_id, "ordinals": sorted(wanted)})
    return {row.ordinal: row.text for row in rows}


_THESE = (
    ChunkRow.run_id == bindparam("run"),
    ChunkRow.ordinal == any_(bindparam("ordinals", type_=ARRAY(Integer))),
)
# What text search reads is several times as long as the chunk, and nobody here looks at it.
_CHUNKS_OF = select(ChunkRow).options(defer(ChunkRow.tsv)).where(*_THESE).order_by(ChunkRow.ordinal)
_TEXTS_OF = select(ChunkRow.ordinal, ChunkRow.text).where(*_THESE)


def set_cues(session: Session, run_id: int, found: Mapping[int, Cues]) -> None:
    """Put the retrieval stage's cues onto chunks (by ordinal), and add them to what text search reads."""
    rows = [
        {
            "run": run_id,
            "of_ordinal": ordinal,
            "new_context": cues.context,
            "new_keywords": list(cues.keywords),
            "new_questions": list(cues.questions),
            "context_terms": index_terms(cues.context),
            "cue_terms": index_terms(" ".join((*cues.keywords, *cues.questions))),
        }
        for ordinal, cues in found.items()
    ]
    if rows:
        session.execute(_SET_CUES, rows)


_SET_CUES = (
    update(_CHUNKS)
    .where(_CHUNKS.c.run_id == bindparam("run"), _CHUNKS.c.ordinal == bindparam("of_ordinal"))
    .values(
        context=bindparam("new_context"),
        keywords=bindparam("new_keywords"),
        questions=bindparam("new_questions"),
        tsv=_CHUNKS.c.tsv.op("||")(
            tsv_of("", bindparam("context_terms", type_=Text), bindparam("cue_terms", type_=Text))
        ),
    )
)


def store_vectors(session: Session, space_id: int, vectors: Sequence[NewVector]) -> None:
    """Store chunks' vectors in a space, in place of those that stood there."""
    rows = [
        {"space_id": space_id, "chunk_id": new.chunk_id, "text_digest": new.text_digest, "vector": new.vector}
        for new in vectors
    ]
    if rows:
        session.execute(_STORE_VECTOR, rows)


_INSERT_VECTOR = pg_insert(Base.metadata.tables[Embedding.__tablename__])
_STORE_VECTOR = _INSERT_VECTOR.on_conflict_do_update(
    index_elements=["space_id", "chunk_id"],
    set_={"vector": _INSERT_VECTOR.excluded.vector, "text_digest": _INSERT_VECTOR.excluded.text_digest},
)
