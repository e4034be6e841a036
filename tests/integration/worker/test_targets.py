"""What people do to targets with the command reaches running workers at their next call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.worker.conftest import Fleet
from tests.upstream import FakeUpstream

Upstreams = Callable[..., FakeUpstream]


def models(primary: FakeUpstream, spare: FakeUpstream, **failover: Any) -> dict[str, Any]:
    """The formatter on two fake hosts; every other role stays local."""
    return {
        "failover": {"ttft_timeout_s": 10, **failover},
        "presets": {
            "text": {"model": "openai/text", "base_url": primary.base_url, "fallbacks": ["spare"]},
            "spare": {"model": "openai/spare", "base_url": spare.base_url},
        },
        "kb": {"vlm_formatter": {"preset": "text"}},
        "dispatch": {"period_s": 0.5},
    }


def targets(*words: str) -> dict[str, Any]:
    """``tidegate targets …`` in a process of its own; what it says."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "worker", "targets", *words, "--json"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def shown(preset: str) -> dict[str, Any]:
    """A target as the list has it."""
    (found,) = (one for one in targets()["targets"] if one["preset"] == preset)
    return dict(found)


class Notes:
    """Documents of one formatter call each, one after the other."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet = fleet
        self._folder = folder
        self._count = 0

    def add(self) -> tuple[list[str], list[str]]:
        """One more document, to its end: the targets that were called for it, and why the others were not."""
        self._count += 1
        path = self._folder / f"note-{self._count}.md"
        path.write_text(f"# Note {self._count}\n\nThe tide gate was greased on day {self._count}.\n", encoding="utf-8")
        self._fleet.enqueue(path)
        assert self._fleet.wait_ended() == ["done"] * self._count
        rows = self._fleet.query(
            "select target, skipped from attempt where stage = 'format'"
            " and run_id = (select max(id) from run) order by id"
        )
        return [row.target.partition("@")[0] for row in rows], [s["reason"] for row in rows for s in row.skipped]


def test_a_switch_and_a_reset_by_the_command_reach_a_running_worker_at_its_next_call(
    fleet: Fleet, tmp_path: Path, upstream: Upstreams
) -> None:
    primary, spare = upstream(), upstream()
    fleet.configure(models(primary, spare, cooldown_s=500))
    fleet.start("worker")
    fleet.start("beat")
    notes = Notes(fleet, tmp_path)
    assert notes.add() == (["text"], [])

    assert targets("disable", "text")["disabled"] is True
    assert notes.add() == (["spare"], ["disabled"])
    assert targets("enable", "text")["disabled"] is False
    assert notes.add() == (["text"], [])

    primary.behave("text", "overloaded", calls=1)
    assert notes.add() == (["text", "spare"], [])
    assert notes.add() == (["spare"], ["cooling"])
    found = shown("text")
    assert (found["state"], found["kind"], found["failures"], found["failed_1h"]) == ("open", "overloaded", 1, 1)

    # While a person keeps it off, what it failed with is not the reason.
    targets("disable", "text")
    found = shown("text")
    assert (found["state"], found["kind"], found["until"]) == ("disabled", None, None)
    targets("enable", "text")
    assert shown("text")["kind"] == "overloaded"

    # A check is one real call to the target itself, cooling or not, and changes nothing.
    before = len(primary.calls("text"))
    assert [one["ok"] for one in targets("check", "text")["checks"]] == [True]
    assert len(primary.calls("text")) == before + 1
    assert notes.add() == (["spare"], ["cooling"])

    assert targets("reset", "text")["reset"] is True
    assert notes.add() == (["text"], [])


@pytest.mark.behaviour(29)
def test_a_fallback_that_answered_badly_is_not_paid_again_when_a_parked_document_goes_on(
    fleet: Fleet, tmp_path: Path, upstream: Upstreams
) -> None:
    primary, spare = upstream(), upstream()
    primary.behave("text", "overloaded")
    spare.behave("spare", "empty")
    fleet.configure(models(primary, spare, cooldown_s=2, cooldown_max_s=2))
    fleet.start("worker")
    fleet.start("beat")
    note = tmp_path / "note.md"
    note.write_text("# A note\n\nThe tide gate was greased.\n", encoding="utf-8")
    fleet.enqueue(note)
    fleet.wait(lambda: fleet.query("select 1 from run where state = 'parked'"))
    primary.wait_for_calls(3, "text", timeout_s=60)
    primary.clear()

    assert fleet.wait_ended() == ["done"]
    assert len(spare.calls("spare")) == 1
    reasons = {skip["reason"] for row in fleet.query("select skipped from attempt") for skip in row.skipped}
    assert "rejected" in reasons
