"""Reuse: results that are known already are given to the units that wait for them, instead of being paid for again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    Insert,
    Integer,
    Update,
    and_,
    any_,
    bindparam,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from pipeline.domain.unit import Stage, UnitState
from pipeline.store.moves import in_state, move_units, rows_changed
from pipeline.store.schema import Base, ChunkRow, Embedding, Run, Unit

__all__ = ["Known", "is_redone", "mark_reused", "reuse_units", "reuse_vectors", "vector_source"]


@dataclass(frozen=True, slots=True)
class Known:
    """A unit that was given its result, by its ordinal."""

    ordinal: int
    output: dict[str, Any]


def is_redone(run: Run, stage: Stage) -> bool:
    """Whether a run was requeued to do a stage anew, so that nothing of it may be reused."""
    stages = list(Stage)
    return run.redo_from is not None and stages.index(stage) >= stages.index(Stage(run.redo_from))


def reuse_units(
    session: Session, run: Run, stage: Stage, ordinals: Sequence[int] | None = None, *, held: bool = False
) -> list[Known]:
    """End units whose result is already known in this collection; returns them, in order.

    A degraded result is not good enough for a run that redoes degraded units, and nothing is reused from the stage
    that a run was requeued from.

    Args:
        ordinals: The units to look at; None for all that are pending.
        held: Whether the caller holds those of them that are leased; otherwise only pending ones are looked at.
    """
    if is_redone(run, stage):
        return []
    asked = {"collection": run.collection_id, "primary_only": run.primary_only}
    statement = _REUSE_ALL if ordinals is None else _REUSE
    rows = session.execute(statement, asked | _these(run.id, stage, ordinals, held=held))
    return sorted((Known(row.ordinal, row.output) for row in rows), key=lambda known: known.ordinal)


def mark_reused(session: Session, run_id: int, stage: Stage, ordinals: Sequence[int], **kept: Any) -> None:
    """End pending or leased units whose result another table already holds (pages, vectors).

    Args:
        kept: What their rows say of it: columns' values.
    """
    which = (Unit.run_id == run_id, Unit.stage == stage.value, Unit.ordinal.in_(ordinals))
    rows_changed(session, move_units(UnitState.DONE, *which, reused=True, **kept))


def reuse_vectors(
    session: Session, run_id: int, space_id: int, ordinals: Sequence[int] | None = None, *, held: bool = False
) -> list[int]:
    """Give the run's unfinished chunks the vectors that this space already holds for the same text.

    Args:
        ordinals: As of ``reuse_units``.
        held: As of ``reuse_units``.

    Returns:
        The ordinals of the chunks that have their vector now.
    """
    statement = _PLACE_ALL if ordinals is None else _PLACE
    placed = session.scalars(statement, {"space": space_id} | _these(run_id, Stage.EMBED, ordinals, held=held)).all()
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


_OF_STAGE = (Unit.run_id == bindparam("run"), Unit.stage == bindparam("of_stage"))
_ALL = (*_OF_STAGE, Unit.state == in_state(UnitState.PENDING))
_THESE = (
    *_OF_STAGE,
    Unit.ordinal == any_(bindparam("ordinals", type_=ARRAY(Integer))),
    or_(
        Unit.state == in_state(UnitState.PENDING),
        and_(Unit.state == in_state(UnitState.LEASED), bindparam("held", type_=Boolean)),
    ),
)


def _these(run_id: int, stage: Stage, ordinals: Sequence[int] | None, *, held: bool) -> dict[str, Any]:
    chosen = {} if ordinals is None else {"ordinals": list(ordinals), "held": held}
    return {"run": run_id, "of_stage": stage.value, **chosen}


def _reuse(*waiting: ColumnElement[bool]) -> Update:
    source = aliased(Unit)
    best = (
        select(source.output, source.degraded, source.answered_by)
        .where(
            source.collection_id == bindparam("collection"),
            source.stage == bindparam("of_stage"),
            source.input_digest == Unit.input_digest,
            source.state == in_state(UnitState.DONE),
            source.output.is_not(None),
            or_(not_(source.degraded), not_(bindparam("primary_only", type_=Boolean))),
        )
        .order_by(source.degraded, source.id)
        .limit(1)
        .correlate(Unit)
        .lateral("best")
    )
    # Looked up once for each unit, whatever the planner thinks of tables that it has no statistics of yet: joined as
    # they were, all results of a run were sorted anew for each of its units, seconds at a few hundred of them.
    known = (
        select(Unit.id, best.c.output, best.c.degraded, best.c.answered_by)
        .join(best, true())
        .where(*waiting)
        .cte("known")
        .prefix_with("materialized")
    )
    return move_units(
        UnitState.DONE,
        *waiting,
        Unit.id == known.c.id,
        output=known.c.output,
        degraded=known.c.degraded,
        answered_by=known.c.answered_by,
        reused=true(),
    ).returning(Unit.ordinal, Unit.output)


_REUSE_ALL, _REUSE = _reuse(*_ALL), _reuse(*_THESE)


def _place(*waiting: ColumnElement[bool]) -> Insert:
    space = bindparam("space", type_=BigInteger)
    # Looked up once for each unit, as above.
    same = (
        select(Embedding.text_digest, Embedding.vector)
        .where(Embedding.space_id == space, Embedding.text_digest == Unit.input_digest)
        .limit(1)
        .correlate(Unit)
        .lateral("same")
    )
    known = (
        select(space.label("space_id"), ChunkRow.id, same.c.text_digest, same.c.vector)
        .join(Unit, and_(Unit.run_id == ChunkRow.run_id, Unit.ordinal == ChunkRow.ordinal))
        .join(same, true())
        .where(*waiting)
    )
    embeddings = Base.metadata.tables[Embedding.__tablename__]
    return (
        insert(embeddings)
        .from_select(["space_id", "chunk_id", "text_digest", "vector"], known)
        .on_conflict_do_nothing()
        .returning(embeddings.c.chunk_id)
    )


_PLACE_ALL, _PLACE = _place(*_ALL), _place(*_THESE)
