"""The demo: killed in the middle, and run again."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.acceptance import shapes
from tests.acceptance.command import Tidegate
from tests.acceptance.shapes import assert_shape


def test_a_demo_that_was_killed_can_be_run_again_and_leaves_nothing_behind(tmp_path: Path) -> None:
    tidegate = Tidegate(tmp_path)
    with subprocess.Popen(
        tidegate.argv("demo"),
        cwd=tmp_path,
        env=tidegate.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stderr is not None
        # Its first line about documents says that they are enqueued and under way.
        assert any("documents:" in line for line in first.stderr)
        first.send_signal(signal.SIGKILL)

    ended = tidegate.json("demo")
    assert_shape(ended["documents"], shapes.STATUS["documents"])
    assert {one["state"] for one in ended["documents"]} == {"done"}
    assert ended["counts"] == {"queued": 0, "unchanged": len(ended["documents"]), "rejected": 0}
    assert [one["right"] for one in ended["searches"]] == [True, True]
    assert ended["flower"].startswith("http://127.0.0.1:")
    assert not (tidegate.home / "stack.json").exists()
    assert tidegate.json("down")["stopped"] is False
