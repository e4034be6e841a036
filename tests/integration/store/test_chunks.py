from __future__ import annotations

from sqlalchemy import func, select

from pipeline.domain.document import Chunk, Cues
from pipeline.domain.text import safe_text
from pipeline.store.chunks import insert_chunks, set_cues
from pipeline.store.pages import first_failed_page
from pipeline.store.reuse import vector_source
from pipeline.store.schema import ChunkRow, Embedding, EmbeddingSpace, Run, Unit
from pipeline.store.session import Sessions
from pipeline.store.text import index_terms, tsv_of
from tests.integration.seed import Seed

TEXTS = ("High water is at six.", "満潮は六時 Flut", "…", "a\x00b")


def test_chunks_that_go_in_together_are_indexed_as_each_by_itself(sessions: Sessions) -> None:
    seed = Seed(sessions)
    run_id = seed.run(seed.document("/a"))
    chunks = [Chunk(n, text, ("Tides", "Élan") if n % 2 else (), n, n, 3) for n, text in enumerate(TEXTS, 1)]
    with sessions.begin() as session:
        insert_chunks(session, session.get_one(Run, run_id), [])
        insert_chunks(session, session.get_one(Run, run_id), chunks)
    with sessions() as session:
        rows = session.scalars(select(ChunkRow).order_by(ChunkRow.ordinal)).all()
        assert [(row.ordinal, tuple(row.heading)) for row in rows] == [(c.ordinal, c.heading) for c in chunks]
        for row, chunk in zip(rows, chunks, strict=True):
            words = index_terms(chunk.text), index_terms(" ".join(chunk.heading))
            assert row.tsv == session.scalar(select(tsv_of(*words)))
            assert row.text == safe_text(chunk.text)


def test_running_lines_and_cues_are_indexed_beside_a_chunks_text(sessions: Sessions) -> None:
    run_id = (seed := Seed(sessions)).run(seed.document("/a"))
    chunk = Chunk(1, "High water.", ("Tides",), 1, 1, 3, aside=("Harbour Council",))
    with sessions.begin() as session:
        insert_chunks(session, session.get_one(Run, run_id), [chunk])
        set_cues(session, run_id, {1: Cues("Where it stands.", ("ebb",), ("When is it high?",))})
    with sessions() as session:
        (row,) = session.scalars(select(ChunkRow))
        assert (row.context, row.keywords, row.questions) == ("Where it stands.", ["ebb"], ["When is it high?"])
        for words in ("high water", "tides", "harbour council", "stands", "ebb"):
            asked = func.plainto_tsquery("english", words)
            assert session.scalar(select(ChunkRow.tsv.op("@@")(asked))), words
        assert "Council" not in row.text


def test_a_vector_is_known_by_who_made_it(sessions: Sessions) -> None:
    seed = Seed(sessions)
    with sessions.begin() as session:
        session.add(EmbeddingSpace(id=7, model="m", dim=3))
    made = seed.run(seed.document("/a"), "done")
    seed.units(made, "embed", [1], input_digest="same", answered_by="replica-2")
    chunk = seed.chunk(made, 1, "text")
    with sessions.begin() as session:
        session.add(Embedding(space_id=7, chunk_id=chunk, text_digest="same", vector=[1, 0, 0]))
    seed.units(seed.run(seed.document("/b")), "embed", [1, 2], "pending", input_digest="same")
    with sessions() as session:
        known = session.execute(select(Unit.state, vector_source(7)).order_by(Unit.id)).all()
        elsewhere = session.scalars(select(vector_source(8)).select_from(Unit)).all()
    assert [tuple(row) for row in known] == [("done", "replica-2"), ("pending", "replica-2"), ("pending", "replica-2")]
    assert elsewhere == [None, None, None]


def test_the_first_page_that_failed_is_named(sessions: Sessions) -> None:
    seed = Seed(sessions)
    run_id = seed.run(seed.document("/a"))
    seed.page(run_id, 1, "fine")
    with sessions() as session:
        assert first_failed_page(session, run_id) is None
    seed.page(run_id, 3, "", state="failed", failure_kind="too_slow", failure_detail="it took too long")
    seed.page(run_id, 2, "", state="failed", failure_detail="it is torn")
    with sessions() as session:
        failure = first_failed_page(session, run_id)
    assert failure is not None
    assert (failure.kind, failure.detail) == ("corrupt", "page 2: it is torn")
