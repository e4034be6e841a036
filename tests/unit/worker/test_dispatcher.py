import threading
from collections.abc import Collection

import pytest

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.unit import Stage
from worker.dispatcher import Dispatcher


class _Passes:
    """A dispatch that counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return 0


def test_many_wakes_are_few_passes_and_none_is_missed() -> None:
    passes = _Passes()
    dispatcher = Dispatcher(passes, lambda _: None, lambda _: None)
    with dispatcher.running():
        for _ in range(1000):
            dispatcher.wake()
    assert 1 <= passes.count <= 5


def test_the_last_wake_is_served_before_the_end() -> None:
    passes = _Passes()
    dispatcher = Dispatcher(passes, lambda _: None, lambda _: None)
    with dispatcher.running():
        pass
    assert passes.count == 1


def test_what_is_parked_for_a_stage_that_answered_is_woken_before_the_dispatch() -> None:
    seen: list[str] = []

    def dispatch() -> int:
        seen.append("dispatch")
        return 0

    dispatcher = Dispatcher(dispatch, lambda stage: seen.append(stage.value), lambda _: None)
    dispatcher.wake(Stage.FORMAT)
    dispatcher.wake(Stage.FORMAT)
    dispatcher.wake()
    with dispatcher.running():
        pass
    assert seen[:2] == ["format", "dispatch"]
    assert seen.count("format") == 1


def test_what_waits_for_a_recovered_target_is_made_due_before_it_is_woken_and_dispatched() -> None:
    seen: list[str] = []

    def dispatch() -> int:
        seen.append("dispatch")
        return 0

    dispatcher = Dispatcher(
        dispatch,
        lambda stage: seen.append(f"wake {stage.value}"),
        lambda stages: seen.append(f"due {sorted(str(stage) for stage in stages)}"),
    )
    dispatcher.recovered([Stage.FORMAT, Stage.RETRIEVE])
    dispatcher.wake(Stage.FORMAT)
    with dispatcher.running():
        pass
    assert seen[:4] == ["due ['format', 'retrieve']", "wake format", "wake retrieve", "dispatch"]
    assert sum(one.startswith("due") for one in seen) == 1


def test_a_pass_that_fails_leaves_the_next_one_to_work() -> None:
    worked = threading.Event()
    errors = [ServiceUnavailable("Redis is away"), RuntimeError("a bug")]

    def dispatch() -> int:
        if errors:
            raise errors.pop()
        worked.set()
        return 0

    dispatcher = Dispatcher(dispatch, lambda _: None, lambda _: None)
    with dispatcher.running():
        while not worked.is_set():
            dispatcher.wake()
            worked.wait(0.01)
    assert worked.is_set()


def test_a_recovery_that_could_not_be_told_is_told_again_without_a_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.dispatcher._RETRY_S", 0.01)
    told = threading.Event()
    outage = [ServiceUnavailable("Postgres is away")]

    def make_due(stages: Collection[Stage]) -> None:
        if outage:
            raise outage.pop()
        assert set(stages) == {Stage.EMBED}
        told.set()

    dispatcher = Dispatcher(lambda: 0, lambda _: None, make_due)
    with dispatcher.running():
        dispatcher.recovered([Stage.EMBED])
        assert told.wait(10)
