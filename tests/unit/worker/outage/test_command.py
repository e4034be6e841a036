from __future__ import annotations

import pytest

from worker.cli.main import main


def test_an_outage_leaves_nothing_running_so_it_takes_no_keep(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--outage", "--keep"]) == 2
    assert "--keep and --outage don't go together" in capsys.readouterr().err
