"""The beat knows whether it works."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

import worker.reconciler
from pipeline.domain.errors import ServiceUnavailable
from pipeline.reconcile import Reconciled, ReconcilePolicy
from worker.events import EventLog
from worker.passes import PassReport
from worker.reconciler import Beat


def make_beat(dispatch: Any, told: list[PassReport] | None = None) -> Beat:
    nothing = cast("Any", None)
    return Beat(
        nothing,
        nothing,
        nothing,
        ReconcilePolicy(),
        dispatch,
        cast("EventLog", _Silent()),
        (told or []).append,
        nothing,
    )


class _Silent:
    def slices_handed_out(self, count: int) -> int:
        return count

    def leases_lost(self, lost: object) -> None:
        """Says nothing."""

    def runs_resumed(self, runs: object, why: str) -> None:
        """Says nothing."""

    def runs_given_up(self, runs: object) -> None:
        """Says nothing."""

    def look(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def _nothing_to_reconcile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.reconciler, "reconcile", lambda *_, **__: None)


def test_a_pass_that_hangs_makes_the_beat_unwell_and_its_end_well_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.reconciler, "STALLED_S", 0.0)
    inside, go_on, stopping = threading.Event(), threading.Event(), threading.Event()

    def hang() -> int:
        inside.set()
        assert go_on.wait(30)
        stopping.set()
        return 0

    beat = make_beat(hang)
    assert beat.is_well()
    thread = threading.Thread(target=beat.run, args=(0.01, stopping))
    thread.start()
    assert inside.wait(30)
    assert not beat.is_well()
    go_on.set()
    thread.join(30)
    assert beat.is_well()


def test_a_pass_that_fails_is_told_and_the_beat_goes_on() -> None:
    told: list[PassReport] = []
    passes, stopping = (
        iter((ServiceUnavailable("the broker is away", "wait"), ValueError("a bug"), None)),
        threading.Event(),
    )

    def dispatch() -> int:
        error = next(passes)
        if error is None:
            stopping.set()
            return 3
        raise error

    beat = make_beat(dispatch)
    beat.tell = told.append
    beat.run(0.01, stopping)
    assert [str(report.error or "").split("\n")[0] for report in told] == [
        "the broker is away",
        "ValueError inside Tidegate; see the beat's log",
        "",
    ]
    assert told[-1].outcome == "3 slices handed out"


def test_an_outage_is_warned_of_once() -> None:
    away = ServiceUnavailable("the broker is away", "wait")
    results = iter((away, away, 1, away, 0))

    def dispatch() -> int:
        result = next(results)
        if isinstance(result, int):
            return result
        raise result

    beat = make_beat(dispatch)
    with capture_logs() as logs:
        for _ in range(5):
            beat.once()
    assert [entry["log_level"] for entry in logs if entry["event"] == "pass.failed"].count("warning") == 2


def test_what_has_had_its_time_is_looked_for_once_a_minute_and_deleted_at_each_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swept, asked = [500, 500, 0], []

    def reconcile(*_: Any, sweeps: bool) -> Reconciled:
        asked.append(sweeps)
        return Reconciled(swept=swept.pop(0) if sweeps else 0)

    monkeypatch.setattr(worker.reconciler, "reconcile", reconcile)
    monkeypatch.setattr(worker.reconciler, "transact", lambda *_: None)
    beat = make_beat(lambda: 0)
    beat.deliveries = cast("Any", _Silent())
    for _ in range(5):
        beat.once()
    assert asked == [True, True, True, False, False]
