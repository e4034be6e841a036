from collections.abc import Iterator
from uuid import uuid4

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from pipeline.domain.call import Outcome, TryRecord, Usage
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage
from pipeline.failover.records import CallContext, Switch
from pipeline.observe.metrics import Metrics
from pipeline.reconcile import RunMove, TakenBack
from pipeline.store.units import Claimed
from worker.events import EventLog

_CONTEXT = CallContext("call-1", run_id=7, document_id="doc", stage="describe")


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def events(metrics: Metrics, logged: list[EventDict]) -> EventLog:
    return EventLog(metrics)


def test_a_failover_is_a_warning_and_a_count(events: EventLog, metrics: Metrics, logged: list[EventDict]) -> None:
    events.switched(Switch(_CONTEXT, "vlm", "a", "b", "ttft_timeout"))
    [entry] = logged
    assert (entry["event"], entry["log_level"]) == ("target.failed_over", "warning")
    assert (entry["request"], entry["run"], entry["document"], entry["stage"]) == ("call-1", 7, "doc", "describe")
    assert b"llm_failover_total" in generate_latest(metrics.registry)


def test_a_good_try_is_counted_and_not_logged(events: EventLog, metrics: Metrics, logged: list[EventDict]) -> None:
    usage = Usage(100, 50, 0.01)
    events.tried(_CONTEXT, "vlm", TryRecord("a", 0, Outcome.OK, ttft_s=0.5, duration_s=2.0, usage=usage))
    assert logged == []
    text = generate_latest(metrics.registry).decode()
    assert 'tidegate_attempts_total{kind="",outcome="ok",target="a"} 1.0' in text
    assert 'llm_ttft_seconds_count{target="a"} 1.0' in text
    assert 'tidegate_cost_usd_total{target="a"} 0.01' in text


def test_a_cooldown_that_no_waiting_mends_is_an_error(events: EventLog, logged: list[EventDict]) -> None:
    events.cooled("a", "overloaded", 0.0)
    events.cooled("a", "auth", 0.0)
    assert [entry["log_level"] for entry in logged] == ["warning", "error"]
    assert logged[0]["until"] == "1970-01-01T00:00:00+00:00"


def test_the_end_of_a_run_is_said_once(events: EventLog, logged: list[EventDict]) -> None:
    for _ in range(3):
        events.run_moved(7, "doc", RunState.FAILED, "corrupt")
    events.run_moved(8, "doc", RunState.DONE, "")
    assert [(entry["run"], entry["log_level"]) for entry in logged] == [(7, "error"), (8, "info")]


def test_each_park_is_said(events: EventLog, logged: list[EventDict]) -> None:
    events.run_moved(7, "doc", RunState.PARKED, "busy")
    events.runs_resumed([7], "a target has room again")
    events.run_moved(7, "doc", RunState.PARKED, "busy")
    assert [entry["event"] for entry in logged] == ["run.parked", "run.resumed", "run.parked"]


def test_a_bug_of_ours_is_an_error_with_its_traceback(events: EventLog, logged: list[EventDict]) -> None:
    error = RuntimeError("a bug")
    events.failed_inside(Claimed(1, 7, Stage.FORMAT, 3, uuid4()), error)
    [entry] = logged
    assert (entry["event"], entry["log_level"], entry["unit"]) == ("unit.failed_inside", "error", 3)
    assert entry["exc_info"][1] is error


def test_a_run_is_said_to_be_poisoned_only_where_a_unit_of_its_own_was(
    events: EventLog, logged: list[EventDict]
) -> None:
    moved = [RunMove(1, "a", RunState.FAILED, poisoned=True), RunMove(2, "b", RunState.PARKED, poisoned=False)]
    events.leases_lost(TakenBack(units=2, poisoned=1, moved=moved))
    said = {entry["run"]: entry.get("detail") for entry in logged if entry["event"].startswith("run.")}
    assert said == {1: "poison", 2: None}
