"""Requeue, cancel and delete over real Postgres: another go for what needs it, and hands off what is in progress."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select, text

from pipeline.cancel import cancel
from pipeline.delete import delete
from pipeline.domain.errors import UsageError
from pipeline.domain.unit import Stage
from pipeline.recipe import Recipe
from pipeline.requeue import RequeueResult, Wanted, requeue
from pipeline.status import status
from pipeline.store.blob_rows import record_blobs, sweep_blobs
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.reader import Reads
from pipeline.store.schema import Attempt, Base, Blob, ChunkRow, Document, Embedding, Page, Run, Unit
from pipeline.store.session import Sessions
from pipeline.store.spaces import ensure_space
from tests.blobs import put as put_blob
from tests.integration.seed import Seed

RECIPE = Recipe({"stages": {"embed": {"model": "m", "dim": 3}}, "v": "now"})


@pytest.fixture
def seed(sessions: Sessions) -> Seed:
    return Seed(sessions)


def _requeue(sessions: Sessions, wanted: Wanted, **options: Any) -> RequeueResult:
    return requeue(sessions, wanted, recipe_of=lambda _: RECIPE, **options)


def _count(sessions: Sessions, table: type[Base]) -> int:
    with sessions() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_a_failed_document_gets_a_new_run_under_the_recipe_of_now(seed: Seed, sessions: Sessions) -> None:
    document = seed.document("/a", batch="b")
    old = seed.run(document, "failed", priority=7)
    seed.units(old, "describe", [1, 2], input_digest="d")
    seed.units(old, "describe", [3], "failed")

    result = _requeue(sessions, Wanted(failed=True), batch="b")

    (made,) = result.runs
    assert (made.document, made.reused_units, made.todo_units, made.woken) == (document, 2, 1, False)
    assert result.counts == {"queued": 1, "woken": 0, "refused": 0}
    with sessions() as session:
        run = session.get_one(Run, made.run)
        assert (run.state, run.recipe, run.priority, run.redo_of_id) == ("queued", RECIPE.body, 7, old)
        assert (run.batch_id, run.primary_only, run.redo_from) == (session.get_one(Run, old).batch_id, False, None)
        assert [unit.stage for unit in session.scalars(select(Unit).where(Unit.run_id == run.id))] == ["parse"]


def test_parked_runs_are_woken_themselves(seed: Seed, sessions: Sessions) -> None:
    run = seed.run(seed.document("/a", batch="b"), "parked", resume_at=func.now())
    seed.units(run, "describe", [1], input_digest="d")
    # Of no use to another run, and done in this one.
    seed.units(run, "chunk", [0])
    seed.units(run, "describe", [2, 3], "parked", resume_at=func.now())

    (woken,) = _requeue(sessions, Wanted(parked=True), batch="b").runs

    assert (woken.run, woken.woken, woken.reused_units, woken.todo_units) == (run, True, 2, 2)
    with sessions() as session:
        assert session.get_one(Run, run).state == "running"
        units = session.scalars(select(Unit).where(Unit.state == "pending")).all()
        assert [(unit.ordinal, unit.resume_at, unit.dispatched_at) for unit in units] == [
            (2, None, None),
            (3, None, None),
        ]
        assert _count(sessions, Run) == 1


def test_degraded_units_are_redone_by_the_primary_alone(seed: Seed, sessions: Sessions) -> None:
    degraded = seed.run(seed.document("/a"), "done", live=True)
    seed.units(degraded, "describe", [1], input_digest="d", degraded=True)
    seed.units(degraded, "describe", [2], input_digest="d")
    seed.units(seed.run(seed.document("/b"), "done", live=True), "describe", [1], input_digest="d")

    result = _requeue(sessions, Wanted(degraded=True), collection="default")

    assert [(run.path, run.reused_units, run.todo_units) for run in result.runs] == [("/a", 1, 1)]
    with sessions() as session:
        assert session.get_one(Run, result.runs[0].run).primary_only


@pytest.mark.parametrize("state", ["cancelled", "failed"])
def test_a_redo_of_degraded_units_that_came_to_nothing_can_be_asked_for_again(
    seed: Seed, sessions: Sessions, reads: Reads, state: str
) -> None:
    document, changed = seed.document("/a", batch="b"), seed.document("/changed", batch="b")
    for one in (document, changed):
        seed.units(seed.run(one, "done", live=True), "describe", [1], input_digest="d", degraded=True)
    seed.run(document, state, primary_only=True)
    other_bytes = hashlib.sha256(b"/a").hexdigest()
    seed.run(changed, state, blob_digest=other_bytes)
    assert status(reads).notes == ["1 unit was answered by a fallback:  tidegate requeue --batch b --degraded"]

    result = _requeue(sessions, Wanted(degraded=True), documents=["/a", "/changed"])

    assert [run.path for run in result.runs] == ["/a"]
    assert [one.path for one in result.refused] == ["/changed"]
    assert status(reads).notes == []


def test_from_a_stage_on_nothing_is_reused(seed: Seed, sessions: Sessions) -> None:
    run = seed.run(seed.document("/a"), "done", live=True)
    for stage in ("parse", "describe", "format", "retrieve"):
        seed.units(run, stage, [1], input_digest="d")

    result = _requeue(sessions, Wanted(from_stage=Stage.FORMAT), documents=["/a"])

    assert result.to_json()["runs"][0]["from_stage"] == "format"
    assert (result.runs[0].reused_units, result.runs[0].todo_units) == (2, 2)
    with sessions() as session:
        assert session.get_one(Run, result.runs[0].run).redo_from == "format"


@pytest.mark.parametrize("state", ["queued", "running", "parked"])
def test_what_is_in_progress_is_refused_with_a_line(seed: Seed, sessions: Sessions, state: str) -> None:
    seed.run(seed.document("/a"), state)

    result = _requeue(sessions, Wanted(from_stage=Stage.PARSE), documents=["/a"])

    assert result.runs == []
    assert state in result.refused[0].reason
    assert _count(sessions, Run) == 1


def test_without_flags_what_has_not_succeeded_goes_again(seed: Seed, sessions: Sessions) -> None:
    for state in ("failed", "parked", "done", "cancelled"):
        seed.run(seed.document(f"/{state}", batch="b"), state)

    assert {run.path for run in _requeue(sessions, Wanted(), batch="b", dry_run=True).runs} == {"/failed", "/parked"}
    named = _requeue(sessions, Wanted(), documents=["/cancelled", "/done"])
    assert [run.path for run in named.runs] == ["/cancelled"]
    assert "--from-stage parse" in named.refused[0].reason


def test_an_incomplete_document_counts_as_failed(seed: Seed, sessions: Sessions) -> None:
    seed.run(seed.document("/a"), "done", live=True, incomplete=True)
    assert len(_requeue(sessions, Wanted(failed=True), collection="default").runs) == 1


def test_a_dry_run_changes_nothing(seed: Seed, sessions: Sessions) -> None:
    seed.run(seed.document("/a"), "failed")
    parked = seed.run(seed.document("/b"), "parked")

    result = _requeue(sessions, Wanted(failed=True, parked=True), collection="default", dry_run=True)

    assert [(run.path, run.run) for run in sorted(result.runs, key=lambda one: one.path)] == [
        ("/a", None),
        ("/b", parked),
    ]
    assert _count(sessions, Run) == 2


def test_two_requeues_at_once_make_one_run_each(seed: Seed, sessions: Sessions) -> None:
    for number in range(10):
        seed.run(seed.document(f"/{number}", batch="b"), "failed")
    ensure_space(sessions, "m", 3)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: _requeue(sessions, Wanted(failed=True), batch="b"), range(4)))

    assert sum(len(result.runs) for result in results) == 10
    assert _count(sessions, Run) == 20


def test_portions_cover_everything_once(seed: Seed, sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.requeue._PORTION", 3)
    for number in range(8):
        seed.run(seed.document(f"/{number}", batch="b"), "failed")

    result = _requeue(sessions, Wanted(failed=True), batch="b")

    assert len({run.path for run in result.runs}) == len(result.runs) == 8
    assert result.refused == []


def test_a_requeue_of_nothing_in_particular_is_refused(sessions: Sessions) -> None:
    with pytest.raises(UsageError, match="--batch"):
        _requeue(sessions, Wanted(failed=True))
    with pytest.raises(UsageError, match="'nine'"):
        _requeue(sessions, Wanted(failed=True), batch="nine")


def test_cancel_ends_the_active_runs_of_a_batch_and_keeps_what_is_done(seed: Seed, sessions: Sessions) -> None:
    running = seed.run(seed.document("/a", batch="b"), "running")
    seed.units(running, "describe", [1])
    seed.units(running, "describe", [2], "leased")
    seed.units(running, "describe", [3], "pending")
    queued = seed.run(seed.document("/b", batch="b"))
    seed.run(seed.document("/c", batch="b"), "done")
    other = seed.run(seed.document("/d", batch="other"))

    result = cancel(sessions, batch="b")

    assert {one.run for one in result.runs} == {running, queued}
    assert result.to_json()["counts"] == {"cancelled": 2, "ended": 1}
    with sessions() as session:
        assert session.get_one(Run, other).state == "queued"
        assert session.get_one(Run, running).finished_at is not None
        assert [unit.ordinal for unit in session.scalars(select(Unit).where(Unit.run_id == running))] == [1]
    with pytest.raises(UsageError):
        cancel(sessions)


def test_delete_takes_everything_with_it_and_leaves_what_others_need(
    seed: Seed, sessions: Sessions, blobs: FileBlobs
) -> None:
    shared, image, own = (put_blob(blobs, data).digest for data in (b"shared", b"image", b"own"))
    space = ensure_space(sessions, "m", 3)
    with sessions.begin() as session:
        record_blobs(session, [(digest, 1, "image/png") for digest in (shared, image, own)])
    document = seed.document("/a", digest=own)
    run = seed.run(document, "done", live=True)
    seed.page(run, 1, "text", image_digest=image)
    seed.page(run, 2, "text", image_digest=shared)
    seed.units(run, "describe", [1], input_digest="d")
    seed.attempt(run, "describe")
    seed.chunk(run, 1, "text", (1, 0, 0), space)
    seed.run(document, "running")
    blobs.put_secret(str(document), "sesame")
    kept = seed.document("/b", digest=shared)

    result = delete(sessions, blobs, [str(document)[:8]])

    assert result.to_json()["counts"] == {"documents": 1, "blobs": 2}
    assert [blobs.exists(digest) for digest in (shared, image, own)] == [True, False, False]
    assert blobs.read_secret(str(document)) is None
    assert [_count(sessions, table) for table in (Run, Page, Unit, Attempt, ChunkRow, Embedding)] == [0] * 6
    with sessions() as session:
        assert [one.id for one in session.scalars(select(Document))] == [kept]
        assert [one.digest for one in session.scalars(select(Blob))] == [shared]


def test_delete_looks_all_names_up_first(seed: Seed, sessions: Sessions, blobs: FileBlobs) -> None:
    seed.document("/a")
    with pytest.raises(UsageError):
        delete(sessions, blobs, ["/a", "/nope"])
    assert _count(sessions, Document) == 1


def test_a_mail_is_deleted_with_its_attachments_and_an_archive_stands_for_what_it_held(
    seed: Seed, sessions: Sessions, blobs: FileBlobs
) -> None:
    for uri in ("/m.eml", "/m.eml!/a.pdf", "/m.eml.txt", "/z.zip!/b.txt", "/z.zip!/in/c.txt", "/z.zip.md"):
        seed.document(uri)
    seed.document("/m.eml!/a.pdf", collection="other")

    assert [one.path for one in delete(sessions, blobs, ["/m.eml"]).documents] == ["/m.eml", "/m.eml!/a.pdf"]
    assert [one.path for one in delete(sessions, blobs, ["/z.zip"]).documents] == ["/z.zip!/b.txt", "/z.zip!/in/c.txt"]
    with sessions() as session:
        left = session.execute(select(Document.source_uri, Document.collection_id).order_by(Document.source_uri)).all()
    assert [row.source_uri for row in left] == ["/m.eml!/a.pdf", "/m.eml.txt", "/z.zip.md"]


def test_an_archive_stands_for_its_documents_when_they_are_requeued_or_cancelled(
    seed: Seed, sessions: Sessions
) -> None:
    for name, state in (("a", "failed"), ("b", "done"), ("c", "running")):
        seed.run(seed.document(f"/z.zip!/{name}"), state)
    seed.run(seed.document("/mail.eml"), "done")
    seed.run(seed.document("/mail.eml!/a"), "failed")

    result = _requeue(sessions, Wanted(failed=True), documents=["/z.zip"])
    assert [run.path for run in result.runs] == ["/z.zip!/a"]
    assert [one.path for one in result.refused] == ["/z.zip!/c"], "what is done was not asked for by its own name"
    assert _requeue(sessions, Wanted(failed=True), documents=["/mail.eml"]).runs == []
    assert {one.path for one in cancel(sessions, documents=["/z.zip"]).runs} == {"/z.zip!/a", "/z.zip!/c"}

    seed.document("/z.zip!/a", collection="other")
    with pytest.raises(UsageError, match="2 collections"):
        cancel(sessions, documents=["/z.zip"])


def _age_blobs(sessions: Sessions) -> None:
    with sessions.begin() as session:
        session.execute(text("update blob set created_at = now() - interval '2 hours'"))


def test_the_sweep_of_all_takes_only_what_nobody_refers_to(seed: Seed, sessions: Sessions, blobs: FileBlobs) -> None:
    used, unused = put_blob(blobs, b"used").digest, put_blob(blobs, b"unused").digest
    with sessions.begin() as session:
        record_blobs(session, [(used, 1, "x"), (unused, 1, "x")])
    seed.document("/a", digest=used)
    assert sweep_blobs(sessions, blobs) == 0, "what was only just stored is about to be referred to"

    _age_blobs(sessions)
    assert sweep_blobs(sessions, blobs) == 1
    assert (blobs.exists(used), blobs.exists(unused)) == (True, False)


def test_the_sweep_passes_over_a_blob_that_is_being_referred_to(
    seed: Seed, sessions: Sessions, blobs: FileBlobs
) -> None:
    digest = put_blob(blobs, b"wanted").digest
    with sessions.begin() as session:
        record_blobs(session, [(digest, 1, "x")])
    _age_blobs(sessions)
    with sessions.begin() as session:
        record_blobs(session, [(digest, 1, "x")])
        assert sweep_blobs(sessions, blobs) == 0
    assert blobs.exists(digest)
    assert isinstance(seed.document("/a", digest=digest), UUID)
