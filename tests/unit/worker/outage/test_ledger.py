from __future__ import annotations

from datetime import timedelta

from tests.unit.worker.outage.rows import BEGAN, row
from worker.outage.ledger import read_ledger
from worker.outage.place import PRIMARIES


def test_a_switch_is_a_failed_try_that_another_target_follows() -> None:
    ledger = read_ledger(
        [
            row("a", "text", "ok", 0),
            row("b", "text", "failed", 1, 0.5, kind="rate_limit", status=429),
            row("c", "local-layout", "ok", 1.1),
            row("b", "local-layout", "ok", 1.6),
            row("d", "text", "failed", 2, 1.0, kind="ttft_timeout"),
            row("d", None, "exhausted", 3.0, 0.0, position=2),
            row("e", "text", "running", 4, 0.0),
            row("f", "embedder", "ok", 5, position=0),
            row("g", "text", "ok", 6),
        ],
        PRIMARIES,
    )
    assert [(one.from_preset, one.to_preset, one.reason, one.seconds) for one in ledger.switches] == [
        ("text", "local-layout", "rate_limit 429", 0.5),
        ("text", None, "ttft_timeout", 1.0),
    ]
    assert ledger.switches[0].at == BEGAN + timedelta(seconds=1.5)
    assert (ledger.wasted, ledger.lost_s) == (2, 1.5)
    assert ledger.passed_over == 1
    assert ledger.answered == {"text": 2, "local-layout": 2, "embedder": 1}
    assert ledger.failed == {"text": 2}
    assert ledger.back_after(BEGAN + timedelta(seconds=2)) == {"text": 4.0}


def test_a_second_try_at_the_same_target_is_no_switch_but_costs() -> None:
    ledger = read_ledger(
        [row("a", "text", "failed", 0, 0.2, kind="server_error", status=500), row("a", "text", "ok", 1)], PRIMARIES
    )
    assert (ledger.switches, ledger.wasted, ledger.lost_s) == ((), 1, 0.2)


def test_a_lost_try_costs_and_a_failure_of_a_fallback_does_not() -> None:
    rows = [row("a", "text", "lost", 0, duration_ms=None), row("b", "local-layout", "failed", 1, 3.0, kind="unknown")]
    ledger = read_ledger(rows, PRIMARIES)
    assert (ledger.wasted, ledger.lost_s, ledger.passed_over) == (1, 0.0, 1)
