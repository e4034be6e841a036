"""One chunk that the embedding model does not take: the others are stored and found, and the model's log is short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.command import Tidegate
from tests.upstream.remote import UpstreamProcess

_CONFIG = """
ingest: {{on_page_failure: keep}}
chunk: {{max_tokens: 32, overlap_tokens: 0}}
retrieve: {{when: never}}
kb:
  embedder: {{model: openai/vectors, dim: 256, base_url: "{url}"}}
"""


@pytest.fixture
def models(upstream_process: Callable[..., UpstreamProcess]) -> UpstreamProcess:
    return upstream_process()


@pytest.fixture
def tidegate(tmp_path: Path, models: UpstreamProcess) -> Iterator[Tidegate]:
    made = Tidegate(tmp_path)
    (tmp_path / "tidegate.yaml").write_text(_CONFIG.format(url=models.base_url))
    for name in ("refused", "spoiled", "nothing"):
        sections = (f"# {name} {n}\n\nSluice {name}{n} is opened at half tide.\n" for n in range(8))
        (tmp_path / f"{name}.md").write_text("\n".join(sections))
    with made.up("--no-flower", "--threads", "2"):
        yield made


def test_a_chunk_that_the_model_does_not_take_fails_alone(tidegate: Tidegate, models: UpstreamProcess) -> None:
    models.behave("vectors", {"status": 400, "message": "bad text"}, prompt_contains="refused3")
    models.behave("vectors", {"nan_for": "spoiled3"}, prompt_contains="spoiled3")
    for name, word, kind, calls in (
        ("refused", "bad text", "invalid_request", 7),
        ("spoiled", "not finite", "invalid_output", 2),
    ):
        before = len(models.calls())
        (document,) = tidegate.json("enqueue", f"{name}.md", "--wait")["documents"]
        assert document["state"] == "done"
        assert len(models.calls()) - before == calls
        (shown,) = tidegate.json("status", "--document", f"{name}.md")["documents"]
        assert shown["incomplete"]
        attempts = tidegate.json("attempts", f"{name}.md", "--stage", "embed")["attempts"]
        assert {one["kind"] for one in attempts} == {None, kind}
        explained = tidegate.json("why", f"{name}.md")
        assert word in explained["failures"][0]["message"]
        assert explained["failures"][0]["ordinal"] == 4
        assert any(line.startswith(f"embed 4 failed with {kind}: ") for line in explained["lines"])
        found = tidegate.json("search", "sluice opened at half tide", "--mode", "vector", "-k", "30")["hits"]
        texts = " ".join(hit["text"] for hit in found)
        assert [n for n in range(8) if f"{name}{n}" not in texts] == [3]

    models.behave("vectors", {"status": 400, "message": "nothing is taken here"})
    before = len(models.calls())
    tidegate.json("enqueue", "nothing.md", "--wait")
    assert len(models.calls()) - before == 7
    assert "nothing is taken here" in tidegate.run("why", "nothing.md").out
