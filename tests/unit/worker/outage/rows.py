"""Attempts and glimpses as tests need them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pipeline.clock import wall_now_s
from pipeline.domain.run import RunState
from pipeline.failover.registry import BreakerState
from pipeline.store.attempts import AttemptRow
from pipeline.store.progress import Progress, RunGlance
from worker.outage.glimpse import Glimpse, TargetGlimpse
from worker.outage.ledger import read_ledger
from worker.outage.place import PRIMARIES
from worker.outage.script import DEFAULT_SCRIPT

BEGAN = datetime.fromtimestamp(wall_now_s(), UTC)
_PRESETS = {"vision": "big-vision@here", "text": "big-text@here"}


def row(call: str, preset: str | None, outcome: str, at_s: float, seconds: float = 0.25, **more: object) -> AttemptRow:
    target = None if preset is None else _PRESETS.get(preset, preset)
    position = 0 if preset in _PRESETS else 1
    plain = AttemptRow(
        id=round(at_s * 1000),
        run_id=1,
        unit_id=1,
        stage="format",
        ordinal=1,
        call_id=call,
        position=position,
        target=target,
        preset=preset,
        outcome=outcome,
        kind=None,
        skipped=[],
        status=None,
        message=None,
        started_at=BEGAN + timedelta(seconds=at_s),
        ttft_ms=None,
        duration_ms=round(seconds * 1000),
        tokens_in=0,
        tokens_out=0,
        cost_usd=0.0,
        cooldown_until=None,
        worker="w",
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def target(preset: str, state: BreakerState = BreakerState.CLOSED, **more: object) -> TargetGlimpse:
    plain = TargetGlimpse(
        key=_PRESETS.get(preset, preset),
        preset=preset,
        stages=("format", "retrieve") if preset == "text" else ("describe",),
        state=state,
        probing=False,
        until=None,
        kind=None,
        in_flight=0,
        max_parallel=4,
        ramp=None,
        answered=3,
        failed=0,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def glimpse(elapsed_s: float, *rows: AttemptRow, targets: tuple[TargetGlimpse, ...] = (), to_come: int = 0) -> Glimpse:
    states = (RunState.DONE, RunState.RUNNING, RunState.FAILED)
    runs = {number: RunGlance(state, None, None, None, due=False) for number, state in enumerate(states, start=1)}
    names = dict.fromkeys(runs, "gate-log-001.md")
    ledger = read_ledger(rows, PRIMARIES)
    return Glimpse(DEFAULT_SCRIPT, BEGAN, elapsed_s, targets, ledger, Progress(runs, {}), to_come, names)
