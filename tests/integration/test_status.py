"""What people ask about documents, over real Postgres."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline.attempts import attempts
from pipeline.domain.errors import UsageError
from pipeline.domain.run import RunState
from pipeline.domain.unit import QUEUES, Stage
from pipeline.show import show
from pipeline.status import status
from pipeline.store.documents import find_document
from pipeline.store.reader import Reads
from pipeline.store.session import Sessions
from pipeline.store.workers import beat
from tests.integration.seed import Seed


@pytest.fixture
def seed(sessions: Sessions) -> Seed:
    return Seed(sessions)


def _one(reads: Reads, **options: Any) -> dict[str, Any]:
    (document,) = status(reads, **options).to_json()["documents"]
    found: dict[str, Any] = document
    return found


def test_an_empty_installation_has_a_status(reads: Reads) -> None:
    found = status(reads).to_json()

    assert found["documents"] == []
    assert found["counts"] == dict.fromkeys(("queued", "running", "parked", "done", "empty", "failed", "cancelled"), 0)
    assert found["workers"] == 0
    assert found["queues"]["describe"] == {"waiting": 0, "consumers": 0}


def test_a_document_is_shown_by_its_newest_run(seed: Seed, reads: Reads) -> None:
    document = seed.document("/a.pdf", collection="sea", batch="march")
    seed.run(document, "done", live=True)
    run = seed.run(document, "running", page_count=3)
    seed.units(run, "parse", [0])
    seed.units(run, "describe", [1, 2], degraded=True, answered_by="local/ocr")
    seed.units(run, "describe", [3], "leased")
    seed.units(run, "format", [1], answered_by="text")
    seed.units(run, "format", [2], "parked")
    seed.attempt(run, "describe", outcome="ok")

    found = _one(reads)

    assert (found["id"], found["path"], found["collection"], found["batch"]) == (
        str(document), "/a.pdf", "sea", "march",
    )  # fmt: skip
    assert (found["state"], found["stage"], found["pages"], found["live"]) == ("running", "describe", 3, True)
    assert found["units"] == {"total": 6, "done": 4, "parked": 1, "failed": 0}
    assert (found["degraded"], found["attempts"], found["failure"]) == (2, 1, None)
    assert found["models"] == ["local/ocr", "text"]


def test_a_failure_says_its_kind_and_stage(seed: Seed, reads: Reads) -> None:
    run = seed.run(seed.document("/a.pdf"), "failed", failure_kind="corrupt", failure_detail="no xref")
    seed.units(run, "parse", [0], "failed")

    found = _one(reads)

    assert found["failure"] == {"kind": "corrupt", "detail": "no xref"}
    assert (found["stage"], found["live"], found["finished_at"] is not None) == ("parse", False, True)


def test_counts_cover_all_and_the_list_only_the_newest(seed: Seed, reads: Reads) -> None:
    for number in range(5):
        seed.run(seed.document(f"/{number}"), "done" if number else "failed")

    found = status(reads, limit=2)

    assert [document.path for document in found.documents] == ["/4", "/3"]
    assert (found.counts[RunState.DONE], found.counts[RunState.FAILED]) == (4, 1)
    assert [one.path for one in status(reads, failed=True).documents] == ["/0"]


def test_a_status_is_narrowed_by_collection_batch_and_document(seed: Seed, reads: Reads) -> None:
    first = seed.document("/a", collection="sea", batch="one")
    seed.run(first)
    seed.run(seed.document("/b", collection="sea", batch="two"))
    seed.run(seed.document("/c", collection="land", batch="one"))

    assert {one.path for one in status(reads, collection="sea").documents} == {"/a", "/b"}
    assert {one.path for one in status(reads, batch="one").documents} == {"/a", "/c"}
    assert {one.path for one in status(reads, batch="one", collection="land").documents} == {"/c"}
    assert status(reads, batch="one", collection="land").counts[RunState.QUEUED] == 1
    assert _one(reads, document=str(first)[:8])["path"] == "/a"
    assert _one(reads, document="/b")["path"] == "/b"
    unknown: list[dict[str, Any]] = [{"collection": "lake"}, {"batch": "nine"}, {"document": "/nowhere"}]
    for options in unknown:
        with pytest.raises(UsageError):
            status(reads, **options)


def test_queues_show_what_waits_and_who_takes_it(seed: Seed, sessions: Sessions, reads: Reads) -> None:
    run = seed.run(seed.document("/a"), "running")
    seed.units(run, "describe", [1, 2, 3], "pending")
    seed.units(run, "chunk", [0], "pending")
    with sessions.begin() as session:
        beat(session, "w1", role="worker", host="h", pid=7, queues=["describe", "format"], slots=32)
        beat(session, "b1", role="beat", host="h", pid=8)
        beat(session, "old", role="worker", host="h", pid=9, queues=["describe"])
        session.execute(text("update worker set heartbeat_at = now() - interval '1 minute' where id = 'old'"))

    found = status(reads).to_json()

    assert found["workers"] == 1
    assert {"pid": 7, "host": "h", "role": "worker", "queues": ["describe", "format"]} in found["processes"]
    assert found["queues"]["describe"] == {"waiting": 3, "consumers": 1}
    assert found["queues"]["parse"] == {"waiting": 1, "consumers": 0}
    assert found["notes"] == ["nobody takes from parse:  tidegate up, or tidegate worker --queues parse"]


def test_a_beat_that_is_missing_or_silent_is_an_alarm_while_anything_is_under_way(
    seed: Seed, sessions: Sessions, reads: Reads
) -> None:
    run = seed.run(seed.document("/a"), "running")
    with sessions.begin() as session:
        beat(session, "w1", role="worker", host="h", pid=7, queues=[queue.value for queue in QUEUES], slots=1)

    def alarms() -> list[str]:
        return status(reads).alarms

    assert alarms() == ["no beat runs: nothing that is lost or parked goes on:  tidegate up, or tidegate beat"]
    with sessions.begin() as session:
        beat(session, "b1", role="beat", host="h", pid=8)
    assert alarms() == []
    with sessions.begin() as session:
        session.execute(text("update worker set heartbeat_at = now() - interval '45 s' where id = 'b1'"))
    assert alarms() == ["the beat b1 has been silent for 45 s: it hangs, or was killed:  tidegate up, or tidegate beat"]
    with sessions.begin() as session:
        session.execute(text("update run set state = 'done' where id = :run"), {"run": run})
    assert alarms() == []


def test_progress_parked_and_degraded_are_summed_up(seed: Seed, reads: Reads) -> None:
    until = datetime(2031, 1, 1, tzinfo=UTC)
    parked = seed.run(seed.document("/a", batch="spring tide"), "parked", resume_at=until)
    seed.units(parked, "describe", [1], finished_at=datetime.now(UTC))
    seed.units(parked, "describe", [2], "parked", resume_at=until)
    done = seed.run(seed.document("/b", batch="spring tide"), "done")
    seed.units(done, "describe", [1, 2], degraded=True)

    found = status(reads)

    describe = next(one for one in found.stages if one.stage is Stage.DESCRIBE)
    assert (describe.total, describe.done, describe.parked, describe.lately) == (4, 3, 1, 1)
    assert [(one.stage, one.documents, one.resume_at) for one in found.parked] == [(Stage.DESCRIBE, 1, until)]
    assert found.notes[0] == "2 units were answered by a fallback:  tidegate requeue --batch 'spring tide' --degraded"


def test_a_next_try_is_never_in_the_past(seed: Seed, reads: Reads) -> None:
    run = seed.run(seed.document("/a"), "parked")
    seed.units(run, "describe", [1], "parked", resume_at=datetime(2001, 1, 1, tzinfo=UTC))
    found = status(reads)
    with reads() as reader:
        (row,) = reader.rows("select now() - interval '1 minute' as lately")
    assert found.documents[0].resume_at is not None
    assert found.documents[0].resume_at > row.lately
    assert found.parked[0].resume_at is not None
    assert found.parked[0].resume_at > row.lately


def test_bars_and_notes_cover_what_is_not_listed_and_no_superseded_run(seed: Seed, reads: Reads) -> None:
    until = datetime(2031, 1, 1, tzinfo=UTC)
    for number in range(3):
        document = seed.document(f"/{number}", collection="sea", batch="one")
        old = seed.run(document, "failed")
        seed.units(old, "describe", [1], "failed")
        seed.units(old, "describe", [2], degraded=True)
        newest = seed.run(document, "done")
        seed.units(newest, "describe", [1, 2], degraded=True, finished_at=datetime.now(UTC))
    for number in range(2):
        parked = seed.run(seed.document(f"/p{number}", collection="sea"), "parked", resume_at=until)
        seed.units(parked, "format", [1], "parked", resume_at=until)
        seed.units(parked, "describe", [1, 2], "parked", resume_at=None)
    seed.units(seed.run(seed.document("/l", collection="land"), "running"), "describe", [1], "leased")

    found, at_sea = status(reads, limit=1), status(reads, limit=1, collection="sea")

    assert len(found.documents) == 1
    assert found.counts[RunState.DONE] == at_sea.counts[RunState.DONE] == 3
    assert (found.counts[RunState.FAILED], found.counts[RunState.RUNNING], at_sea.counts[RunState.RUNNING]) == (0, 1, 0)
    totals = [next(one for one in each.stages if one.stage is Stage.DESCRIBE) for each in (found, at_sea)]
    assert [(one.total, one.done, one.parked, one.failed, one.lately) for one in totals] == [
        (11, 6, 4, 0, 6),
        (10, 6, 4, 0, 6),
    ]
    assert [(one.stage, one.documents, one.resume_at) for one in found.parked] == [(Stage.DESCRIBE, 2, until)]
    assert found.notes[0] == "6 units were answered by a fallback:  tidegate requeue --batch one --degraded"
    assert at_sea.notes[0].endswith(":  tidegate requeue --batch one --collection sea --degraded")


def test_the_command_of_a_note_goes_no_further_than_what_was_counted(seed: Seed, reads: Reads) -> None:
    for collection, batch in (("sea", "one"), ("sea", "two"), ("land", "one")):
        run = seed.run(seed.document(f"/{collection}/{batch}", collection=collection, batch=batch), "done")
        seed.units(run, "describe", [1], degraded=True)

    notes = status(reads, collection="sea").notes, status(reads, collection="sea", batch="one").notes

    assert notes[0] == ["2 units were answered by a fallback:  tidegate requeue --collection sea --degraded"]
    assert notes[1] == ["1 unit was answered by a fallback:  tidegate requeue --batch one --collection sea --degraded"]


def test_many_superseded_runs_are_counted_as_few_are(seed: Seed, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        document = seed.document(f"/{number}")
        seed.units(seed.run(document, "cancelled"), "parse", [0], "failed")
        seed.units(seed.run(document), "parse", [0], "pending")
    few = status(reads)

    monkeypatch.setattr("pipeline.store.overview._FEW", 2)

    many = status(reads)
    assert (many.counts, many.stages) == (few.counts, few.stages)
    assert many.counts[RunState.QUEUED] == 3


def test_a_document_is_named_by_id_prefix_or_path(seed: Seed, sessions: Sessions) -> None:
    first = seed.document("/docs/a.pdf")
    seed.document("/docs/a.pdf", collection="other")
    with sessions.begin() as session:
        for tail in (1, 2):
            twin = UUID(f"abcd1234-0000-4000-8000-00000000000{tail}")
            session.execute(
                text(
                    "insert into document (id, collection_id, source_uri, blob_digest, media_type, size_bytes)"
                    " select :twin, collection_id, :uri, blob_digest, media_type, 1 from document where id = :like"
                ),
                {"twin": twin, "uri": f"/twin{tail}", "like": first},
            )
    with sessions() as session:
        assert find_document(session, str(first)).id == first
        assert find_document(session, str(first)[:6].upper()).id == first
        assert find_document(session, "/twin1").source_uri == "/twin1"
        with pytest.raises(UsageError, match="more than one"):
            find_document(session, "abcd1234")
        with pytest.raises(UsageError, match="2 collections"):
            find_document(session, "/docs/a.pdf")
        for wrong in ("abc", "ffff0000ffff", "/docs", "", "%", "zzzz"):
            with pytest.raises(UsageError, match="no document goes by"):
                find_document(session, wrong)


def test_an_archive_is_no_document_and_stands_for_what_came_out_of_it(seed: Seed, reads: Reads) -> None:
    for name in ("a.txt", "b.txt"):
        seed.run(seed.document(f"/z.zip!/{name}"))
    assert {one.path for one in status(reads, document="/z.zip").documents} == {"/z.zip!/a.txt", "/z.zip!/b.txt"}
    with pytest.raises(UsageError, match="is no document, and 2 came out of it"):
        attempts(reads, "/z.zip")


def test_attempts_come_in_order_of_start_with_their_page(seed: Seed, sessions: Sessions, reads: Reads) -> None:
    document = seed.document("/a")
    run = seed.run(document, "done")
    seed.units(run, "describe", [3], answered_by="b")
    with sessions() as session:
        unit_id = session.scalar(text("select id from unit"))
    seed.attempt(run, "describe", unit_id=unit_id, target="a", outcome="failed", kind="ttft_timeout", status=None)
    seed.attempt(
        run,
        "describe",
        unit_id=unit_id,
        target="b",
        position=1,
        outcome="ok",
        tokens_in=12,
        cost_usd=0.5,
        skipped=[{"target": "a", "reason": "cooling", "until": 1.0, "detail": "ttft_timeout"}],
    )
    seed.attempt(run, "format", target="c", outcome="ok")

    found = attempts(reads, str(document), stage=Stage.DESCRIBE).to_json()

    assert found["document"] == str(document)
    first, second = found["attempts"]
    assert (first["target"], first["outcome"], first["kind"], first["ordinal"], first["tokens_in"]) == (
        "a", "failed", "ttft_timeout", 3, 0,
    )  # fmt: skip
    assert second["skipped"] == [{"target": "a", "reason": "cooling"}]
    assert (second["tokens_in"], second["cost_usd"], second["position"], second["unit"]) == (12, 0.5, 1, unit_id)
    assert len(attempts(reads, str(document)).attempts) == 3


def test_show_reads_the_live_pages_and_who_made_them(seed: Seed, sessions: Sessions) -> None:
    document = seed.document("/a.pdf")
    live = seed.run(document, "done", live=True, page_count=2)
    seed.page(live, 1, "own text")
    seed.page(live, 2, "second")
    seed.units(live, "describe", [1], answered_by="ocr", degraded=True, output={"text": "seen"})
    seed.units(live, "format", [1], answered_by="llm", output={"markdown": "# Seen"})
    seed.page(seed.run(document, "running"), 1, "newer")

    shown = show(sessions, str(document))

    assert shown.live
    assert shown.to_json()["pages"][0] == {
        "number": 1,
        "markdown": "# Seen",
        "text_layer": "own text",
        "text_quality": "good",
        "description": "seen",
        "formatted": "# Seen",
        "described_by": "ocr",
        "formatted_by": "llm",
        "degraded": True,
        "failure": None,
    }
    assert shown.to_markdown() == "# Seen\n\nsecond\n"
    assert [page.number for page in show(sessions, str(document), page=2).pages] == [2]
    with pytest.raises(UsageError, match="no page 9"):
        show(sessions, str(document), page=9)


def test_one_page_is_shown_as_it_is_stored(seed: Seed, sessions: Sessions) -> None:
    document = seed.document("/a.pdf")
    live = seed.run(document, "done", live=True, page_count=2)
    seed.page(live, 1, "first")
    seed.page(live, 2, "own text")
    stored = "    a code block\n\n| a | b |\n|---|---|\n|  | 2 |\n\n"
    seed.units(live, "format", [2], output={"markdown": stored})

    assert show(sessions, str(document), page=2).to_markdown() == stored
    assert show(sessions, str(document), page=1).to_markdown() == "first\n"


def test_a_page_that_no_model_saw_has_no_version_of_theirs(seed: Seed, sessions: Sessions) -> None:
    document = seed.document("/a.pdf")
    live = seed.run(document, "done", live=True, page_count=1)
    seed.page(live, 1, "own text")
    seed.units(live, "describe", [1], state="failed")

    (page,) = show(sessions, str(document)).to_json()["pages"]

    assert (page["text_layer"], page["description"], page["formatted"]) == ("own text", None, None)


def test_show_takes_what_there_is_of_a_document_that_is_not_live(seed: Seed, sessions: Sessions) -> None:
    document = seed.document("/a.pdf")
    with pytest.raises(UsageError, match="tidegate why"):
        show(sessions, str(document))
    run = seed.run(document, "failed")
    seed.page(run, 1, "", state="failed", failure_kind="corrupt", failure_detail="broken")

    shown = show(sessions, str(document))

    assert not shown.live
    assert shown.to_markdown() == "<!-- page 1 failed: corrupt -->\n"


def test_the_command_answers_without_sqlalchemy(seed: Seed, database_url: str, redis_url: str, tmp_path: Path) -> None:
    seed.run(seed.document("/a.pdf"), "done", live=True)
    code = (
        "import sys; from worker.cli.main import main; main(['status', '--json']);"
        "print(*{'sqlalchemy', 'celery', 'litellm', 'rich', 'yaml'} & set(sys.modules), file=sys.stderr)"
    )
    environment = {
        "TIDEGATE_HOME": str(tmp_path),
        "TIDEGATE_DATABASE_URL": database_url,
        "TIDEGATE_REDIS_URL": redis_url,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    ran = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True)
    assert [one["path"] for one in json.loads(ran.stdout)["documents"]] == ["/a.pdf"]
    assert ran.stderr.split() == []
