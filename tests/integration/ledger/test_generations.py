"""Enqueued again: unchanged, replaced as a whole, deleted, or requeued while somebody searches."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import func, select

from pipeline.cancel import cancel
from pipeline.delete import delete
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage, UnitState
from pipeline.enqueue import EnqueueState
from pipeline.failover.kinds import FailureKind
from pipeline.publish import publish
from pipeline.requeue import RequeueResult, Wanted, requeue
from pipeline.search import Mode, search
from pipeline.store.schema import Attempt, Run
from pipeline.store.session import Sessions
from pipeline.store.spaces import ensure_space
from tests.integration.ledger.harness import Harness, exhausted
from tests.integration.seed import Seed


def again(harness: Harness, wanted: Wanted, document: object, *, dry_run: bool = False) -> RequeueResult:
    return requeue(
        harness.sessions, wanted, recipe_of=lambda _: harness.recipe(), documents=[str(document)], dry_run=dry_run
    )


def test_searchers_see_one_generation_never_both_and_never_none(sessions: Sessions) -> None:
    seed, space = Seed(sessions), ensure_space(sessions, "test", 3)
    document = seed.document("/tides.md")

    def replace(version: int) -> None:
        run_id = seed.run(document, "running", space_id=space)
        for ordinal in (1, 2, 3):
            seed.chunk(run_id, ordinal, f"the tide turns in version{version}", (1, 0, 0.1 * ordinal), space)
        with sessions.begin() as session:
            assert publish(session, session.get_one(Run, run_id), empty=False, incomplete=False)

    replace(0)
    stop, wrong = threading.Event(), []

    def look() -> int:
        looks = 0
        while not stop.wait(0.01):
            for mode in Mode:
                result = search(sessions, "tide", mode=mode, k=50, embed=lambda _: [1.0, 0.0, 0.0])
                texts = [hit.chunk.text for hit in result.hits]
                if len(set(texts)) != 1 or len(texts) != 3:
                    wrong.append((mode, texts))
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(look) for _ in range(2)]
        try:
            for version in range(1, 25):
                replace(version)
        finally:
            stop.set()
        assert sum(one.result() for one in looks) > 3
    assert wrong == []


def test_what_was_enqueued_again_as_it_was_is_unchanged(harness: Harness, note: Path) -> None:
    (first,) = harness.enqueue(note)
    harness.drive()
    calls = len(harness.formatter.calls)
    (second,) = harness.enqueue(note)
    assert (second.state, second.run) == (EnqueueState.UNCHANGED, first.run)
    assert harness.drive() == []
    assert len(harness.formatter.calls) == calls


def test_a_deleted_document_is_gone_at_once_and_nothing_of_it_is_reused(harness: Harness, note: Path) -> None:
    (document,) = harness.enqueue(note)
    harness.drive()
    paid = (len(harness.formatter.calls), len(harness.retriever.calls), len(harness.embedder.calls))
    assert search(harness.sessions, "water", mode=Mode.TEXT).hits

    delete(harness.sessions, harness.blobs, [str(document.id)])
    assert search(harness.sessions, "water", mode=Mode.TEXT).hits == []

    (anew,) = harness.enqueue(note)
    harness.drive()
    assert harness.run(anew.run).state == RunState.DONE
    assert not any(unit.reused for unit in harness.units(anew.run))
    spent = (len(harness.formatter.calls), len(harness.retriever.calls), len(harness.embedder.calls))
    assert spent == tuple(2 * count for count in paid)


def test_a_document_deleted_under_a_worker_ends_without_a_trace(harness: Harness, note: Path) -> None:
    (document,) = harness.enqueue(note)
    for piece in harness.dispatch():
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    (piece,) = harness.dispatch()

    def delete_it() -> None:
        delete(harness.sessions, harness.blobs, [str(document.id)])

    harness.formatter.before = delete_it
    report = harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    assert report.counts["done"] == 0
    assert harness.units(piece.run_id) == []


def test_a_message_of_a_cancelled_run_does_nothing(harness: Harness, note: Path) -> None:
    (document,) = harness.enqueue(note)
    for piece in harness.dispatch():
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    stale = harness.dispatch()
    cancel(harness.sessions, documents=[str(document.id)])
    before = [(unit.id, unit.state) for unit in harness.units(document.run)]

    for piece in stale * 3:
        assert str(harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)) == "nothing to do"
    assert harness.formatter.calls == []
    assert [(unit.id, unit.state) for unit in harness.units(document.run)] == before
    assert harness.run(document.run).state == RunState.CANCELLED

    (anew,) = again(harness, Wanted(), document.id).runs
    for piece in stale:
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    assert harness.formatter.calls == [], "nor does it touch the run that came after"
    harness.drive()
    assert harness.run(anew.run).state == RunState.DONE


def test_what_failed_is_requeued_alone_and_the_old_run_keeps_its_story(harness: Harness, tmp_path: Path) -> None:
    paths = []
    for name in ("good", "bad"):
        path = tmp_path / f"{name}.md"
        path.write_text(f"# {name}\n\nThe {name} gate opens at half tide.\n")
        paths.append(path)
    good, bad = harness.enqueue(*paths, label="b")
    harness.retriever.acts.extend([None, exhausted("retrieval_llm", kind=FailureKind.CONTENT_POLICY)])
    harness.drive()
    states = {one.path: harness.run(one.run).state for one in (good, bad)}
    assert sorted(states.values()) == [RunState.DONE, RunState.FAILED]
    failed = next(one for one in (good, bad) if harness.run(one.run).state == RunState.FAILED)
    formats = len(harness.formatter.calls)
    old = [(unit.stage, unit.state, unit.failure_kind) for unit in harness.units(failed.run)]

    foreseen = requeue(
        harness.sessions, Wanted(failed=True), recipe_of=lambda _: harness.recipe(), batch="b", dry_run=True
    )
    assert [(one.document, one.run) for one in foreseen.runs] == [(failed.id, None)]
    result = requeue(harness.sessions, Wanted(failed=True), recipe_of=lambda _: harness.recipe(), batch="b")
    (made,) = result.runs
    assert made.document == failed.id
    assert (made.reused_units, made.todo_units) == (foreseen.runs[0].reused_units, foreseen.runs[0].todo_units)
    assert made.reused_units >= 2, "parse and format"
    running = again(harness, Wanted(from_stage=Stage.PARSE), failed.id)
    assert running.runs == []
    assert "queued" in running.refused[0].reason

    harness.drive()
    assert harness.run(made.run).state == RunState.DONE
    assert len(harness.formatter.calls) == formats
    assert [(unit.stage, unit.state, unit.failure_kind) for unit in harness.units(failed.run)] == old
    assert harness.run(failed.run).failure_kind is not None


def test_degraded_units_are_redone_by_the_primary_and_swapped_in(harness: Harness, note: Path) -> None:
    harness.formatter.degraded = True
    (document,) = harness.enqueue(note)
    harness.drive()
    live = search(harness.sessions, "water", mode=Mode.TEXT).hits
    assert [hit.chunk.degraded for hit in live] == [True]
    cues = len(harness.retriever.calls)

    # The better target is still away: it parks, and accepts no other answer; the fallback's stays live.
    harness.formatter.always = exhausted("vlm_formatter", retry_at=4e9)
    (redone,) = again(harness, Wanted(degraded=True), document.id).runs
    calls = len(harness.formatter.calls)
    harness.drive()
    assert harness.run(redone.run).state == RunState.PARKED
    assert [context.primary_only for context, _ in harness.formatter.calls[calls:]] == [True]
    assert [hit.chunk.degraded for hit in search(harness.sessions, "water", mode=Mode.TEXT).hits] == [True]

    harness.formatter.always, harness.formatter.degraded = None, False
    assert redone.run is not None
    harness.make_due(redone.run)
    harness.wake()
    harness.drive()
    assert harness.run(redone.run).state == RunState.DONE
    assert [hit.chunk.degraded for hit in search(harness.sessions, "water", mode=Mode.TEXT).hits] == [False]
    assert len(harness.retriever.calls) == cues, "what came out the same is not paid for again"
    assert harness.states(redone.run, Stage.FORMAT) == [UnitState.DONE]
    with harness.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 2
        assert session.scalar(select(func.count()).select_from(Attempt)) == 0
    nothing = again(harness, Wanted(degraded=True), document.id)
    assert nothing.runs == []
