"""Chunks, their cues and their vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, Text, and_, bindparam, insert, literal, select, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.orm import Session, aliased

from pipeline.domain.document import Chunk, Cues
from pipeline.domain.unit import Stage
from pipeline.store.schema import Base, ChunkRow, Embedding, Run, Unit
from pipeline.store.text import index_terms, tsv_of, tsv_of_terms
from pipeline.store.units import free_or_held

__all__ = ["chunks_of", "insert_chunks", "neighbours", "reuse_vectors", "set_cues", "store_vector", "vector_source"]


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
        # One statement, prepared once and sent for all rows together.
        session.execute(_INSERT_CHUNKS, rows)


_INSERT_CHUNKS = insert(Base.metadata.tables[ChunkRow.__tablename__]).values(
    tsv=tsv_of_terms(bindparam("text_terms", type_=Text), bindparam("heading_terms", type_=Text))
)


def chunks_of(session: Session, run_id: int, ordinals: Iterable[int]) -> list[ChunkRow]:
    """The chunks with the given ordinals, in order."""
    return list(
        session.scalars(
            select(ChunkRow)
            .where(ChunkRow.run_id == run_id, ChunkRow.ordinal.in_(list(ordinals)))
            .order_by(ChunkRow.ordinal)
        )
    )


def neighbours(session: Session, run_id: int, ordinals: Sequence[int]) -> Mapping[int, str]:
    """The texts of the chunks and of those just before and after them, by ordinal."""
    wanted = {n + d for n in ordinals for d in (-1, 0, 1)}
    rows = session.execute(
        select(ChunkRow.ordinal, ChunkRow.text).where(ChunkRow.run_id == run_id, ChunkRow.ordinal.in_(wanted))
    )
    return {row.ordinal: row.text for row in rows}


def set_cues(session: Session, run_id: int, ordinal: int, cues: Cues) -> None:
    """Put the retrieval stage's cues onto a chunk, and add them to what text search reads."""
    session.execute(
        update(ChunkRow)
        .where(ChunkRow.run_id == run_id, ChunkRow.ordinal == ordinal)
        .values(
            context=cues.context,
            keywords=list(cues.keywords),
            questions=list(cues.questions),
            tsv=ChunkRow.tsv.op("||")(tsv_of("", cues.context, (*cues.keywords, *cues.questions))),
        )
        .execution_options(synchronize_session=False)
    )


def reuse_vectors(session: Session, run_id: int, space_id: int, held: Sequence[int] = ()) -> list[int]:
    """Give the run's unfinished chunks the vectors that this space already holds for the same text.

    Returns:
        The ordinals of the chunks that have their vector now.
    """
    known = (
        select(literal(space_id).label("space_id"), ChunkRow.id, Embedding.text_digest, Embedding.vector)
        .ext(distinct_on(ChunkRow.id))
        .join(Unit, and_(Unit.run_id == ChunkRow.run_id, Unit.ordinal == ChunkRow.ordinal))
        .join(Embedding, and_(Embedding.space_id == space_id, Embedding.text_digest == Unit.input_digest))
        .where(
            ChunkRow.run_id == run_id,
            Unit.stage == Stage.EMBED.value,
            free_or_held(held),
        )
    )
    placed = session.scalars(
        pg_insert(Embedding)
        .from_select(["space_id", "chunk_id", "text_digest", "vector"], known)
        .on_conflict_do_nothing()
        .returning(Embedding.chunk_id)
    ).all()
    if not placed:
        return []
    return list(session.scalars(select(ChunkRow.ordinal).where(ChunkRow.id.in_(placed)).order_by(ChunkRow.ordinal)))


def vector_source(space_id: int) -> ColumnElement[str | None]:
    """Of an embed unit's row: the target that made the vector which its text already has in a space."""
    chunk, maker = aliased(ChunkRow), aliased(Unit)
    return (
        select(maker.answered_by)
        .join(chunk, and_(chunk.run_id == maker.run_id, chunk.ordinal == maker.ordinal))
        .join(Embedding, Embedding.chunk_id == chunk.id)
        .where(
            Embedding.space_id == space_id,
            Embedding.text_digest == Unit.input_digest,
            maker.stage == Stage.EMBED.value,
            maker.answered_by.is_not(None),
        )
        .limit(1)
        .correlate(Unit)
        .scalar_subquery()
    )


def store_vector(session: Session, space_id: int, chunk_id: int, text_digest: str, vector: Sequence[float]) -> None:
    """Store a chunk's vector in a space, in place of the one that stood there."""
    statement = pg_insert(Embedding).values(
        space_id=space_id, chunk_id=chunk_id, text_digest=text_digest, vector=list(vector)
    )
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["space_id", "chunk_id"],
            set_={"vector": statement.excluded.vector, "text_digest": statement.excluded.text_digest},
        )
    )
