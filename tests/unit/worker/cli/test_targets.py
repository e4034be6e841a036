from __future__ import annotations

import io
from typing import Any

from worker.cli.targets import say_targets
from worker.cli.terminal import Terminal


def _row(preset: str, target: str) -> dict[str, Any]:
    return {
        "target": target,
        "preset": preset,
        "roles": ["vlm_formatter"],
        "state": "closed",
        "probing": False,
        "until": None,
        "kind": None,
        "in_flight": 0,
        "max_parallel": None,
        "ok_1h": 0,
        "failed_1h": 0,
    }


def test_a_preset_is_named_though_its_targets_name_holds_the_same_letters() -> None:
    out = io.StringIO()
    rows = [_row("loc", "layout@local:vm"), _row("text", "text@host"), _row("only@host", "only@host")]

    say_targets(Terminal(out=out), rows)

    assert [line.split("  ")[0] for line in out.getvalue().splitlines()[1:]] == [
        "loc layout@local:vm",
        "text text@host",
        "only@host",
    ]
