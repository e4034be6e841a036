"""A holder that outlives its lease: its answer is dropped, whoever took over ends the unit, once."""

from __future__ import annotations

from collections.abc import Callable

from tests.fault.checks import check, paid_again
from tests.fault.stack import Stack


def test_a_frozen_worker_that_thaws_after_its_lease_commits_nothing(stack: Stack) -> None:
    frozen, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(frozen, beat)
    # Its answer comes while it is frozen, and lies in its socket when it thaws.
    stack.models.behave("format", {"delay_s": 0.5}, calls=1)
    (run,) = stack.enqueue(stack.papers.note())
    stack.wait_until(lambda: stack.open_calls("format"))
    stack.fault(frozen)
    frozen.freeze()
    stack.run_out_leases(frozen)
    other = stack.worker()
    stack.wait_ended()
    ended = stack.rows("select id, finished_at, answered_by, output from unit order by id")
    (taken,) = stack.rows("select lost_leases, finished_at from unit where stage = 'format'")
    assert taken.lost_leases == 1
    frozen.thaw()
    # It hears that its lease is gone, and is as good as new for what comes next.
    stack.wait_until(lambda: not stack.open_calls())
    other.terminate()
    other.wait()
    stack.enqueue(stack.papers.note())
    stack.wait_ended()
    check(stack)
    assert (
        stack.rows("select id, finished_at, answered_by, output from unit where run_id = :r order by id", r=run)
        == ended
    )
    assert paid_again(stack).total() == 1
    assert {row.worker for row in stack.rows("select worker from attempt where outcome = 'lost'")} <= {frozen.name}


def test_the_answer_of_a_lease_that_ran_out_while_its_holder_worked_is_dropped(
    make_stack: Callable[..., Stack],
) -> None:
    # Renewed every 5 s: the answer comes before the holder can hear that its lease is gone.
    stack = make_stack(config={"unit": {"lease_s": 15}, "dispatch": {"period_s": 0.2}})
    holder, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(holder, beat)
    stack.models.behave("format", {"delay_s": 2.5}, calls=1)
    stack.enqueue(stack.papers.note())
    stack.wait_until(lambda: stack.open_calls("format"))
    stack.fault(holder)
    stack.change("update unit set lease_expires_at = now() - interval '1 s' where state = 'leased'")
    stack.wait_until(lambda: stack.count("unit where lost_leases = 1"))
    assert stack.open_calls("format")
    stack.wait_ended()
    check(stack)
    (unit,) = stack.rows("select state, lost_leases from unit where stage = 'format'")
    assert (unit.state, unit.lost_leases) == ("done", 1)
    # Answered twice, as the lease says it may be; stored once.
    assert paid_again(stack).total() == 1
    assert holder.alive
