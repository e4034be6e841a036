from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from pipeline.clock import wall_now_s
from pipeline.domain.run import RunState
from pipeline.domain.unit import QUEUES, Stage
from pipeline.failover.registry import BreakerState, TargetStatus
from pipeline.status import DocumentStatus, QueueLoad, Status, UnitCounts
from pipeline.store.fleet import Pulse
from pipeline.store.overview import ParkedAt, StageTotals
from pipeline.why import ChainLink
from worker.cli.status_view import picture
from worker.cli.terminal import Terminal
from worker.cli.times import clock

_NOW = datetime.fromtimestamp(wall_now_s(), UTC)
_DONE = DocumentStatus(
    id=UUID(int=7),
    path="/docs/handbook.pdf",
    collection="default",
    batch="handbook-2026",
    run=1,
    state=RunState.DONE,
    stage=None,
    pages=14,
    chunks=20,
    units=UnitCounts(30, 30, 0, 0),
    degraded=0,
    incomplete=False,
    live=True,
    failure_kind=None,
    failure_detail=None,
    resume_at=None,
    attempts=30,
    models=("vision",),
    created_at=_NOW,
    finished_at=_NOW,
    seconds=12.34,
)


def _status(*documents: DocumentStatus, **more: object) -> Status:
    counts = dict.fromkeys(RunState, 0)
    for document in documents:
        counts[document.state] += 1
    empty = Status(
        documents=list(documents),
        counts=counts,
        processes=[],
        queues={queue: QueueLoad(0, 1) for queue in QUEUES},
        stages=[StageTotals(stage) for stage in Stage],
        parked=[],
        notes=[],
        beat=Pulse("beat-1@here", 1.0),
    )
    return replace(empty, **more)  # type: ignore[arg-type]


def _drawn(
    status: Status,
    links: dict[Stage, list[ChainLink]] | None = None,
    most: int = 20,
    width: int = 1000,
    batch: str | None = None,
    *,
    only_failed: bool = False,
) -> str:
    out = io.StringIO()
    Terminal(out=out).print(picture(status, links or {}, most, width, batch=batch, only_failed=only_failed))
    return out.getvalue()


def test_nothing_yet_says_how_to_begin() -> None:
    assert "tidegate enqueue" in _drawn(_status())


def test_one_batch_is_named_with_its_counts() -> None:
    failed = replace(_DONE, id=UUID(int=8), state=RunState.FAILED, stage=Stage.PARSE, failure_kind="corrupt")
    first = _drawn(_status(_DONE, failed)).splitlines()[0]
    assert first == "batch   handbook-2026 · default   2 documents   1 done · 1 failed"


def test_documents_of_several_batches_are_all_of_them() -> None:
    other = replace(_DONE, id=UUID(int=8), batch="second")
    assert _drawn(_status(_DONE, other)).splitlines()[0] == "all     2 documents   2 done"


def test_stages_show_their_bars_and_the_time_left() -> None:
    stages = [
        StageTotals(Stage.PARSE, total=10, done=10, lately=10),
        StageTotals(Stage.DESCRIBE, total=100, done=50, failed=10, lately=60),
        StageTotals(Stage.FORMAT, total=60, done=30, lately=30),
    ]
    running = replace(_DONE, state=RunState.RUNNING, stage=Stage.DESCRIBE)
    line = _drawn(_status(running, stages=stages)).splitlines()[1]
    assert "parse ██████████ 10 " in line
    assert "describe ██████░░░░ 50/100" in line
    assert "describe ██████░░░░ 50/100, 10 failed   " in line
    assert line.endswith("1.0 pages/s · about 60 s left")


def test_stages_break_between_their_bars() -> None:
    stages = [StageTotals(stage, total=10, done=10) for stage in Stage]
    first, second, *_ = _drawn(_status(_DONE, stages=stages), width=80).splitlines()[1:]
    assert first == "stage   parse ██████████ 10   describe ██████████ 10   format ██████████ 10"
    assert second == "        retrieve ██████████ 10   embed ██████████ 10"


def test_bars_are_those_of_all_documents_and_not_of_the_listed() -> None:
    stages = [StageTotals(Stage.PARSE, total=3_000, done=3_000)]
    drawn = _drawn(replace(_status(_DONE, stages=stages), counts={RunState.DONE: 3_000})).splitlines()
    assert drawn[0] == "all     3,000 documents   3,000 done"
    assert drawn[1] == "stage   parse ██████████ 3,000"


def test_a_list_of_what_failed_says_nothing_of_stages() -> None:
    status = replace(_status(), counts={RunState.DONE: 3})
    drawn = _drawn(status, only_failed=True, batch="handbook-2026")
    assert drawn.splitlines() == ["batch   handbook-2026   3 documents   3 done", "nothing has failed."]


def _drawn_parked(note: ParkedAt, *chain: TargetStatus) -> str:
    """What is drawn of a document that is parked for a chain of ``vision`` and ``spare``, or of the first alone."""
    parked = replace(_DONE, state=RunState.PARKED, stage=note.stage, resume_at=note.resume_at)
    links = [ChainLink(name, "vlm", target) for name, target in zip(("vision", "spare"), chain, strict=False)]
    return _drawn(_status(parked, parked=[note]), {note.stage: links})


def test_parked_documents_say_for_whom_they_wait_and_until_when() -> None:
    until = _NOW + timedelta(seconds=40)
    drawn = _drawn_parked(
        ParkedAt(Stage.DESCRIBE, 1, until),
        _target(BreakerState.OPEN, until.timestamp(), "ttft_timeout"),
        _target(BreakerState.DISABLED),
    )
    expected = f"1 waits for vision until {clock(until)} (ttft_timeout), spare, which is disabled"
    assert f"parked  {expected}; the next try is at {clock(until)}" in drawn


def test_a_time_that_a_longer_cooldown_has_overtaken_is_no_next_try() -> None:
    """The canary has failed, and the beat has not written it down yet."""
    until = _NOW + timedelta(seconds=40)
    cooling, well = _target(BreakerState.OPEN, until.timestamp(), "connect"), _target(BreakerState.CLOSED)
    for chain, then in (([cooling], until), ([cooling, well], _NOW)):
        drawn = _drawn_parked(ParkedAt(Stage.DESCRIBE, 1, _NOW), *chain)
        assert f"(connect); the next try is at {clock(then)}" in drawn


def test_documents_that_accept_no_fallback_wait_for_the_first_target_alone() -> None:
    until = _NOW + timedelta(seconds=40)
    drawn = _drawn_parked(
        ParkedAt(Stage.DESCRIBE, 1, until, primary_only=True),
        _target(BreakerState.OPEN, until.timestamp(), "connect"),
        _target(BreakerState.OPEN, until.timestamp(), "rate_limit"),
    )
    assert f"parked  1 waits for vision until {clock(until)} (connect); the next try" in drawn
    assert "spare" not in drawn


def test_what_needs_attention_is_listed_first_and_the_rest_is_counted() -> None:
    failed = replace(
        _DONE, id=UUID(int=8), path="/docs/bad.pdf", state=RunState.FAILED, failure_kind="corrupt", failure_detail="cut"
    )
    drawn = _drawn(_status(_DONE, failed), most=1)
    assert "/docs/bad.pdf" in drawn
    assert "corrupt: cut" in drawn
    assert "/docs/handbook.pdf" not in drawn
    assert "… and 1 more:  tidegate status --limit 2" in drawn


def test_a_narrow_terminal_keeps_the_states_and_the_ends_of_paths() -> None:
    long = replace(_DONE, path=f"/docs/{'deep/' * 30}handbook.pdf", models=("vision-cloud@vllm-1", "qwen3-14b@vllm-2"))
    table = _drawn(_status(long), width=80).splitlines()[2:]
    assert all(len(line) <= 80 for line in table)
    assert "00000000" in table[1]
    assert "handbook.pdf" in table[1]
    assert "done" in table[1]
    assert "12.3" in table[1]


def test_work_without_workers_is_pointed_out() -> None:
    running = replace(_DONE, state=RunState.QUEUED)
    assert "no worker is running:  tidegate up" in _drawn(_status(running))


def _target(state: BreakerState, until: float | None = None, kind: str | None = None) -> TargetStatus:
    return TargetStatus("key", state, until=until, kind=kind)
