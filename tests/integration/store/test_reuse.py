"""Reuse looks results up by their digest, whatever the planner thinks of the table."""

from __future__ import annotations

import pytest
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from pipeline.domain.unit import Stage
from pipeline.store.reuse import reuse_units, reuse_vectors
from pipeline.store.schema import ChunkRow, Embedding, Run, Unit
from pipeline.store.session import Sessions
from pipeline.store.spaces import ensure_space
from tests.integration.seed import Seed

# So many that a scan of them all would never be the cheapest way to one.
_UNITS = range(1, 301)
_CHUNKS = range(1, 101)
_VECTOR = [0.5] * 384
_statistics = pytest.mark.parametrize(
    "analysed", [False, True], ids=["without statistics", "with those of an empty table"]
)


@_statistics
def test_results_are_looked_up_once_a_unit(sessions: Sessions, *, analysed: bool) -> None:
    seed = Seed(sessions)
    before, now = (seed.run(seed.document(uri), state="running") for uri in ("before.md", "now.md"))
    seed.units(now, "retrieve", [0], "pending")
    _take_statistics(sessions, analysed=analysed)
    seed.units(before, "retrieve", _UNITS, output={"context": "known"})
    seed.units(now, "retrieve", _UNITS, "pending")
    _give_digests(sessions)
    with sessions.begin() as session:
        assert len(reuse_units(session, session.get_one(Run, now), Stage.RETRIEVE)) == len(_UNITS)
        # A unit is read to be found, its result is, and it is read again to be changed; a scan of all may come in.
        assert _rows_read(session, "unit") < 10 * len(_UNITS)


@_statistics
def test_vectors_are_looked_up_once_a_chunk(sessions: Sessions, *, analysed: bool) -> None:
    seed = Seed(sessions)
    space = ensure_space(sessions, "a model", len(_VECTOR))
    before, now = (seed.run(seed.document(uri), state="running") for uri in ("before.md", "now.md"))
    seed.units(now, "embed", [0], "pending")
    seed.chunk(before, 0, "of another text", _VECTOR, space)
    _take_statistics(sessions, analysed=analysed)
    for number in _CHUNKS:
        seed.chunk(before, number, "text", _VECTOR, space)
        seed.chunk(now, number, "text")
    seed.units(now, "embed", _CHUNKS, "pending")
    _give_digests(sessions)
    with sessions.begin() as session:
        assert reuse_vectors(session, now, space) == list(_CHUNKS)
        assert _rows_read(session, "embedding") < 10 * len(_CHUNKS)


def _take_statistics(sessions: Sessions, *, analysed: bool) -> None:
    """Now and not later, of tables with next to nothing in them; or not at all."""
    with sessions.begin() as session:
        for table in ("unit", "chunk", "embedding"):
            session.execute(text(f"alter table {table} set (autovacuum_enabled = false)"))
            # Those of a test before this one outlive the emptying of its tables.
            forget = text("delete from pg_statistic where starelid = cast(:table as regclass)")
            session.execute(forget, {"table": table})
            if analysed:
                session.execute(text(f"analyze {table}"))


def _give_digests(sessions: Sessions) -> None:
    """The same to the same ordinals of both runs."""
    with sessions.begin() as session:
        session.execute(update(Unit).values(input_digest=text("ordinal::text")))
        session.execute(
            update(Embedding).where(Embedding.chunk_id == ChunkRow.id).values(text_digest=text("chunk.ordinal::text"))
        )


def _rows_read(session: Session, table: str) -> int:
    """How many rows of a table this transaction has read."""
    asked = text("select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = :table")
    return int(session.execute(asked, {"table": table}).scalar_one())
