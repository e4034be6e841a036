"""A unit that takes its worker with it: it dies alone, for a bounded number of times, and everybody else is done."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fault.checks import check
from tests.fault.kin import children_of
from tests.fault.stack import Program, Stack
from worker.embedded.process import ProcessId, command_line

pytestmark = pytest.mark.heavy

_MAX_LOST = 3
_CHILD = "worker.quarantine_child"


def test_a_poisonous_page_ends_as_poison_and_the_other_49_documents_are_done(stack: Stack) -> None:
    poison, others = stack.papers.sheets(3), [stack.papers.sheets(1), *stack.papers.notes(48, sections=1)]
    marker = f"Sheet 2 of {poison.stem}"
    stack.models.behave("vision", "hang", prompt_contains=marker)
    poisoned, *rest = stack.enqueue(poison, *others)
    worker, beat = stack.worker(threads=8, ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)

    assert _holder(stack, marker) == worker.name
    stack.kill(worker)
    survivor = stack.again(worker)
    killed = [worker.name]
    while len(killed) < _MAX_LOST:
        killed.append(_holder(stack, marker, after=len(killed)))
        _kill_named(stack, killed[-1])

    stack.wait_ended(timeout_s=240)
    check(stack, ended={poisoned: "failed"})
    assert [name.split("-")[0] for name in killed] == ["all", "quarantine", "quarantine"]
    assert len(set(killed)) == _MAX_LOST
    assert survivor.alive, "only quarantine children died of it"
    [unit] = stack.rows("select * from unit where run_id = :r and stage = 'describe' and ordinal = 2", r=poisoned)
    assert (unit.state, unit.failure_kind, unit.lost_leases) == ("failed", "poison", _MAX_LOST)
    lost = stack.rows(
        "select worker, target from attempt where outcome = 'lost' and unit_id = :u order by id", u=unit.id
    )
    assert [row.worker for row in lost] == killed
    assert all(row.target for row in lost)
    assert len(_calls(stack, marker)) == _MAX_LOST
    [run] = stack.rows("select * from run where id = :r", r=poisoned)
    assert run.failure_kind == "poison"
    # The other pages of its document are done and kept.
    pages = stack.rows("select stage, ordinal, state from unit where run_id = :r and ordinal in (1, 3)", r=poisoned)
    assert {(row.stage, row.ordinal, row.state) for row in pages} == {
        (stage, number, "done") for stage in ("describe", "format") for number in (1, 3)
    }
    assert stack.count("run where id = any(:runs) and state = 'done'", runs=rest) == 49
    assert stack.count("unit where lost_leases > 1") == 1, "who died with it once has not died with it again"


def test_a_quarantine_leaves_a_mark_when_it_dies_and_none_when_it_is_drained_or_loses_its_parent(
    make_stack: Callable[..., Stack],
) -> None:
    stack = make_stack(config={"unit": {"lease_s": 8}})
    paper = stack.papers.sheets(1)
    stack.models.behave("vision", "hang", calls=4)
    (run,) = stack.enqueue(paper)
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)

    def marks() -> int:
        [unit] = stack.rows("select lost_leases from unit where run_id = :r and stage = 'describe'", r=run)
        return int(unit.lost_leases)

    assert _holder(stack, paper.stem) == worker.name
    stack.kill(worker)

    worker = stack.again(worker)
    child = _child_of(worker, _holder(stack, paper.stem, after=1))
    assert marks() == 1
    stack.fault()
    worker.terminate()
    assert worker.wait(60) == 0
    assert not child.is_alive()
    assert marks() == 1

    worker = stack.again(worker)
    child = _child_of(worker, _holder(stack, paper.stem, after=2))
    stack.fault(worker)
    worker.process.kill()
    worker.wait()
    assert child.wait_gone(30), "it gives the unit back, and ends after its parent"
    assert "Traceback" not in worker.said(), "it has nobody to tell, and ends quietly"
    assert marks() == 1

    worker = stack.again(worker)
    name = _holder(stack, paper.stem, after=3)
    child = _child_of(worker, name)
    stack.faults.append(replace(stack.fault(), worker=name))
    child.send(signal.SIGSTOP)
    stack.wait_ended(timeout_s=120)
    check(stack)
    assert child.wait_gone(10), "one that hangs is ended"
    assert marks() == 2
    outcomes = stack.rows("select outcome from attempt where stage = 'describe' order by id")
    assert [row.outcome for row in outcomes] == ["lost", "cancelled", "cancelled", "lost", "ok"]


def _calls(stack: Stack, marker: str) -> list[object]:
    return [call for call in stack.models.calls("vision") if marker in str(call.request)]


def _holder(stack: Stack, marker: str, *, after: int = 0) -> str:
    """The name of the process that has the call open, once it has arrived as number ``after`` + 1."""
    stack.wait_until(lambda: len(_calls(stack, marker)) > after, timeout_s=120)
    running = stack.rows(
        "select attempt.worker from attempt join unit on unit.id = attempt.unit_id "
        "where attempt.outcome = 'running' and unit.leased_by = attempt.worker and attempt.stage = 'describe' "
        "and unit.run_id = (select run.id from run join document on document.id = run.document_id "
        "                   where document.source_uri like :uri) and unit.ordinal = :page order by attempt.id",
        uri=f"%{marker.split()[-1]}%",
        page=int(marker.split()[1]) if " " in marker else 1,
    )
    return str(running[-1].worker)


def _kill_named(stack: Stack, name: str) -> None:
    """kill -9 of the process that rows name so."""
    stack.faults.append(replace(stack.fault(), worker=name))
    os.kill(int(name.split("-")[1].split("@")[0]), signal.SIGKILL)


def _child_of(worker: Program, name: str) -> ProcessId:
    """The quarantine of a worker, which is the process that rows name so."""
    [child] = [one for one in children_of(worker.pid) if any(_CHILD in word for word in command_line(one.pid))]
    assert name.startswith(f"quarantine-{child.pid}@")
    return child
