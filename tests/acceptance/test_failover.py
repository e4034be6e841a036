"""A vision model whose port is dead, and a good one behind it: everything is done, and says what happened."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import copy

from tests.acceptance import shapes
from tests.acceptance.command import EXAMPLES, Tidegate
from tests.acceptance.shapes import assert_shape
from tests.upstream.remote import UpstreamProcess

_CONFIG = """
failover: {{cooldown_s: 300, cooldown_max_s: 600}}
presets:
  primary:
    model: openai/primary-vlm
    base_url: http://127.0.0.1:{dead}/v1
    modalities: [text, image]
    fallbacks: [good]
  good:    {{model: openai/good-vlm, base_url: "{good}", modalities: [text, image]}}
kb:
  vlm: {{preset: primary}}
"""


def test_documents_are_done_by_the_fallback_and_other_processes_skip_the_dead_target(
    tmp_path: Path, upstream_process: Callable[..., UpstreamProcess]
) -> None:
    good = upstream_process()
    tidegate = Tidegate(tmp_path)
    (tmp_path / "tidegate.yaml").write_text(_CONFIG.format(dead=_dead_port(), good=good.base_url))
    for name in ("slipway-notice.png", "sluice-inspection-1987.pdf"):
        copy(EXAMPLES / name, tmp_path)
    with tidegate.up("--stages", "parse,format,retrieve,embed", "--no-flower", "--threads", "4"):
        late = tidegate.json("enqueue", "slipway-notice.png", "--wait", "--timeout", "2", code=5)
        assert (late["waited"], late["counts"]["queued"]) == ("timeout", 1)
        assert "describe" in tidegate.json("doctor", code=1)["checks"][6]["detail"]
        with tidegate.background("worker", "--queues", "describe", "--threads", "4"):
            first = tidegate.json("enqueue", "slipway-notice.png", "--wait")
            assert [one["state"] for one in first["documents"]] == ["done"]
            tried = tidegate.json("attempts", "slipway-notice.png", "--stage", "describe")
        assert_shape(tried, shapes.ATTEMPTS)
        assert [(one["position"], one["outcome"], one["kind"]) for one in tried["attempts"]] == [
            (0, "failed", "connect"),
            (1, "ok", None),
        ]
        assert tried["attempts"][0]["cooldown_until"] is not None
        found = tidegate.json("status", "--document", "slipway-notice.png")["documents"][0]
        assert (found["state"], found["degraded"]) == ("done", 1)
        assert "primary" in tidegate.run("targets").out

        # Another worker process, another document: it knows that the primary cools, and does not try it.
        with tidegate.background("worker", "--queues", "describe", "--threads", "4"):
            second = tidegate.json("enqueue", "sluice-inspection-1987.pdf", "--wait")
        assert [one["state"] for one in second["documents"]] == ["done"]
        later = tidegate.json("attempts", "sluice-inspection-1987.pdf", "--stage", "describe")["attempts"]
        assert [one["outcome"] for one in later] == ["ok"]
        assert [skip["reason"] for skip in later[0]["skipped"]] == ["cooling"]
        assert later[0]["worker"] != tried["attempts"][0]["worker"]
        primary = next(one for one in tidegate.json("targets")["targets"] if one["preset"] == "primary")
        assert (primary["state"], primary["kind"], primary["failed_1h"]) == ("open", "connect", 1)


def test_documents_park_while_every_target_is_away_and_go_on_when_one_is_reset(
    tmp_path: Path, upstream_process: Callable[..., UpstreamProcess]
) -> None:
    good = upstream_process()
    tidegate = Tidegate(tmp_path)
    (tmp_path / "tidegate.yaml").write_text(_CONFIG.format(dead=_dead_port(), good=good.base_url))
    copy(EXAMPLES / "slipway-notice.png", tmp_path)
    good.refuse()
    with tidegate.up("--no-flower", "--threads", "4"):
        parked = tidegate.json("enqueue", "slipway-notice.png", "--wait", code=5)
        assert [one["state"] for one in parked["documents"]] == ["parked"]
        assert parked["documents"][0]["resume_at"] is not None
        said = tidegate.run("why", "slipway-notice.png").out
        assert "parked at describe" in said
        assert "tidegate targets reset" in said
        assert "parked" in tidegate.run("status").out
        good.listen()
        assert tidegate.json("targets", "reset", "good")["resumed_runs"] == 1
        done = tidegate.json("enqueue", "slipway-notice.png", "--wait")
        assert [one["state"] for one in done["documents"]] == ["done"]


def _dead_port() -> int:
    """A port that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
