"""One stack with the built-in local models, and what its users do with it, in order."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from email.message import EmailMessage
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.acceptance import shapes
from tests.acceptance.command import EXAMPLES, Tidegate
from tests.acceptance.shapes import assert_shape
from tests.fixtures.locked import locked_pdf
from tests.unit.documents.archives import zipped

_DOCUMENTS = (
    "incident-2025-11-14.md",
    "night-watch.docx",
    "pump-house.html",
    "slipway-notice.png",
    "sluice-inspection-1987.pdf",
    "tide-gate-handbook.pdf",
)


@pytest.fixture(scope="module")
def tidegate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidegate]:
    folder = tmp_path_factory.mktemp("stack")
    for name in _DOCUMENTS:
        shutil.copy(EXAMPLES / name, folder)
    command = Tidegate(folder)
    with command.up() as started:
        assert {part["state"] for part in started["parts"]} == {"ready"}
        with closing(HTTPConnection(urlsplit(started["flower"]).netloc, timeout=10)) as flower:
            flower.request("GET", "/healthcheck")
            assert flower.getresponse().status == 200
        yield command


@pytest.fixture(scope="module")
def taken_in(tidegate: Tidegate) -> dict[str, Any]:
    """The examples, enqueued and waited for, with a path that leads nowhere among them."""
    return tidegate.json("enqueue", *_DOCUMENTS, "missing.pdf", "--batch", "first", "--wait", code=1)


def test_enqueue_waits_for_every_document_and_rejects_the_path_that_is_missing(taken_in: dict[str, Any]) -> None:
    assert_shape(taken_in, shapes.ENQUEUE)
    assert taken_in["counts"] == {"queued": len(_DOCUMENTS), "unchanged": 0, "rejected": 1}
    states = {Path(one["path"]).name: one["state"] for one in taken_in["documents"]}
    assert states == dict.fromkeys(_DOCUMENTS, "done") | {"missing.pdf": "rejected"}
    assert next(one["reason"] for one in taken_in["documents"] if one["state"] == "rejected") == "no such file"


@pytest.mark.usefixtures("taken_in")
def test_what_is_unchanged_is_not_done_again(tidegate: Tidegate) -> None:
    again = tidegate.run("enqueue", *_DOCUMENTS)
    assert "6 documents unchanged" in again.out


def test_where_no_path_was_taken_nothing_is_waited_for(tidegate: Tidegate) -> None:
    ran = tidegate.run("enqueue", "missing.pdf", "--wait", code=1)
    assert ran.out.splitlines() == ["missing.pdf: no such file, rejected.", "0 documents enqueued."]
    assert ran.err == ""


def test_ctrl_c_ends_the_waiting_and_says_that_the_documents_go_on(tidegate: Tidegate) -> None:
    scan = tidegate.folder / "awaited.pdf"
    scan.write_bytes((EXAMPLES / "sluice-inspection-1987.pdf").read_bytes() + b"%\n")
    (formatter,) = [one["pid"] for one in tidegate.json("status")["processes"] if one["queues"] == ["format"]]
    os.kill(formatter, signal.SIGSTOP)  # or the document may be done before anybody waits for it
    try:
        with tidegate.background("enqueue", scan, "--collection", "awaited", "--wait") as process:
            assert process.stderr is not None
            assert "1 document: " in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
            said = process.stderr.read()
    finally:
        os.kill(formatter, signal.SIGCONT)
    tidegate.run("delete", scan)
    assert said == "No longer waited for; what is enqueued goes on. See:  tidegate status\n"


@pytest.mark.usefixtures("taken_in")
def test_status_shows_documents_counts_processes_and_queues(tidegate: Tidegate) -> None:
    found = tidegate.json("status", "--batch", "first")
    assert_shape(found, shapes.STATUS)
    assert found["counts"]["done"] == len(_DOCUMENTS)
    assert all(one["live"] and not one["degraded"] and one["attempts"] for one in found["documents"])
    roles = [one["role"] for one in found["processes"]]
    assert sorted(set(roles)) == ["beat", "flower", "postgres", "redis", "supervisor", "worker"]
    assert found["workers"] == roles.count("worker") == 5
    assert all(queue["consumers"] == 1 for queue in found["queues"].values())
    assert "6 done" in tidegate.run("status", "--batch", "first").out


@pytest.mark.usefixtures("taken_in")
def test_a_scanned_page_was_read_by_the_vision_role_and_is_found(tidegate: Tidegate) -> None:
    scan = "sluice-inspection-1987.pdf"
    attempts = tidegate.json("attempts", scan, "--stage", "describe")
    assert_shape(attempts, shapes.ATTEMPTS)
    assert [one["outcome"] for one in attempts["attempts"]] == ["ok"]
    shown = tidegate.json("show", scan)
    assert_shape(shown, shapes.SHOW)
    assert shown["pages"][0]["text_layer"] == ""
    assert shown["pages"][0]["described_by"] == attempts["attempts"][0]["target"]
    assert "storm" in tidegate.run("show", scan, "--page", "1").out
    found = tidegate.json("search", "what did the inspection after the storm of 1987 find?")
    assert_shape(found, shapes.SEARCH)
    assert Path(found["hits"][0]["path"]).name == scan


@pytest.mark.usefixtures("taken_in")
def test_a_search_that_finds_nothing_is_no_failure(tidegate: Tidegate) -> None:
    assert tidegate.json("search", "xylophone zzyzx", "--mode", "text")["hits"] == []


@pytest.mark.usefixtures("taken_in")
def test_a_question_is_answered_with_its_sources(tidegate: Tidegate) -> None:
    answered = tidegate.json("ask", "When is the slipway closed?")
    assert answered["answer"]
    assert answered["citations"]


@pytest.mark.usefixtures("taken_in")
def test_targets_are_listed_switched_and_reset(tidegate: Tidegate) -> None:
    listed = tidegate.json("targets")
    assert_shape(listed, shapes.TARGETS)
    assert {role for one in listed["targets"] for role in one["roles"]} >= {"vlm", "vlm_formatter", "embedder"}
    assert all(one["state"] == "closed" for one in listed["targets"])
    assert all(one["failed_1h"] == 0 for one in listed["targets"])
    tidegate.run("targets", "disable", "local-extract")
    assert _state_of(tidegate, "local-extract") == "disabled"
    assert "disabled" in tidegate.run("targets").out
    tidegate.run("targets", "enable", "local-extract")
    assert tidegate.json("targets", "reset", "local-extract")["reset"] is True
    assert _state_of(tidegate, "local-extract") == "closed"
    wrong = tidegate.run("targets", "reset", "local-extra", code=2)
    assert "did you mean 'local-extract'?" in wrong.err


@pytest.mark.usefixtures("taken_in")
def test_a_target_is_tried_with_one_real_call(tidegate: Tidegate) -> None:
    checks = tidegate.json("targets", "check", "local-cues")["checks"]
    assert [one["ok"] for one in checks] == [True]


@pytest.mark.usefixtures("taken_in")
def test_requeue_redoes_from_a_stage_and_reuses_what_is_before_it(tidegate: Tidegate) -> None:
    asked = ("requeue", "--document", "slipway-notice.png", "--from-stage", "format")
    foreseen = tidegate.json(*asked, "--dry-run")
    assert foreseen["runs"][0]["run"] is None
    requeued = tidegate.json(*asked)
    assert_shape(requeued, shapes.REQUEUE)
    run = requeued["runs"][0]
    assert run["from_stage"] == "format"
    assert run["reused_units"] > 0
    tidegate.json("enqueue", "slipway-notice.png", "--wait")
    described = tidegate.json("attempts", "slipway-notice.png", "--stage", "describe")["attempts"]
    formatted = tidegate.json("attempts", "slipway-notice.png", "--stage", "format")["attempts"]
    assert (len(described), len(formatted)) == (1, 2)


@pytest.mark.usefixtures("taken_in")
def test_why_says_where_a_document_is(tidegate: Tidegate) -> None:
    assert "is done" in tidegate.run("why", "pump-house.html").out
    assert tidegate.json("why", "pump-house.html")["state"] == "done"


@pytest.mark.usefixtures("taken_in")
def test_a_file_that_is_no_document_fails_with_its_reason_and_the_others_go_on(tidegate: Tidegate) -> None:
    (tidegate.folder / "broken.pdf").write_bytes(b"%PDF-1.7\nthis is not what follows")
    (tidegate.folder / "good.md").write_text("# Good\n\nA mooring ring is on the north wall.\n")
    ended = tidegate.json("enqueue", "broken.pdf", "good.md", "--wait", code=1)
    states = {Path(one["path"]).name: one for one in ended["documents"]}
    assert states["good.md"]["state"] == "done"
    assert states["broken.pdf"]["state"] == "failed"
    assert states["broken.pdf"]["failure"]["kind"] == "corrupt"
    assert "corrupt" in tidegate.run("why", "broken.pdf").out


def test_what_is_in_an_archive_and_in_its_mails_becomes_documents_and_a_password_file_opens_them(
    tidegate: Tidegate,
) -> None:
    letter = EmailMessage()
    letter["From"], letter["Subject"] = "clerk@saltmere.example", "The ring"
    letter.set_content("See the note.")
    letter.add_attachment("The wombat gauge reads seven.", filename="note.txt")
    entries = (
        ("letters/ring.eml", bytes(letter)),
        ("locked.pdf", locked_pdf("The pangolin valve is loose.", "open:sesame")),
        ("../out.txt", b"out"),
    )
    (tidegate.folder / "letters.zip").write_bytes(zipped(*entries))
    passwords = tidegate.folder / "passwords.txt"
    passwords.write_text("locked.p?f:open:sesame\n")
    passwords.chmod(0o600)

    refused = tidegate.run("enqueue", "letters.zip", code=1)
    assert "letters.zip: unsupported: a ZIP archive; add --expand to take what is in it, rejected." in refused.out
    ended = tidegate.json(
        "enqueue", "letters.zip", "--expand", "--password-file", passwords, "--wait", "--debug", code=1
    )

    archive = f"{tidegate.folder / 'letters.zip'}!/"
    assert {one["path"].removeprefix(archive): one["state"] for one in ended["documents"]} == {
        "letters/ring.eml": "done",
        "letters/ring.eml!/note.txt": "done",
        "locked.pdf": "done",
        "../out.txt": "rejected",
    }
    for words, name in (("wombat", "letters/ring.eml!/note.txt"), ("pangolin", "locked.pdf")):
        (hit,) = tidegate.json("search", words, "--mode", "text")["hits"]
        assert hit["path"] == archive + name
    assert "is done" in tidegate.run("why", "letters.zip!/locked.pdf").out
    assert "wombat" in tidegate.run("show", "letters.zip!/letters/ring.eml!/note.txt").out
    again = tidegate.run("enqueue", "letters.zip", "--expand", "--dry-run", code=1)
    assert "3 documents unchanged" in again.out
    logs = "".join(path.read_text(errors="replace") for path in (tidegate.home / "logs").glob("*.log"))
    assert "sesame" not in logs + json.dumps(ended)


def test_doctor_finds_nothing_wrong(tidegate: Tidegate) -> None:
    found = tidegate.json("doctor")
    assert found["ok"] is True
    assert {one["check"]: one["state"] for one in found["checks"]} == dict.fromkeys(
        ("config", "services", "postgres", "redis", "blobs", "beat", "queues", "targets", "spaces", "budgets"), "ok"
    )


def test_the_schema_is_at_its_head(tidegate: Tidegate) -> None:
    assert tidegate.json("db", "check")["drift"] is None


def test_cancel_and_delete(tidegate: Tidegate) -> None:
    (tidegate.folder / "short-lived.md").write_text("# Short-lived\n\nThe zebra crossing of the quay.\n")
    tidegate.json("enqueue", "short-lived.md", "--wait")
    assert tidegate.json("cancel", "--document", "short-lived.md")["counts"]["ended"] == 1
    assert tidegate.json("search", "zebra", "--mode", "text")["hits"]
    tidegate.run("delete", "short-lived.md")
    assert tidegate.json("search", "zebra", "--mode", "text")["hits"] == []
    gone = tidegate.run("why", "short-lived.md", code=2)
    assert "short-lived.md" in gone.err


def test_a_second_stack_in_the_same_home_is_refused(tidegate: Tidegate) -> None:
    refused = tidegate.run("up", "--detach", code=2)
    assert "already runs" in refused.err
    assert "tidegate down" in refused.err


def test_no_password_is_in_the_logs(tidegate: Tidegate) -> None:
    secrets = [(tidegate.home / name).read_text().strip() for name in ("postgres.password", "flower.password")]
    logs = "".join(path.read_text(errors="replace") for path in (tidegate.home / "logs").glob("*.log"))
    assert not any(secret in logs for secret in secrets)


def test_what_a_program_reads_is_one_json_document_without_colours(tidegate: Tidegate) -> None:
    ran = tidegate.run("status", "--json")
    assert "\x1b" not in ran.out
    json.loads(ran.out)
    assert "\x1b" not in tidegate.run("status").out


def _state_of(tidegate: Tidegate, preset: str) -> str:
    return next(str(one["state"]) for one in tidegate.json("targets")["targets"] if one["preset"] == preset)
