import io
import pickle
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, cast

import pytest
from celery.backends.base import DisabledBackend
from celery.exceptions import Reject

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.unit import Stage
from pipeline.endings import SliceReport
from pipeline.ingest import Ingest
from pipeline.observe.logging import configure_logging
from worker.app import make_app, task_name
from worker.dispatcher import Dispatcher
from worker.tasks import SliceFailed, SliceParked, Tasks, register_tasks


class _Ingest:
    def __init__(self, report: SliceReport) -> None:
        self.report = report
        self.asked: list[Any] = []
        self.error: ServiceUnavailable | None = None

    def run_slice(self, run_id: int, stage: Stage, ordinals: Sequence[int]) -> SliceReport:
        self.asked.append((run_id, stage, ordinals))
        if self.error is not None:
            raise self.error
        return self.report


class _Dispatcher:
    def __init__(self) -> None:
        self.woken: list[Stage | None] = []

    def wake(self, answered: Stage | None = None) -> None:
        self.woken.append(answered)


def _tasks(report: SliceReport) -> tuple[Tasks, _Ingest, _Dispatcher]:
    ingest, dispatcher = _Ingest(report), _Dispatcher()
    return Tasks(cast("Ingest", ingest), cast("Dispatcher", dispatcher), Event()), ingest, dispatcher


def test_a_slice_that_ended_well_wakes_the_dispatcher_and_says_what_it_did() -> None:
    tasks, ingest, dispatcher = _tasks(SliceReport(Counter(done=2), made_work=True))
    assert tasks.carry_out(7, "format", [1, 2]) == "2 done"
    assert ingest.asked == [(7, Stage.FORMAT, [1, 2])]
    assert dispatcher.woken == [Stage.FORMAT]


def test_a_duplicate_that_found_nothing_wakes_nobody() -> None:
    tasks, _, dispatcher = _tasks(SliceReport())
    assert tasks.carry_out(7, "format", [1]) == "nothing to do"
    assert dispatcher.woken == []


def test_failed_units_end_the_task_as_failed_with_the_reason() -> None:
    report = SliceReport(Counter(done=1, failed=1), ["describe 3 failed (content_policy): x"], made_work=True)
    tasks, _, dispatcher = _tasks(report)
    with pytest.raises(SliceFailed, match="1 done, 1 failed: describe 3 failed"):
        tasks.carry_out(7, "describe", [3, 4])
    assert dispatcher.woken == [Stage.DESCRIBE]


def test_parked_units_end_the_task_as_parked() -> None:
    tasks, _, _ = _tasks(SliceReport(Counter(parked=8), ["every target of describe is cooling"]))
    with pytest.raises(SliceParked, match="8 parked: every target of describe is cooling"):
        tasks.carry_out(7, "describe", [1])


def test_a_draining_worker_gives_the_message_back() -> None:
    tasks, ingest, _ = _tasks(SliceReport())
    tasks.stopping.set()
    with pytest.raises(Reject, match="about to end"):
        tasks.carry_out(7, "describe", [1])
    assert ingest.asked == []


def test_a_slice_that_a_service_puts_off_is_said() -> None:
    stream = io.StringIO()
    tasks, ingest, _ = _tasks(SliceReport())
    ingest.error = ServiceUnavailable("the blob folder '/blobs' has no space left for a page")
    configure_logging("info", "json", stream=stream)
    with pytest.raises(ServiceUnavailable):
        tasks.carry_out(7, "parse", [0])
    said = stream.getvalue()
    assert "slice.put_off" in said
    assert "no space left for a page" in said


def test_every_stage_has_a_task_of_its_name() -> None:
    app = make_app("memory://", "t:")
    tasks, ingest, _ = _tasks(SliceReport(Counter(done=1)))
    register_tasks(app, tasks)
    names = {name for name in app.tasks if name.startswith("tidegate.")}
    assert names == {task_name(stage) for stage in Stage}
    assert app.tasks["tidegate.chunk"](9, "chunk", [0]) == "1 done"
    assert ingest.asked == [(9, Stage.CHUNK, [0])]
    app.close()


def test_errors_survive_pickling() -> None:
    for kind in (SliceFailed, SliceParked):
        copy = pickle.loads(pickle.dumps(kind("why")))  # noqa: S301
        assert (type(copy), str(copy)) == (kind, "why")


def test_all_threads_share_the_backend_that_is_none() -> None:
    app = make_app("memory://", "t:")
    with ThreadPoolExecutor(2) as threads:
        one, other = (threads.submit(lambda: app.backend).result() for _ in range(2))
    assert one is other is app.backend
    assert isinstance(one, DisabledBackend)
