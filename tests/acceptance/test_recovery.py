"""Outages and changes of mind from outside: parked and resumed by itself, requeued, embedded by another model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command import Tidegate
from tests.upstream.remote import UpstreamProcess

_CONFIG = """
failover: {{cooldown_s: 2, cooldown_max_s: 4, deadline_s: 20}}
dispatch: {{period_s: 1}}
presets:
  first:  {{model: openai/first, base_url: "{url}", fallbacks: [second]}}
  second: {{model: openai/second, base_url: "{url}"}}
kb:
  vlm_formatter: {{preset: first}}
  embedder: {{model: openai/{embedder}, dim: {dim}, base_url: "{url}"}}
"""


class Place:
    """A stack of its own beside one model server."""

    def __init__(self, folder: Path, models: UpstreamProcess) -> None:
        self.tidegate, self.models, self.folder = Tidegate(folder), models, folder

    def configure(self, embedder: str = "vectors", dim: int = 256) -> None:
        text = _CONFIG.format(url=self.models.base_url, embedder=embedder, dim=dim)
        (self.folder / "tidegate.yaml").write_text(text)

    def papers(self, *names: str) -> list[str]:
        for name in names:
            (self.folder / f"{name}.md").write_text(f"# {name}\n\nThe {name} gate opens at half tide.\n")
        return [f"{name}.md" for name in names]

    def states(self) -> list[str]:
        return sorted(one["state"] for one in self.tidegate.json("status")["documents"])

    def until(self, what: Callable[[], bool], timeout_s: float = 60) -> None:
        deadline, pause = time.monotonic() + timeout_s, threading.Event()
        while not what():
            assert time.monotonic() < deadline, self.tidegate.run("status").out
            pause.wait(0.5)

    def asked(self, *models: str) -> int:
        return sum(call.model in models for call in self.models.calls())


@pytest.fixture
def place(tmp_path: Path, upstream_process: Callable[..., UpstreamProcess]) -> Place:
    made = Place(tmp_path, upstream_process())
    made.configure()
    return made


@pytest.fixture
def running(place: Place) -> Iterator[Place]:
    with place.tidegate.up("--no-flower", "--threads", "4"):
        yield place


def test_an_outage_is_waited_out_and_the_embedding_model_changed_without_a_gap(running: Place) -> None:
    place, tidegate, models = running, running.tidegate, running.models
    for model in ("first", "second"):
        models.behave(model, 503)
    waited = tidegate.json("enqueue", *place.papers("north", "south", "east"), "--wait", code=5)
    assert {one["state"] for one in waited["documents"]} == {"parked"}
    # One of them may be the canary at this moment.
    seen = tidegate.json("status")["documents"]
    assert all(one["resume_at"] for one in seen if one["state"] == "parked"), seen
    assert sum(one["state"] == "parked" for one in seen) >= 2
    place.until(lambda: "is parked at format" in tidegate.run("why", "north.md").out)

    # Over several cooldowns: probes by a canary, and nobody is failed.
    place.until(lambda: place.asked("first", "second") >= 8)
    assert {*place.states()} <= {"parked", "running"}
    models.clear()
    place.until(lambda: place.states() == ["done"] * 3)
    assert {one["failed"] for one in (document["units"] for document in tidegate.json("status")["documents"])} == {0}

    # Another embedding model. What runs has the old configuration until it is restarted.
    before = {hit["document"] for hit in tidegate.json("search", "gate", "--mode", "vector")["hits"]}
    assert len(before) == 3
    paid = place.asked("first", "second")
    place.configure("others")
    note = tidegate.json("status")["notes"][-1]
    assert "requeue --collection default --from-stage embed" in note
    assert tidegate.json("doctor", code=None)["checks"][-1]["state"] == "warning"
    models.behave("others", 503)
    foreseen = tidegate.json("requeue", "--collection", "default", "--from-stage", "embed", "--dry-run")
    assert foreseen["counts"]["queued"] == 3
    made = tidegate.json("requeue", "--collection", "default", "--from-stage", "embed")
    assert made["counts"]["queued"] == 3
    place.until(lambda: place.asked("others") > 0)
    during = tidegate.json("search", "gate", "--mode", "vector")
    assert {hit["document"] for hit in during["hits"]} == before
    assert [space["model"] for space in during["spaces"]] == ["openai/vectors"]
    again = tidegate.json("requeue", "--document", "north.md", "--from-stage", "embed", code=1)
    # It runs while its canary is out, and is parked in between.
    assert "or cancel it first" in again["refused"][0]["reason"]

    models.clear()
    place.until(lambda: tidegate.json("status")["spaces"][0]["active"]["model"] == "openai/others")
    after = tidegate.json("search", "gate", "--mode", "vector")
    assert {hit["document"] for hit in after["hits"]} == before
    assert [space["model"] for space in after["spaces"]] == ["openai/others"]
    assert place.asked("first", "second") == paid, "no language model was asked"
    assert tidegate.json("doctor", code=None)["checks"][-1]["state"] == "ok"


def test_a_used_up_budget_parks_and_a_raised_one_goes_on(place: Place) -> None:
    tidegate, config = place.tidegate, place.folder / "tidegate.yaml"
    papers = place.papers(*"abcdef")
    priced = config.read_text().replace("fallbacks: [second]", "price: {input_per_mtok: 1000, output_per_mtok: 1000}")

    def started(budget_usd: float) -> Any:
        config.write_text(f"{priced}collections: {{default: {{budget_usd: {budget_usd}}}}}\n")
        return tidegate.up("--no-flower", "--threads", "1")

    with started(0.05):
        tidegate.json("enqueue", *papers, "--wait", code=5)
        place.until(lambda: set(place.states()) == {"done", "parked"})
        found = tidegate.json("status")
        (budget,) = found["budgets"]
        assert budget["spent_usd"] >= budget["budget_usd"] == 0.05
        assert any("default has spent $" in note for note in found["notes"])
        parked = [one for one in found["documents"] if one["state"] == "parked"]
        assert {one["resume_at"] for one in parked} == {None}
        assert "only free targets are asked" in tidegate.run("why", parked[0]["id"]).out
        assert {one["check"]: one["state"] for one in tidegate.json("doctor")["checks"]}["budgets"] == "warning"
        paid = place.asked("first")
        assert paid == len(papers) - len(parked)

    with started(1000):
        place.until(lambda: place.states() == ["done"] * len(papers))
    assert place.asked("first") == len(papers), "each page was paid for once"
