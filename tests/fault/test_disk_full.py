"""No space left where the blobs lie: work waits, nothing fails, and it goes on by itself when there is space again."""

from __future__ import annotations

from tests.fault.checks import check, paid_again
from tests.fault.stack import Stack

_BELOW_A_PAGE_IMAGE_BYTES = 30_000


def test_documents_wait_while_the_blob_store_is_full_and_are_done_when_it_is_not(stack: Stack) -> None:
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    worker.limit_files(_BELOW_A_PAGE_IMAGE_BYTES)
    pictured, plain = stack.enqueue(stack.papers.sheets(2), stack.papers.note())
    # What needs no space is not held up by what does.
    stack.wait_ended(plain)
    stack.wait_until(lambda: "no space left" in worker.said())
    assert stack.rows("select state from run where id = :r", r=pictured)[0].state in ("queued", "running")
    assert not stack.models.calls("vision")
    worker.limit_files(None)
    stack.pass_time(150)
    stack.wait_ended()
    check(stack)
    assert not paid_again(stack)
    assert stack.count("unit where lost_leases > 0") == 0
    assert worker.alive
