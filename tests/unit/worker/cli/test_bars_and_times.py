from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pipeline.clock import wall_now_s
from worker.cli.bars import bar
from worker.cli.times import clock, duration


@pytest.mark.parametrize(
    ("done", "total", "drawn"),
    [
        (0, 0, "░░░░░░░░░░"),
        (0, 7, "░░░░░░░░░░"),
        (7, 7, "██████████"),
        (381, 399, "█████████▌"),
        (999, 1000, "█████████▉"),
        (9, 7, "██████████"),
    ],
)
def test_a_bar_is_full_only_when_all_is_done(done: int, total: int, drawn: str) -> None:
    assert bar(done, total) == drawn


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (4.94, "4.9 s"),
        (48.3, "48 s"),
        (360, "6 min"),
        (7500, "2 h 5 min"),
        (7199.9, "120 min"),
        (10799.9, "2 h 59 min"),
        (400_000, "5 days"),
    ],
)
def test_durations_are_as_fine_as_they_are_long(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_time_of_another_day_has_its_date() -> None:
    now = datetime.fromtimestamp(wall_now_s(), UTC)
    assert len(clock(now)) == len("14:32:10")
    assert len(clock(now + timedelta(days=3))) == len("2026-11-29 14:32:10")
