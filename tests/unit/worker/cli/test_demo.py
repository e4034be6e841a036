from __future__ import annotations

import io
from pathlib import Path

import pytest

from pipeline.settings import Settings
from worker.cli.demo import say_next
from worker.cli.terminal import Terminal


@pytest.mark.parametrize("stays", [True, False])
def test_a_stack_is_to_be_started_only_where_none_stays(tmp_path: Path, stays: bool) -> None:
    out = io.StringIO()

    say_next(Terminal(out=out), Settings(home=tmp_path), stays=stays)

    assert ("up --detach && " in out.getvalue()) is not stays
    assert "search 'who decides about the gates?' --collection demo" in out.getvalue()
