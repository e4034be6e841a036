"""``why``: a sentence that tells, and the command that helps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from pipeline.domain.unit import Stage
from pipeline.failover.registry import BreakerState, TargetStatus
from pipeline.store.reader import Reads
from pipeline.store.session import Sessions
from pipeline.store.workers import beat
from pipeline.why import ChainLink, why
from tests.integration.seed import Seed


@pytest.fixture
def seed(sessions: Sessions) -> Seed:
    with sessions.begin() as session:
        beat(session, "beat-1@h", role="beat", host="h", pid=1)
    return Seed(sessions)


def _link(name: str, state: BreakerState, **values: object) -> ChainLink:
    return ChainLink(name, "vlm", TargetStatus(f"{name}@host", state, **values))  # type: ignore[arg-type]


def test_a_parked_document_names_who_cools_until_when(seed: Seed, reads: Reads) -> None:
    until = datetime.now(UTC) + timedelta(seconds=40)
    document = seed.document("/handbook/ch4.pdf")
    run = seed.run(document, "parked", resume_at=until, page_count=3)
    for number in (1, 2, 3):
        seed.page(run, number, "")
    seed.units(run, "parse", [0])
    seed.units(run, "describe", [1, 2])
    seed.units(run, "describe", [3], "parked")
    chain = [
        _link("vision", BreakerState.OPEN, until=until.timestamp(), kind="ttft_timeout", failures=3),
        _link("vision-cloud", BreakerState.DISABLED),
    ]

    found = why(reads, str(document), chains={Stage.DESCRIBE: chain})

    clock = until.astimezone().strftime("%H:%M:%S")
    assert found.lines == [
        "/handbook/ch4.pdf is parked at describe, 2 of 3 pages done.",
        f"All targets of vlm are away: vision until {clock} (ttft_timeout, 3rd time), vision-cloud (disabled).",
        f"It goes on by itself; the next try is at {clock}.",
    ]
    assert found.commands[0] == "tidegate targets reset vision"
    assert "tidegate targets enable vision-cloud" in found.commands


def test_a_target_that_is_well_and_turned_a_unit_down_is_told_of(seed: Seed, reads: Reads) -> None:
    until = datetime.now(UTC) + timedelta(seconds=40)
    run = seed.run(seed.document("/a"), "parked", resume_at=until)
    seed.units(run, "describe", [1], rejected_by=["vision@host"])
    seed.units(run, "describe", [2, 3], "parked", rejected_by=["vision@host"])
    chain = [
        _link("vision", BreakerState.CLOSED),
        _link("cloud", BreakerState.OPEN, until=until.timestamp(), kind="connect"),
    ]

    lines = why(reads, "/a", chains={Stage.DESCRIBE: chain}).lines

    assert lines[1] == "vision turned down 2 units of it and is not asked for those again."
    assert lines[2].startswith("1 of 2 targets of vlm is away: cloud until ")


def test_a_queued_document_says_how_many_are_ahead_and_who_is_missing(seed: Seed, reads: Reads) -> None:
    for number in range(3):
        seed.run(seed.document(f"/{number}"))
    urgent = seed.document("/urgent")
    seed.run(urgent, priority=9)

    last = why(reads, "/2")

    assert last.lines[0] == "/2 is queued; 3 documents of its collection are ahead of it."
    assert why(reads, "/0").lines[0] == "/0 is queued; 1 document of its collection is ahead of it."
    assert "No worker takes from parse." in last.lines
    assert "tidegate worker --queues parse" in last.commands
    assert why(reads, "/urgent").lines[0] == "/urgent is queued; it is the next."


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("password_required", "tidegate enqueue '/my file.pdf' --password P"),
        ("chain_exhausted", "tidegate requeue --document"),
        ("poison", "tidegate requeue --document"),
    ],
)
def test_a_failure_names_the_command_that_helps(seed: Seed, reads: Reads, kind: str, command: str) -> None:
    run = seed.run(seed.document("/my file.pdf"), "failed", failure_kind=kind, failure_detail="because")
    seed.units(run, "parse", [0], "failed")

    found = why(reads, "/my file.pdf")

    assert found.lines[0] == f"/my file.pdf failed at parse. {kind}: because"
    assert found.commands[0].startswith(command)


def test_what_is_in_an_archive_is_enqueued_with_it_and_a_password_is_given_either_way(seed: Seed, reads: Reads) -> None:
    run = seed.run(seed.document("/a.zip!/b.pdf"), "failed", failure_kind="password_required", failure_detail="it is")
    seed.units(run, "parse", [0], "failed")

    assert why(reads, "/a.zip!/b.pdf").commands == [
        "tidegate enqueue /a.zip --expand --password P",
        "tidegate enqueue /a.zip --expand --password-file FILE",
    ]


def test_a_missing_blob_is_stored_by_enqueue_and_the_run_made_by_requeue(seed: Seed, reads: Reads) -> None:
    run = seed.run(seed.document("/a.md"), "failed", failure_kind="blob_missing", failure_detail="it is not there")
    seed.units(run, "parse", [0], "failed")
    first, second = why(reads, "/a.md").commands
    assert first == "tidegate enqueue /a.md"
    assert second.startswith("tidegate requeue --document ")


def test_the_last_failed_calls_are_quoted_once_a_target_and_kind(seed: Seed, reads: Reads) -> None:
    run = seed.run(seed.document("/a"), "running")
    seed.units(run, "describe", [1], "leased")
    for _ in range(3):
        seed.attempt(run, "describe", target="a@h", preset="vision", outcome="failed", kind="overloaded", message="503")

    found = why(reads, "/a")

    assert len(found.failures) == 1
    assert sum("vision failed at" in line and "overloaded: 503" in line for line in found.lines) == 1


@pytest.mark.parametrize(
    ("pages", "lines"),
    [
        (1, ["/a is running at describe, 0 of 1 page done.", "A worker holds 1 unit of it."]),
        (2, ["/a is running at describe, 0 of 2 pages done.", "A worker holds 2 units of it."]),
    ],
)
def test_what_a_worker_holds_is_counted_in_good_english(seed: Seed, reads: Reads, pages: int, lines: list[str]) -> None:
    run = seed.run(seed.document("/a"), "running", page_count=pages)
    for number in range(1, pages + 1):
        seed.page(run, number, "")
    seed.units(run, "describe", range(1, pages + 1), "leased")

    assert why(reads, "/a").lines == lines


def test_a_call_whose_worker_died_says_so(seed: Seed, reads: Reads) -> None:
    run = seed.run(seed.document("/a"), "running")
    seed.units(run, "describe", [1])
    seed.attempt(run, "describe", target="a@h", preset="vision", outcome="lost")

    assert any(line.startswith("The worker that called vision at ") for line in why(reads, "/a").lines)


def test_work_that_was_lost_without_a_call_says_so(seed: Seed, reads: Reads) -> None:
    run = seed.run(seed.document("/a"), "running")
    seed.units(run, "parse", [0])
    seed.attempt(run, "parse", outcome="lost", message="killed: SIGKILL from outside")

    assert any(
        line.startswith("Work on parse that began at ") and line.endswith(" was lost: killed: SIGKILL from outside.")
        for line in why(reads, "/a").lines
    )


def test_what_redoes_a_fallbacks_answers_waits_for_the_first_target_alone(seed: Seed, reads: Reads) -> None:
    run = seed.run(seed.document("/a"), "parked", primary_only=True)
    seed.units(run, "describe", [1], "parked")
    chain = [_link("vision", BreakerState.OPEN, kind="connect"), _link("spare", BreakerState.OPEN)]

    found = why(reads, "/a", chains={Stage.DESCRIBE: chain})

    assert "The first target of vlm is away: vision (connect)." in found.lines
    assert "It was requeued with --degraded, so no fallback may answer." in found.lines


def test_the_next_try_is_not_before_the_only_target_is_back(seed: Seed, reads: Reads) -> None:
    now = datetime.now(UTC)
    until = now + timedelta(seconds=40)
    run = seed.run(seed.document("/a"), "parked", resume_at=now - timedelta(seconds=3))
    seed.units(run, "describe", [1], "parked")
    found = why(reads, "/a", chains={Stage.DESCRIBE: [_link("vision", BreakerState.OPEN, until=until.timestamp())]})
    assert f"It goes on by itself; the next try is at {until.astimezone():%H:%M:%S}." in found.lines


@pytest.mark.parametrize(("probing", "said"), [(True, "being tried again"), (False, "to be tried again")])
def test_a_half_open_target_is_being_tried_only_by_somebody(
    seed: Seed, reads: Reads, *, probing: bool, said: str
) -> None:
    run = seed.run(seed.document("/a"), "parked")
    seed.units(run, "describe", [1], "parked")
    link = _link("vision", BreakerState.HALF_OPEN, probing=probing)
    assert f"is away: vision, {said}." in " ".join(why(reads, "/a", chains={Stage.DESCRIBE: [link]}).lines)


@pytest.mark.parametrize("state", ["queued", "running", "parked", "done", "empty", "failed", "cancelled"])
def test_every_state_is_explained(seed: Seed, reads: Reads, state: str) -> None:
    seed.run(seed.document("/a"), state)
    found = why(reads, "/a").to_json()
    assert found["lines"][0].startswith("/a ")
    assert found["state"] == state


def test_what_was_cancelled_goes_on_by_requeue_where_enqueue_would_find_it_unchanged(seed: Seed, reads: Reads) -> None:
    document = seed.document("/a")
    seed.run(document, "done", live=True)
    seed.run(document, "cancelled")
    found = why(reads, "/a")
    assert "An earlier version of it is still found by search." in found.lines
    assert found.commands == [f"tidegate requeue --document {str(document)[:8]}"]


def test_without_a_beat_what_is_on_its_way_says_so_and_what_has_ended_does_not(
    seed: Seed, sessions: Sessions, reads: Reads
) -> None:
    parked, done = seed.document("/parked"), seed.document("/done")
    seed.units(seed.run(parked, "parked"), "describe", [1], "parked")
    seed.run(done, "done", live=True)
    with sessions.begin() as session:
        session.execute(text("update worker set heartbeat_at = now() - interval '90 s'"))

    found = why(reads, str(parked))
    assert "The beat beat-1@h has been silent for 90 s: it hangs, or was killed." in found.lines
    assert found.commands[0] == "tidegate beat"
    assert not any("beat" in line for line in why(reads, str(done)).lines)

    with sessions.begin() as session:
        session.execute(text("delete from worker"))
    assert "No beat runs: nothing that is lost or parked goes on." in why(reads, str(parked)).lines
