"""Enqueue against real Postgres: accepted once, superseded when changed, and never half."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from pipeline.delete import delete
from pipeline.documents.sniff import sniff
from pipeline.domain.document import Limits
from pipeline.domain.errors import ServiceUnavailable, UsageError
from pipeline.domain.run import RunState
from pipeline.enqueue import EnqueueResult, EnqueueState, enqueue
from pipeline.passwords import Passwords
from pipeline.recipe import Recipe
from pipeline.store.blobs import BlobSource, StoredBlob
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.runs import move_run
from pipeline.store.schema import Batch, Blob, Document, Run, Unit
from pipeline.store.session import Sessions, make_engine, make_sessions
from tests.blobs import put as put_blob
from tests.unit.documents.archives import zipped

RECIPE = Recipe({"stages": {"embed": {"model": "local/wordllama", "dim": 256}}, "v": 1})
OTHER_RECIPE = Recipe({"stages": {"embed": {"model": "local/wordllama", "dim": 256}}, "v": 2})


class Enqueuer:
    def __init__(self, sessions: Sessions, blobs: FileBlobs) -> None:
        self.sessions, self.blobs = sessions, blobs

    def __call__(self, *paths: Path | str, recipe: Recipe = RECIPE, **options: Any) -> EnqueueResult:
        options = {"limits": Limits(), "sniff": sniff, **options}
        return enqueue(self.sessions, self.blobs, paths, recipe=recipe, **options)

    def count(self, table: type[Any]) -> int:
        with self.sessions() as session:
            return session.scalar(select(func.count()).select_from(table)) or 0

    def finish(self, run_id: int | None) -> None:
        """End a run the way the ledger does."""
        assert run_id is not None
        with self.sessions.begin() as session:
            move_run(session, run_id, RunState.RUNNING)
            move_run(session, run_id, RunState.DONE)
            run = session.get_one(Run, run_id)
            session.get_one(Document, run.document_id).live_run_id = run_id


@pytest.fixture
def put(sessions: Sessions, blobs: FileBlobs) -> Enqueuer:
    return Enqueuer(sessions, blobs)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text("# One\n\ntext")
    return path


def test_a_file_becomes_a_queued_run_with_its_parse_unit(put: Enqueuer, page: Path) -> None:
    result = put(page, collection="seashore", label="march", priority=9)

    (document,) = result.documents
    assert (document.state, document.path, document.media_type) == ("queued", str(page), "text/markdown")
    assert result.to_json()["batch"] == {"id": result.batch_id, "label": "march", "collection": "seashore"}
    assert result.counts == {"queued": 1, "unchanged": 0, "rejected": 0}
    with put.sessions() as session:
        run = session.get_one(Run, document.run)
        unit = session.scalars(select(Unit)).one()
        assert (run.state, run.priority, run.recipe, run.batch_id) == ("queued", 9, RECIPE.body, result.batch_id)
        assert run.space_id is not None
        assert (unit.run_id, unit.stage, unit.ordinal, unit.state, unit.priority) == (run.id, "parse", 0, "pending", 9)
        assert unit.queued_at == run.queued_at
        assert put.blobs.read(run.blob_digest) == page.read_bytes()


def test_the_same_file_again_is_unchanged_while_on_its_way_and_when_live(put: Enqueuer, page: Path) -> None:
    first = put(page).documents[0]
    assert put(page).documents[0].state == EnqueueState.UNCHANGED
    put.finish(first.run)

    again = put(page).documents[0]

    assert (again.state, again.id, again.run) == (EnqueueState.UNCHANGED, first.id, first.run)
    assert put.count(Run) == 1


def test_another_recipe_makes_another_run_of_a_live_document(put: Enqueuer, page: Path) -> None:
    first = put(page).documents[0]
    put.finish(first.run)

    second = put(page, recipe=OTHER_RECIPE).documents[0]

    assert second.state == EnqueueState.QUEUED
    assert (second.id, second.run) != (first.id, first.run)
    with put.sessions() as session:
        assert session.scalars(select(Document)).one().live_run_id == first.run


def test_a_changed_file_supersedes_the_run_on_its_way(put: Enqueuer, page: Path) -> None:
    first = put(page).documents[0]
    page.write_text("# Two")

    second = put(page).documents[0]

    assert (second.state, second.id) == (EnqueueState.QUEUED, first.id)
    with put.sessions() as session:
        old, new = session.get_one(Run, first.run), session.get_one(Run, second.run)
        assert (old.state, new.state) == ("cancelled", "queued")
        assert [unit.run_id for unit in session.scalars(select(Unit))] == [new.id]
        assert session.scalars(select(Document)).one().blob_digest == new.blob_digest


def test_a_file_changed_back_to_what_is_live_cancels_the_run_of_the_change(put: Enqueuer, page: Path) -> None:
    first = put(page).documents[0]
    put.finish(first.run)
    original = page.read_text()
    page.write_text("# Two")
    second = put(page).documents[0]
    page.write_text(original)

    third = put(page).documents[0]

    assert (third.state, third.run) == (EnqueueState.UNCHANGED, first.run)
    with put.sessions() as session:
        assert session.get_one(Run, second.run).state == "cancelled"


def test_a_failed_document_is_tried_again(put: Enqueuer, page: Path) -> None:
    first = put(page).documents[0]
    assert first.run is not None
    with put.sessions.begin() as session:
        move_run(session, first.run, RunState.RUNNING)
        move_run(session, first.run, RunState.FAILED)

    assert put(page).documents[0].state == EnqueueState.QUEUED


def test_a_blob_that_is_gone_is_stored_again_though_a_live_version_is_of_the_same_bytes(
    put: Enqueuer, page: Path
) -> None:
    (document,) = put(page).documents
    put.finish(document.run)
    (redone,) = put(page, recipe=OTHER_RECIPE).documents
    with put.sessions.begin() as session:
        digest = session.get_one(Run, redone.run).blob_digest
        move_run(session, redone.run or 0, RunState.RUNNING)
        move_run(session, redone.run or 0, RunState.FAILED, failure_kind="blob_missing", failure_detail="it is gone")
    put.blobs.delete(digest)
    (again,) = put(page).documents
    assert (again.state, again.run) == (EnqueueState.UNCHANGED, document.run)
    assert put.blobs.exists(digest)


def test_the_same_bytes_at_two_paths_are_two_documents_and_one_blob(put: Enqueuer, page: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.md").write_bytes(page.read_bytes())

    result = put(tmp_path)

    assert result.counts["queued"] == 2
    assert (put.count(Document), put.count(Blob)) == (2, 1)


def test_bad_paths_are_rejected_and_the_others_go_on(put: Enqueuer, page: Path, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("x" * 100)
    (tmp_path / "program").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(100))

    result = put(
        tmp_path / "missing.pdf", page, tmp_path / "big.txt", tmp_path / "program", limits=Limits(max_bytes=50)
    )

    assert [document.state for document in result.documents] == ["rejected", "queued", "rejected", "rejected"]
    assert [document.reason for document in result.documents] == [
        "no such file",
        None,
        "too_large: 100 bytes are above limits.max_bytes, which is 50",
        "too_large: 107 bytes are above limits.max_bytes, which is 50",
    ]
    assert put(tmp_path / "program").documents[0].reason == "unsupported: a program"


def test_the_same_files_twice_at_once_get_one_run_each(put: Enqueuer, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.txt").write_text(f"text {number}")

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: put(folder), range(6)))

    assert sum(result.counts["queued"] for result in results) == 40
    assert (put.count(Run), put.count(Unit), put.count(Document)) == (40, 40, 40)
    assert {tuple(d.run for d in result.documents) for result in results} == {
        tuple(d.run for d in results[0].documents)
    }
    assert put.count(Batch) == 6


def test_batches_without_a_label_are_numbered_by_day(put: Enqueuer, page: Path) -> None:
    labels = [put(page).batch_label for _ in range(11)]

    days = {(label or "").rpartition("-")[0] for label in labels}
    assert len(days) == 1
    assert [(label or "").rpartition("-")[2] for label in labels] == [str(n) for n in range(1, 12)]


def test_a_batch_takes_more_documents_under_its_label(put: Enqueuer, page: Path, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b")
    assert put(page, label="x").batch_id == put(tmp_path / "b.txt", label="x").batch_id


def test_a_dry_run_stores_nothing_and_foresees_the_outcome(put: Enqueuer, page: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("new")
    assert put(page, dry_run=True).documents[0].state == EnqueueState.QUEUED
    assert (put.count(Document), put.count(Batch), put.count(Blob)) == (0, 0, 0)
    put(page)

    result = put(page, tmp_path / "new.txt", tmp_path / "nope", dry_run=True)

    assert [document.state for document in result.documents] == ["unchanged", "queued", "rejected"]
    assert put.count(Document) == 1


def test_a_password_lies_beside_the_blobs_and_in_no_row(put: Enqueuer, page: Path) -> None:
    document = put(page, passwords=Passwords(default="sesame")).documents[0]

    assert put.blobs.read_secret(str(document.id)) == "sesame"
    with put.sessions() as session:
        run = session.scalars(select(Run)).one()
        assert "sesame" not in repr([vars(run)])


def test_each_document_gets_the_password_that_fits_it_also_while_it_waits(put: Enqueuer, tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{n}.txt" for n in "abc")
    for path in (first, second, third):
        path.write_text(path.name)
    passwords = Passwords([("a.txt", "one"), ("[b]*", "two")])
    waiting = put(first).documents[0]

    documents = put(tmp_path, passwords=passwords).documents

    assert [document.state for document in documents] == ["unchanged", "queued", "queued"]
    assert documents[0].id == waiting.id
    assert [put.blobs.read_secret(str(document.id)) for document in documents] == ["one", "two", None]


def test_an_archives_members_are_documents_like_files(put: Enqueuer, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped(("b.md", b"# B"), ("c.txt", b"c"), ("../d.txt", b"d"), ("./c.txt", b"again")))
    assert put(archive).documents[0].reason == "unsupported: a ZIP archive; add --expand to take what is in it"

    foreseen = put(archive, expand=True, dry_run=True)
    assert put.count(Document) == 0
    first = put(archive, expand=True)

    assert [one.state for one in foreseen.documents] == [one.state for one in first.documents]
    assert [(one.path, one.state) for one in first.documents] == [
        (f"{archive}!/b.md", "queued"),
        (f"{archive}!/c.txt", "queued"),
        (f"{archive}!/../d.txt", "rejected"),
        (f"{archive}!/c.txt", "rejected"),
    ]
    assert first.counts == {"queued": 2, "unchanged": 0, "rejected": 2}
    with put.sessions() as session:
        assert put.blobs.read(session.get_one(Run, first.documents[0].run).blob_digest) == b"# B"
    again = put(archive, expand=True)
    assert [(one.id, one.state) for one in again.documents[:2]] == [
        (one.id, "unchanged") for one in first.documents[:2]
    ]

    archive.write_bytes(zipped(("b.md", b"# B"), ("c.txt", b"changed")))
    changed = put(archive, expand=True)

    assert [(one.id, one.state) for one in changed.documents] == [
        (first.documents[0].id, "unchanged"),
        (first.documents[1].id, "queued"),
    ]
    with put.sessions() as session:
        assert session.get_one(Run, first.documents[1].run).state == "cancelled"
    delete(put.sessions, put.blobs, [f"{archive}!/c.txt"])
    assert put.count(Document) == 1


def test_more_members_than_a_slice_holds_are_all_taken(
    put: Enqueuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.enqueue.SLICE_FILES", 4)
    # Larger than what is held in memory, so that they are read once more when they are stored.
    entries = [(f"{number}.txt", f"{number} ".encode() * 40_000) for number in range(10)]
    (tmp_path / "a.zip").write_bytes(zipped(*entries))

    result = put(tmp_path / "a.zip", expand=True)

    assert result.counts["queued"] == 10
    with put.sessions() as session:
        digests = {run.blob_digest for run in session.scalars(select(Run))}
    assert {put.blobs.read(digest) for digest in digests} == {content for _, content in entries}


def test_slices_are_reported_as_they_are_accepted(
    put: Enqueuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.enqueue.SLICE_FILES", 4)
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(str(number))
    seen: list[int] = []

    put(tmp_path, on_slice=lambda documents: seen.append(len(documents)))

    assert seen == [4, 4, 2]
    assert put.count(Run) == 10


@pytest.mark.parametrize("gone", [False, True])
def test_a_blob_swept_away_just_before_the_commit_is_stored_again_if_its_file_is_there(
    put: Enqueuer, page: Path, gone: bool
) -> None:
    class Swept(FileBlobs):
        def put_all(self, sources: Sequence[BlobSource]) -> list[StoredBlob | OSError]:
            put = super().put_all(sources)
            for source, blob in zip(sources, put, strict=True):
                if isinstance(blob, StoredBlob) and not blob.created:
                    self.delete(blob.digest)
                    if gone:
                        source.path.unlink()
            return put

    put_blob(put.blobs, page.read_bytes())
    put.blobs.__class__ = Swept

    document = put(page).documents[0]

    with put.sessions() as session:
        assert put.blobs.exists(session.get_one(Run, document.run).blob_digest) is not gone


@pytest.mark.parametrize(
    "options", [{"collection": ""}, {"collection": "a/b"}, {"label": "x" * 201}, {"label": " x"}, {"priority": 10}]
)
def test_names_and_priorities_are_checked_first(put: Enqueuer, page: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        put(page, **options)


def test_names_in_every_script_are_accepted(put: Enqueuer, page: Path) -> None:
    assert put(page, collection="図書館", label="März 2026: «A»").counts["queued"] == 1


def test_postgres_away_is_one_clear_error(put: Enqueuer, page: Path) -> None:
    engine = make_engine("postgresql://nobody@127.0.0.1:1/none", connect_timeout_s=2)
    with pytest.raises(ServiceUnavailable, match="tidegate up"):
        enqueue(make_sessions(engine), put.blobs, [page], recipe=RECIPE, limits=Limits(), sniff=sniff)
    engine.dispose()
