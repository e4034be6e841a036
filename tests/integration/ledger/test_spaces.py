"""A new embedding model: its space grows beside the one that is searched, and the collection switches as a whole."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import text, update

from pipeline.delete import delete
from pipeline.domain.digest import text_digest
from pipeline.domain.run import RunState
from pipeline.domain.space import Space
from pipeline.domain.unit import Stage
from pipeline.publish import publish
from pipeline.recipe import Recipe
from pipeline.reconcile import ReconcilePolicy, reconcile
from pipeline.requeue import Wanted, requeue
from pipeline.search import Mode, SearchResult, search
from pipeline.store.reader import reader_of
from pipeline.store.schema import Embedding, Run
from pipeline.store.session import Sessions
from pipeline.store.space_reports import CollectionSpace, space_reports
from pipeline.store.space_switch import drop_carried, switch_spaces
from pipeline.store.spaces import ensure_space, read_space, remember_embedder
from tests.integration.ledger.harness import DIM, Harness, ScriptedEmbedder, exhausted
from tests.integration.seed import Seed

OLD, NEW = "test/embedder", "test/other"


def renewed(harness: Harness, model: str = NEW) -> Recipe:
    """The recipe after ``kb.embedder`` was changed."""
    body = copy.deepcopy(harness.recipe().body)
    body["stages"]["embed"]["model"] = model
    return Recipe(body)


def write(folder: Path, name: str, words: str) -> Path:
    path = folder / f"{name}.md"
    path.write_text(f"# {name}\n\n{words}\n")
    return path


def take_in(harness: Harness, folder: Path, count: int = 3) -> list[str]:
    paths = [write(folder, f"paper{n}", f"High water number {n} is at six.") for n in range(count)]
    found = harness.enqueue(*paths)
    harness.drive()
    assert {harness.run(one.run).state for one in found} == {RunState.DONE}
    return [str(one.id) for one in found]


def put_anew(harness: Harness, model: str = NEW, stage: Stage = Stage.EMBED) -> list[int]:
    result = requeue(
        harness.sessions,
        Wanted(from_stage=stage),
        recipe_of=lambda _: renewed(harness, model),
        collection="default",
    )
    return [one.run for one in result.runs if one.run is not None]


def ask(harness: Harness, mode: Mode = Mode.VECTOR, asked: list[str] | None = None) -> SearchResult:
    def embed(space: Space) -> Sequence[float]:
        if asked is not None:
            asked.append(space.model)
        return [1.0] + [0.0] * (DIM - 1)

    return search(harness.sessions, "water", k=100, mode=mode, embed=embed)


def found(result: SearchResult) -> list[str]:
    return sorted(str(hit.document) for hit in result.hits)


def beat(harness: Harness) -> list[str]:
    done = reconcile(harness.sessions, harness.blobs, harness.watch, ReconcilePolicy())
    assert done is not None
    return [one.collection for one in done.switched]


def stands(harness: Harness) -> CollectionSpace:
    with harness.sessions() as session:
        (report,) = space_reports(reader_of(session))
    return report


def test_the_old_space_is_searched_whole_until_all_is_in_the_new_one(harness: Harness, tmp_path: Path) -> None:
    documents = take_in(harness, tmp_path)
    every = found(ask(harness))
    assert sorted(set(every)) == sorted(documents)
    paid = (len(harness.formatter.calls), len(harness.retriever.calls))

    runs = put_anew(harness)
    assert len(runs) == 3
    harness.embedder = TwoThenBusy()
    harness.drive()
    states = sorted(harness.run(run).state for run in runs)
    assert states == [RunState.DONE, RunState.DONE, RunState.PARKED]
    assert beat(harness) == []
    asked: list[str] = []
    assert found(ask(harness, asked=asked)) == every, "no hole: what was published brought its old vectors along"
    assert set(asked) == {OLD}
    report = stands(harness)
    assert report.active is not None
    assert report.next is not None
    assert (report.active.model, report.next.model, report.ready, report.documents) == (OLD, NEW, 2, 3)
    (note,) = ask(harness).notes
    assert NEW in note
    assert OLD in note

    harness.embedder = ScriptedEmbedder()
    for run in runs:
        harness.make_due(run)
    harness.wake()
    harness.drive()
    asked.clear()
    assert found(ask(harness, asked=asked)) == every
    assert asked == [OLD]
    assert beat(harness) == ["default"]
    asked.clear()
    result = ask(harness, asked=asked)
    assert (found(result), asked, result.notes) == (every, [NEW], [])
    assert (len(harness.formatter.calls), len(harness.retriever.calls)) == paid, "no language model was asked"
    assert _carried(harness) == 0, "what was brought along is gone"
    assert beat(harness) == []
    assert stands(harness).next is None


def test_searchers_see_every_document_once_through_the_switch(sessions: Sessions) -> None:
    seed = Seed(sessions)
    spaces = [ensure_space(sessions, model, 3) for model in (OLD, NEW)]
    documents = [seed.document(f"/{n}") for n in range(3)]

    def embed_anew(space: int) -> None:
        for number, document in enumerate(documents):
            run_id = seed.run(document, "running", space_id=space)
            words = f"the water is high at gate {number}"
            chunk = seed.chunk(run_id, 1, words, (1, 0, 0.1 * number), space)
            with sessions.begin() as session:
                session.execute(
                    update(Embedding).where(Embedding.chunk_id == chunk).values(text_digest=text_digest(words))
                )
            with sessions.begin() as session:
                assert publish(session, session.get_one(Run, run_id), empty=False, incomplete=False)

    embed_anew(spaces[0])
    stop, wrong, asked = threading.Event(), [], set()

    def embed(space: Space) -> Sequence[float]:
        asked.add(space.model)
        return [1.0, 0.0, 0.0]

    def look() -> int:
        looks = 0
        while not stop.wait(0.01):
            for mode in Mode:
                result = search(sessions, "water", k=50, mode=mode, embed=embed)
                if sorted(hit.document for hit in result.hits) != sorted(documents):
                    wrong.append((mode, result.to_json()))
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(look) for _ in range(2)]
        try:
            for number in range(1, 7):
                embed_anew(spaces[number % 2])
                with sessions.begin() as session:
                    assert [one.collection for one in switch_spaces(session)] == ["default"]
                with sessions.begin() as session:
                    drop_carried(session, 100)
        finally:
            stop.set()
        assert sum(one.result() for one in looks) > 3
    assert wrong == []
    assert asked == {OLD, NEW}


def test_deleting_what_is_left_in_the_old_space_switches(harness: Harness, tmp_path: Path) -> None:
    documents = take_in(harness, tmp_path, 2)
    harness.enqueue(tmp_path / "paper0.md", recipe=renewed(harness))
    harness.drive()
    assert beat(harness) == []
    delete(harness.sessions, harness.blobs, [documents[1]])
    assert beat(harness) == ["default"]
    assert set(found(ask(harness))) == {documents[0]}


def test_a_change_of_mind_leaves_the_collection_where_it_was(harness: Harness, tmp_path: Path) -> None:
    documents = take_in(harness, tmp_path, 2)
    harness.enqueue(tmp_path / "paper0.md", recipe=renewed(harness))
    harness.drive()
    put_anew(harness, OLD)
    harness.drive()
    assert beat(harness) == []
    report = stands(harness)
    assert report.active is not None
    assert (report.active.model, report.next) == (OLD, None)
    assert sorted(set(found(ask(harness)))) == sorted(documents)


def test_a_space_remembers_where_its_model_is_asked(harness: Harness) -> None:
    written = {"model": OLD, "dim": DIM, "base_url": "http://embed-1/v1", "api_key_env": "EMBED_KEY"}
    for settings in ({}, written, written):
        remember_embedder(harness.sessions, OLD, DIM, settings)
    with harness.sessions() as session:
        assert read_space(session, 1).embedder == written


class TwoThenBusy(ScriptedEmbedder):
    """Answers twice, and is busy from then on."""

    async def embed(self, texts: Sequence[str], context: object) -> object:  # type: ignore[override]
        if len(self.calls) >= 2:
            self.always = exhausted("embedder", retry_at=4e9)
        return await super().embed(texts, context)  # type: ignore[arg-type]


def _carried(harness: Harness) -> int:
    with harness.sessions() as session:
        count: int = session.scalar(
            text(
                "select count(*) from embedding join chunk on chunk.id = embedding.chunk_id"
                " join run on run.id = chunk.run_id where run.space_id <> embedding.space_id"
            )
        )
        return count
