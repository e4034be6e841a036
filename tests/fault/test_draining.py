"""SIGTERM: what is at work is finished or given back before the process ends; nothing waits for a lease to expire.

Leases last a minute here, and every test is over long before that.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.fault.checks import check, paid_again, repeats
from tests.fault.kin import descendants_of
from tests.fault.stack import Program, Stack, wait_for
from worker.embedded.process import ProcessId, command_line

_LEASE_S = 60
_GRACE_S = 3.0
_ENDS_S = 25.0
"""More than a drain takes on a machine that is overrun, and far less than a lease."""
_PARSE_CHILD = "pipeline.documents.child"


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Stack:
    return make_stack(config={"unit": {"lease_s": _LEASE_S, "drain_s": 1.5}})


def test_a_worker_that_ends_finishes_what_answers_and_gives_back_the_rest(stack: Stack) -> None:
    stack.enqueue(stack.papers.sheets(8))
    some = stack.rng.randint(2, 6)
    stack.models.behave("vision", *[{"delay_s": 1.0}] * some, *["hang"] * (8 - some))
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    stack.wait_until(lambda: len(stack.models.calls("vision")) == 8)
    stack.fault(worker)
    worker.terminate()
    assert worker.wait(_ENDS_S) == 0
    assert _leased(stack) == 0
    units = stack.rows("select state, count(*) from unit where stage = 'describe' group by 1")
    assert {row.state: row.count for row in units} == {"done": some, "pending": 8 - some}
    stack.models.clear()
    stack.again(worker)
    stack.wait_ended(timeout_s=_LEASE_S - 5)
    check(stack)
    assert not repeats(stack)
    assert paid_again(stack).total() == 8 - some
    _nobody_was_blamed(stack)


def test_a_worker_that_ends_begins_no_call_for_who_waited_for_a_permit(make_stack: Callable[..., Stack]) -> None:
    few = {"vision": {"max_parallel": 3}}
    stack = make_stack(config={"unit": {"lease_s": _LEASE_S, "drain_s": 8}, "presets": few})
    stack.enqueue(stack.papers.sheets(8))
    stack.models.behave("vision", {"delay_s": 1.5})
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    stack.wait_until(lambda: len(stack.models.calls("vision")) == 3)
    worker.terminate()
    assert worker.wait(_ENDS_S) == 0
    assert len(stack.models.calls("vision")) == 3, "five more stood in line, and each would have been cut"
    units = stack.rows("select state, count(*) from unit where stage = 'describe' group by 1")
    assert {row.state: row.count for row in units} == {"done": 3, "pending": 5}
    stack.again(worker)
    stack.wait_ended(timeout_s=_LEASE_S - 5)
    check(stack)
    assert not paid_again(stack)
    _nobody_was_blamed(stack)


def test_a_worker_that_ends_does_not_wait_for_a_document_that_takes_for_ever_to_parse(stack: Stack) -> None:
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    stack.enqueue(stack.papers.sheets(2))
    stack.wait_until(lambda: [child.send(signal.SIGSTOP) for child in _parse_children(worker)])
    worker.terminate()
    assert worker.wait(_ENDS_S) == 0
    assert _leased(stack) == 0
    stack.again(worker)
    stack.wait_ended(timeout_s=_LEASE_S - 5)
    check(stack)
    _nobody_was_blamed(stack)


def test_a_rolling_restart_with_three_seconds_of_grace_under_load_costs_no_call(stack: Stack) -> None:
    fleet = [stack.worker(ready=False), stack.worker(ready=False)]
    beat = stack.beat(ready=False)
    for model in ("vision", "format", "cues", "vectors"):
        stack.models.behave(model, *[{"delay_s": stack.rng.uniform(0.05, 0.3)} for _ in range(7)], cycle=True)
    stack.wait_ready(*fleet, beat)
    killed = 0
    for old in fleet:
        # Each is replaced while its slices are at work; who is not gone within the grace is killed, as Docker does it.
        stack.enqueue(*[stack.papers.sheets(2) for _ in range(4)], *stack.papers.notes(4))
        stack.wait_until(lambda old=old: _leased(stack, old))  # type: ignore[misc]
        old.terminate()
        if not wait_for(lambda old=old: not old.alive, _GRACE_S):  # type: ignore[misc]
            killed += 1
            stack.kill(old)
        assert killed or not _leased(stack, old)
        stack.again(old)
    stack.wait_ended()
    check(stack)
    if not killed:  # On an overrun machine three seconds may be too few for anything.
        assert not paid_again(stack)
        _nobody_was_blamed(stack)


def _leased(stack: Stack, by: Program | None = None) -> int:
    return stack.count("unit where state = 'leased' and (:name = '' or leased_by = :name)", name=by.name if by else "")


def _nobody_was_blamed(stack: Stack) -> None:
    """An end that somebody asked for is no mark against a unit."""
    assert stack.count("unit where lost_leases > 0") == 0
    assert stack.count("attempt where outcome = 'lost'") == 0


def _parse_children(worker: Program) -> Iterator[ProcessId]:
    for child in descendants_of(worker.pid):
        if any(_PARSE_CHILD in word for word in command_line(child.pid)):
            yield child
