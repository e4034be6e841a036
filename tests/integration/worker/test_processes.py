"""Documents through real processes: worker, beat, broker, Postgres."""

from __future__ import annotations

import base64
import json
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.worker.conftest import Fleet
from tests.upstream import FakeUpstream
from worker.stack import choose_port


def _text_models(primary: FakeUpstream, spare: FakeUpstream | None = None, **failover: Any) -> dict[str, Any]:
    """The formatter on fake hosts; every other role stays local."""
    presets: dict[str, Any] = {"text": {"model": "openai/text", "base_url": primary.base_url}}
    if spare is not None:
        presets["text"]["fallbacks"] = ["spare"]
        presets["spare"] = {"model": "openai/spare", "base_url": spare.base_url}
    return {
        "failover": {"ttft_timeout_s": 2, "cooldown_s": 1, "cooldown_max_s": 1, **failover},
        "presets": presets,
        "kb": {"vlm_formatter": {"preset": "text"}},
        "unit": {"lease_s": 4},
        "dispatch": {"period_s": 0.5},
    }


def test_a_document_goes_through_every_stage_and_is_published(fleet: Fleet, handbook: Path) -> None:
    fleet.start("worker")
    fleet.start("beat")
    fleet.enqueue(handbook)

    assert fleet.wait_ended() == ["done"]

    stages = {row.stage: row.state for row in fleet.query("select stage, state from unit")}
    assert stages == dict.fromkeys(("parse", "format", "chunk", "retrieve", "embed"), "done")
    assert fleet.query("select 1 from document where live_run_id is not null")
    assert fleet.query("select 1 from embedding")
    assert {row.outcome for row in fleet.query("select outcome from attempt")} == {"ok"}


def test_one_worker_a_stage_carries_a_document_together(fleet: Fleet, handbook: Path) -> None:
    for queue in ("parse", "describe", "format", "retrieve", "embed"):
        fleet.start("worker", queues=[queue], threads=4)
    fleet.enqueue(handbook)
    # Whoever starts last may have missed the dispatch; the beat has not.
    fleet.start("beat")

    assert fleet.wait_ended() == ["done"]

    fleet.wait(lambda: len(fleet.query("select 1 from worker")) == 6)
    workers = {tuple(row.queues): row for row in fleet.query("select * from worker where role = 'worker'")}
    assert workers[("embed",)].id == f"embed-{workers[('embed',)].pid}@{workers[('embed',)].host}"
    assert workers[("embed",)].slots == 4
    assert workers[("parse",)].cpu_slots >= 1


def test_processes_that_end_in_good_order_leave_no_row(fleet: Fleet) -> None:
    processes = [fleet.start("worker"), fleet.start("beat")]
    fleet.wait(lambda: len(fleet.query("select 1 from worker")) == 2)
    fleet.wait(lambda: "worker.started" in fleet.said() and "beat.started" in fleet.said())

    for process in processes:
        process.send_signal(signal.SIGTERM)

    assert [process.wait(30) for process in processes] == [0, 0]
    assert fleet.query("select id from worker") == []


def test_a_busy_primary_is_answered_for_by_its_fallback(
    fleet: Fleet, handbook: Path, upstream: Callable[..., FakeUpstream]
) -> None:
    primary, spare = upstream(), upstream()
    primary.behave("text", 503)
    fleet.configure(_text_models(primary, spare))
    fleet.start("worker")
    fleet.start("beat")
    fleet.enqueue(handbook)

    assert fleet.wait_ended() == ["done"]

    [unit] = fleet.query("select degraded, answered_by from unit where stage = 'format'")
    assert unit.degraded
    assert "spare" in unit.answered_by
    assert "target.failed_over" in fleet.said()
    assert "target.cooled" in fleet.said()


def test_a_document_whose_chain_is_exhausted_is_parked_and_goes_on_by_itself(
    fleet: Fleet, handbook: Path, upstream: Callable[..., FakeUpstream]
) -> None:
    primary = upstream()
    primary.behave("text", 503)
    fleet.configure(_text_models(primary))
    fleet.start("worker")
    fleet.start("beat")
    fleet.enqueue(handbook)
    fleet.wait(lambda: [row.state for row in fleet.query("select state from run")] == ["parked"])

    primary.clear()

    assert fleet.wait_ended() == ["done"]
    assert "SliceParked" not in fleet.said()
    assert "run.parked" in fleet.said()
    assert "run.resumed" in fleet.said()
    assert fleet.query("select 1 from unit where stage = 'parse' and lost_leases > 0") == []


def test_a_worker_that_is_told_to_end_gives_its_units_back(
    fleet: Fleet, handbook: Path, upstream: Callable[..., FakeUpstream]
) -> None:
    primary = upstream()
    primary.behave("text", "hang", calls=1)
    fleet.configure(_text_models(primary, ttft_timeout_s=60))
    first = fleet.start("worker")
    fleet.start("beat")
    fleet.enqueue(handbook)
    primary.wait_for_calls(1, "text", timeout_s=90)

    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
    [unit] = fleet.query("select state, lost_leases from unit where stage = 'format'")
    assert (unit.state, unit.lost_leases) == ("pending", 0)

    fleet.start("worker")
    assert fleet.wait_ended() == ["done"]
    outcomes = [row.outcome for row in fleet.query("select outcome from attempt where stage = 'format' order by id")]
    assert outcomes == ["cancelled", "ok"]


def test_a_killed_workers_units_go_on_elsewhere_when_their_lease_is_over(
    fleet: Fleet, handbook: Path, upstream: Callable[..., FakeUpstream]
) -> None:
    primary = upstream()
    primary.behave("text", "hang", calls=1)
    fleet.configure(_text_models(primary, ttft_timeout_s=60))
    victim = fleet.start("worker")
    fleet.start("beat")
    fleet.enqueue(handbook)
    primary.wait_for_calls(1, "text", timeout_s=90)

    victim.kill()
    victim.wait()
    fleet.start("worker")

    assert fleet.wait_ended() == ["done"]
    [unit] = fleet.query("select lost_leases from unit where stage = 'format'")
    assert unit.lost_leases == 1
    # What was done before is not done again.
    assert len(primary.calls("text")) == 2


def test_a_locked_file_fails_with_its_reason_and_shows_in_flower_as_failed(fleet: Fleet, tmp_path: Path) -> None:
    locked = Path(__file__).parents[4] / "shared" / "corpus" / "password.pdf"
    if not locked.exists():
        pytest.skip("the corpus is not here")
    port = choose_port(0)
    fleet.start("flower", port=port, env={"TIDEGATE_FLOWER_BASIC_AUTH": "eve:secret-word"})
    fleet.wait(lambda: "flower.started" in fleet.said())
    fleet.start("worker")
    fleet.start("beat")
    fleet.enqueue(locked)

    assert fleet.wait_ended() == ["failed"]

    def tasks() -> dict[str, Any]:
        login = base64.b64encode(b"eve:secret-word").decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/tasks", headers={"Authorization": f"Basic {login}"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - our own
            found: dict[str, Any] = json.load(answer)
            return found

    fleet.wait(lambda: any(task["state"] == "FAILURE" for task in tasks().values()))
    [task] = [task for task in tasks().values() if task["name"] == "tidegate.parse"]
    assert task["uuid"].startswith("parse:")
    assert task["args"].startswith("document ")
    assert "SliceFailed" in task["exception"]
    assert "password_required" in task["exception"]
    assert "secret-word" not in fleet.said()
