"""``kill -9`` of a worker or of its parse child: the work goes on elsewhere, and what was stored is not paid again."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from tests.fault.checks import check, inputs_of, open_inputs, paid_again, repeats
from tests.fault.kin import descendants_of
from tests.fault.stack import Program, Stack
from worker.embedded.process import ProcessId, command_line

_HELD = ("vision", "format", "cues", "vectors")
_PARSE_CHILD = "pipeline.documents.child"


def test_a_worker_killed_in_every_stage_at_once_repeats_no_stage_that_was_done(stack: Stack) -> None:
    """Six documents, each stopped elsewhere: in parse, in chunk, before describe, format, retrieve and embed."""
    at = {model: stack.papers.sheets(2) for model in _HELD}
    for model, paper in at.items():
        stack.models.behave(model, "hang", prompt_contains=paper.stem)
    runs = dict(zip(at, stack.enqueue(*at.values()), strict=True))
    worker, beat = stack.worker(threads=12, ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    # Nothing else is under way: an answer that the locks below keep from being stored would be paid for again.
    stack.wait_until(lambda: all(stack.open_calls(model) for model in _HELD) and _only_hangs(stack))
    # CPU stages leave no call open: they are stopped where they write what they found.
    with stack.locked("lock table chunk in share mode"):
        (in_chunk,) = stack.enqueue(stack.papers.note())
        stack.wait_until(lambda: _leased(stack, in_chunk, "chunk"))
        with stack.locked("lock table page in share mode"):
            (in_parse,) = stack.enqueue(stack.papers.sheets(1))
            stack.wait_until(lambda: _leased(stack, in_parse, "parse"))
            done = {run: _done(stack, run) for run in (*runs.values(), in_chunk, in_parse)}
            # What it held in Postgres it holds until its connections are looked at: its leases can't be touched yet.
            fault = stack.kill(worker, wait_out_leases=True)
    stack.run_out_leases(worker)
    stack.models.clear()
    stack.again(worker)
    stack.wait_ended()
    check(stack)
    assert not repeats(stack)
    assert len(_HELD) <= paid_again(stack).total() <= open_inputs(fault)
    order = ["parse", "describe", "format", "chunk", "retrieve", "embed"]
    for model, run in runs.items():
        before = order[: {"vision": 1, "format": 2, "cues": 4, "vectors": 5}[model]]
        assert set(before) <= {stage for stage, _ in done[run]}, (model, done[run])
    for run, then in done.items():
        # Done is done: nobody has claimed or ended these units again.
        assert then.items() <= _done(stack, run).items()
    # Every stage's loss is on record, with who lost it.
    lost = stack.rows("select worker, stage from attempt where outcome = 'lost'")
    assert {row.worker for row in lost} == {worker.name}
    assert {row.stage for row in lost} == set(order)


def test_a_worker_killed_in_the_middle_of_a_slice_keeps_what_was_committed(stack: Stack) -> None:
    paper = stack.papers.sheets(8)
    stack.enqueue(paper)
    some = stack.rng.randint(2, 6)
    stack.models.behave("vision", *["ok"] * some, *["hang"] * (8 - some))
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    stack.wait_until(lambda: len(stack.open_calls("vision")) == 8 - some)
    stack.wait_until(lambda: stack.count("unit where stage = 'format' and state = 'done'") == some)
    kept = stack.rows("select ordinal from unit where stage = 'describe' and state = 'done'")
    stack.kill(worker)
    stack.models.clear()
    stack.again(worker)
    stack.wait_ended()
    check(stack)
    assert len(kept) == some
    assert paid_again(stack).total() == 8 - some
    assert len(stack.models.calls("format")) == 8


def test_a_killed_parse_child_costs_no_page(stack: Stack) -> None:
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    (hit,) = stack.enqueue(stack.papers.sheets(8))
    stack.wait_until(lambda: any(child.send(signal.SIGKILL) for child in _parse_children(worker)))
    stack.wait_ended()
    check(stack)
    assert stack.count("page where run_id = :r and state = 'ok'", r=hit) == 8
    # Before its first page the document has lost a lease; after that, the page is read again and nothing is lost.
    lost = stack.rows("select worker, stage, message from attempt where outcome = 'lost'")
    assert len(lost) == stack.count("unit where lost_leases = 1") <= 1
    # The worker lives, and says of itself what it lost.
    assert worker.alive
    for row in lost:
        assert (row.worker, row.stage) == (worker.name, "parse")
        assert "SIGKILL" in row.message


def _parse_children(worker: Program) -> Iterator[ProcessId]:
    for child in descendants_of(worker.pid):
        if any(_PARSE_CHILD in word for word in command_line(child.pid)):
            yield child


def _only_hangs(stack: Stack) -> bool:
    """Whether every unit that is not done is in a call that will not be answered."""
    hanging = sum(len(inputs_of(call)) for call in stack.open_calls() if call.act == "hang")
    return hanging == stack.count("unit where state <> 'done'")


def _leased(stack: Stack, run: int, stage: str) -> int:
    return stack.count("unit where run_id = :r and stage = :stage and state = 'leased'", r=run, stage=stage)


def _done(stack: Stack, run: int) -> dict[tuple[str, int], object]:
    """When each unit of a run that is done was done."""
    rows = stack.rows("select stage, ordinal, finished_at from unit where run_id = :r and state = 'done'", r=run)
    return {(row.stage, row.ordinal): row.finished_at for row in rows}
