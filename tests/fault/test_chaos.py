"""A short form of ``make chaos``, with a seed of its own each time; a failure names it."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom

import pytest

from tests.fault.chaos import Chaos
from tests.fault.servers import Servers
from tests.upstream import UpstreamProcess

pytestmark = pytest.mark.heavy


def test_whatever_is_broken_nothing_is_lost_and_nothing_paid_for_twice(
    servers: Servers, models: UpstreamProcess, tmp_path: Path
) -> None:
    models.reset()
    chaos = Chaos(
        servers,
        models,
        tmp_path,
        seed=SystemRandom().randrange(1_000_000),
        seconds=15,
        documents=6,
        pace_s=1.2,
        longest_s=2.5,
        leases_run_out=False,
        say=print,
    )
    try:
        report = chaos.run()
    finally:
        chaos.close()
    print(report)
    assert report.faults
    assert report.states == {"done": 6}
