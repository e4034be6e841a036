"""``kill -9`` of a worker: its units go on elsewhere, and what was stored is not paid for again."""

from __future__ import annotations

import pytest

from tests.fault.checks import check, paid_again, repeats
from tests.fault.stack import Stack

# What is held open at the model server while the worker dies, and the stages that are done by then.
_BOUNDARIES = {
    "vision": ("parse",),
    "format": ("parse", "describe"),
    "cues": ("parse", "describe", "format", "chunk"),
    "vectors": ("parse", "describe", "format", "chunk", "retrieve"),
}


@pytest.mark.parametrize("held", _BOUNDARIES)
def test_a_worker_killed_at_a_stage_boundary_repeats_no_stage_before_it(stack: Stack, held: str) -> None:
    done = list(_BOUNDARIES[held])
    stack.enqueue(stack.papers.sheets(2))
    stack.models.behave(held, "hang")
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    stack.wait_until(lambda: stack.open_calls(held))
    stack.wait_until(lambda: not stack.count("unit where stage = any(:done) and state <> 'done'", done=done))
    open_then = len(stack.kill(worker).calls)
    stack.models.clear()
    stack.again(worker)
    stack.wait_ended()
    check(stack)
    assert not repeats(stack)
    assert 0 < paid_again(stack).total() <= open_then
    lost = stack.rows("select worker, stage from attempt where outcome = 'lost'")
    assert {row.worker for row in lost} == {worker.name}
