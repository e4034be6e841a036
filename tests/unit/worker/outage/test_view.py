from __future__ import annotations

import io
from datetime import timedelta

import pytest
from rich.console import Console

from pipeline.failover.registry import BreakerState
from tests.unit.worker.outage.rows import BEGAN, glimpse, row, target
from worker.cli.times import clock
from worker.outage.view import Teller, picture

_UNTIL = BEGAN + timedelta(seconds=9)
_OPEN = target("text", BreakerState.OPEN, until=_UNTIL, kind="rate_limit")
_FAILED = [
    one
    for number in range(12)
    for one in (
        row(f"c{number}", "text", "failed", 7 + number / 10, 0.1, kind="rate_limit", status=429),
        row(f"c{number}", "local-layout", "ok", 7.2 + number / 10),
    )
]


def _drawn(width: int, height: int | None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    seen = glimpse(8.2, *_FAILED, targets=(_OPEN, target("local-ocr")), to_come=4)
    with console.capture() as captured:
        console.print(picture(seen, width, height))
    return captured.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_picture_fits_the_terminal_and_says_it_all(width: int, height: int) -> None:
    lines = _drawn(width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert f"open until {clock(_UNTIL)}" in text
    assert "text → local-layout" in text
    assert "rate_limit 429" in text
    assert "12 switches" in text
    assert "busy      429 and 503 with Retry-After, for 6 s more" in text
    assert "1 done · 1 under way · 4 to come · 1 lost" in text
    assert "12 calls wasted · 1.2 s lost" in text
    assert ("format, retrieve" in text) is (width == 120)


def test_what_stays_at_the_end_has_every_switch() -> None:
    assert sum("text → local-layout" in line for line in _drawn(80, None)) == 12
    assert sum("text → local-layout" in line for line in _drawn(80, 16)) < 12


def test_lines_say_what_is_new_once_and_in_order_of_time() -> None:
    said: list[str] = []
    teller = Teller(said.append)
    teller.tell(glimpse(0.1, targets=(target("text"),)))
    assert said == ["  0.0 s  the primaries are healthy: they answer"]
    del said[:]
    for _ in range(2):
        teller.tell(glimpse(6.9, *_FAILED[:2], targets=(_OPEN,)))
    assert [line[9:] for line in said] == [
        "the primaries are busy: 429 and 503 with Retry-After",
        f"text is open until {clock(_UNTIL)} (rate_limit)",
        "1 done · 1 under way · 0 to come · 1 lost",
        "text → local-layout: rate_limit 429 after 0.1 s, format of gate-log-001.md",
    ]
    del said[:]
    teller.tell(glimpse(9.0, *_FAILED[:2], targets=(target("text", BreakerState.HALF_OPEN, probing=True),)))
    teller.tell(glimpse(9.1, *_FAILED[:2], targets=(target("text", ramp=1),)))
    teller.tell(glimpse(9.2, *_FAILED[:2], targets=(target("text"),)))
    assert [line[9:] for line in said] == ["text is probing", "text is closed, 1 at a time", "text is closed"]
