"""Messages are wake-ups: lost, doubled, late or out of order, they cost no call and lose no document."""

from __future__ import annotations

import signal
import subprocess
import sys

import redis

from pipeline.domain.unit import QUEUES, Stage
from pipeline.store.window import Slice
from tests.fault.checks import check, paid_again
from tests.fault.stack import REPO, Stack

_LONGER_THAN_A_WAKE_S = 150.0


def test_what_a_process_committed_and_died_before_sending_is_handed_out_by_the_beat(stack: Stack) -> None:
    stack.worker()
    papers = [*stack.papers.notes(2), stack.papers.sheets(1)]
    died = subprocess.run(
        [sys.executable, "-m", "tests.fault.dying", *map(str, papers)],
        cwd=REPO,
        env=stack.environment,
        capture_output=True,
        timeout=60,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert stack.count("unit where state = 'pending' and dispatched_at is not null") == len(papers)
    assert _waiting(stack) == 0
    stack.beat()
    # The beat can't know that the messages were never sent, until the wake's time is over.
    stack.pass_time(_LONGER_THAN_A_WAKE_S)
    stack.wait_ended()
    check(stack)
    assert not paid_again(stack)


def test_a_message_delivered_three_times_and_out_of_order_is_one_call(stack: Stack) -> None:
    """Every slice of three documents, three times and shuffled, before most of them are due; and with two beats."""
    workers = [stack.worker(ready=False), stack.worker(ready=False)]
    beats = [stack.beat(ready=False), stack.beat(ready=False)]
    stack.wait_ready(*workers, *beats)
    stack.models.behave("*", {"delay_s": 0.2})
    runs = stack.enqueue(*[stack.papers.sheets(2) for _ in range(3)], hand_out=False)
    documents = dict(row for row in stack.rows("select id, document_id from run"))
    slices = [
        Slice(run, documents[run], stage, ordinals, wake=10_000)
        for run in runs
        for stage in Stage
        for ordinals in ((0,), (1, 2), (2,), (1, 2, 3, 4, 5, 6))
        for _ in range(3)
    ]
    stack.rng.shuffle(slices)
    stack.container.publish(slices)
    stack.container.dispatch()
    for some in (3, 9, 15):
        # And again, now that there is something to be late for.
        stack.wait_until(lambda some=some: stack.count("unit where state = 'done'") >= some)  # type: ignore[misc]
        stack.rng.shuffle(slices)
        stack.container.publish(slices[:40])
    stack.wait_ended()
    stack.wait_until(lambda: _waiting(stack) == 0)
    check(stack)
    assert not paid_again(stack)
    assert stack.count("unit where lost_leases > 0") == 0


def test_a_task_slower_than_the_visibility_timeout_is_called_for_once(stack: Stack) -> None:
    words = ("worker", "--threads", "4")
    workers = [stack.start("worker", words, "all", ready=False, by=("-m", "tests.fault.impatient")) for _ in range(2)]
    stack.wait_ready(*workers, stack.beat(ready=False))
    stack.models.behave("format", {"delay_s": 4.0})
    stack.enqueue(stack.papers.note())
    stack.wait_ended()
    check(stack)
    assert len(stack.models.calls("format")) == 1
    assert not paid_again(stack)
    assert sum(worker.said().count("delivered format:") for worker in workers) > 1


def test_two_beats_count_a_death_once(stack: Stack) -> None:
    worker, *beats = stack.worker(ready=False), stack.beat(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, *beats)
    stack.models.behave("format", "hang", calls=3)
    stack.enqueue(*stack.papers.notes(3))
    stack.wait_until(lambda: len(stack.open_calls("format")) == 3)
    stack.kill(worker)
    stack.again(worker)
    stack.wait_ended()
    check(stack)
    assert [row.lost_leases for row in stack.rows("select lost_leases from unit where stage = 'format'")] == [1, 1, 1]
    assert paid_again(stack).total() == 3


def _waiting(stack: Stack) -> int:
    """Messages in the queues, those that are being worked on aside."""
    client = redis.Redis.from_url(stack.servers.redis_url)
    try:
        return sum(int(client.llen(f"{stack.container.key_prefix}:{queue.value}")) for queue in QUEUES)
    finally:
        client.close()
