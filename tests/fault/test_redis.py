"""Redis flushed, killed, frozen and cut off: it carries wake-ups and cooldowns, and no work is lost with it.

One worker and one beat live through all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
import redis

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.unit import Stage
from pipeline.store.switches import set_switch
from pipeline.store.window import Slice
from tests.fault.checks import check, paid_again
from tests.fault.heard import Heard
from tests.fault.servers import Servers
from tests.fault.stack import Program, Stack, wait_for
from tests.services import replica_of_nobody
from tests.upstream import UpstreamProcess

_SLOW = {"first_content_s": 1.5}
_REGISTRY_S = 2.0
"""``registry.timeout_s`` of the stack."""
_PUBLISH_S = 9.0
"""3 s for a connection, 5 s for an answer, and what a busy machine adds."""
_SLOW_SLICE_S = 2 * _REGISTRY_S + 6
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def stack(servers: Servers, models: UpstreamProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(
        servers, models, tmp_path_factory.mktemp("stack"), config={"presets": {"format": {"fallbacks": ["cues"]}}}
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def running(stack: Stack) -> Program:
    """The worker."""
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    return worker


@pytest.fixture
def worker(stack: Stack, running: Program) -> Heard:
    """What the worker says in this test."""
    stack.models.clear()
    return Heard(running)


def _nothing_is_repeated(stack: Stack) -> None:
    stack.wait_ended(timeout_s=_PATIENCE_S)
    check(stack)
    assert not paid_again(stack)


def test_redis_killed_in_the_middle_of_units_delays_only_what_was_not_handed_out(stack: Stack, worker: Heard) -> None:
    stack.models.behave("cues", _SLOW, calls=4)
    runs = stack.enqueue(*stack.papers.notes(2))
    stack.wait_until(lambda: len(stack.open_calls("cues")) == 4)
    stack.servers.redis.kill()
    try:
        open_then = stack.count("unit where state = 'leased'")
        # The units that are at work end, those after them in their slices too: with local breakers.
        stack.wait_until(lambda: not stack.count("unit where state = 'leased'"))
        assert open_then
        done = "unit where stage = 'retrieve' and state = 'done' and run_id = any(:runs)"
        assert stack.count(done, runs=runs) >= open_then
    finally:
        stack.servers.redis.start()
    stack.enqueue(stack.papers.note())
    _nothing_is_repeated(stack)
    # One line of each of those that missed it: consumer, registry, dispatcher.
    assert sorted(worker.warnings) == ["broker.lost", "dispatch.failed", "registry.degraded"]

    def is_restored() -> bool:
        # Whether the registry answers again is noticed when a model is called.
        if not stack.count("run where state <> 'done'"):
            stack.enqueue(stack.papers.note())
        return {"broker.restored", "registry.restored"} <= set(worker.events)

    assert wait_for(is_restored)
    _nothing_is_repeated(stack)


def test_frozen_redis_holds_nobody_longer_than_its_timeouts(stack: Stack, worker: Heard) -> None:
    stack.models.behave("cues", _SLOW, calls=1)
    stack.enqueue(stack.papers.note(6))
    stack.wait_until(lambda: stack.open_calls("cues"))
    with _frozen(stack):
        accepted = stack.enqueue(*stack.papers.notes(2), hand_out=False)
        # Nobody knows of this unit; were it heard of after all, there would be nothing to claim.
        message = Slice(accepted[0], uuid4(), Stage.EMBED, (99,), wake=0)
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable, match="Redis does not take messages"):
            stack.container.publish([message])
        assert time.monotonic() - began < _PUBLISH_S
        # The slice that is at work goes on: each of its calls asks the registry in vain once, and then no more.
        stack.wait_until(lambda: not stack.count("unit where state = 'leased'"), timeout_s=_SLOW_SLICE_S)
    _nothing_is_repeated(stack)
    assert set(worker.warnings) <= {"broker.lost", "dispatch.failed", "registry.degraded"}
    assert len(set(worker.warnings)) == len(worker.warnings)
    # A broker that is still away is not lost again.
    assert "broker.lost" not in worker.warnings or wait_for(lambda: "broker.restored" in worker.events)


def test_a_message_redelivered_while_its_unit_is_at_work_calls_no_model(stack: Stack, worker: Heard) -> None:
    stack.models.behave("cues", _SLOW, calls=4)
    stack.enqueue(*stack.papers.notes(2))
    stack.wait_until(lambda: len(stack.open_calls("cues")) == 4)
    client = redis.Redis.from_url(stack.servers.redis_url)
    try:
        killed = sum(client.client_kill_filter(_type=kind, skipme=True) for kind in ("normal", "pubsub"))
    finally:
        client.close()
    assert killed
    _nothing_is_repeated(stack)
    assert wait_for(lambda: "broker.lost" in worker.warnings)
    assert set(worker.warnings) <= {"broker.lost", "dispatch.failed"}


def test_a_redis_that_takes_no_writes_is_waited_for_like_one_that_is_gone(stack: Stack, worker: Heard) -> None:
    stack.models.behave("cues", _SLOW, calls=4)
    runs = stack.enqueue(*stack.papers.notes(2))
    stack.wait_until(lambda: len(stack.open_calls("cues")) == 4)
    with replica_of_nobody(stack.servers.redis_url):
        stack.wait_until(lambda: "broker.lost" in worker.warnings)
        stack.wait_until(lambda: not stack.count("unit where state = 'leased'"))
        assert stack.count("unit where stage = 'retrieve' and state = 'done' and run_id = any(:runs)", runs=runs) >= 4
    stack.enqueue(stack.papers.note())
    _nothing_is_repeated(stack)
    assert worker.warnings.count("broker.lost") == 1
    assert worker.events.count("broker.restored") == 1
    assert set(worker.warnings) <= {"broker.lost", "dispatch.failed", "registry.degraded"}


def test_flushed_redis_loses_no_work_and_no_kill_switch(stack: Stack, worker: Heard) -> None:
    target = stack.container.chains.chain("vlm_formatter").primary.key
    asked_before = len(stack.models.calls("format"))
    with stack.container.sessions.begin() as session:
        set_switch(session, target, disabled=True)
    # As the registry is told by the command: its cache is read anew.
    stack.servers.flush_redis()
    stack.models.behave("cues", _SLOW, calls=4)
    runs = stack.enqueue(*stack.papers.notes(3))
    stack.wait_until(lambda: stack.open_calls("cues"))
    stack.servers.flush_redis()
    runs += stack.enqueue(*stack.papers.notes(2))
    stack.wait_until(lambda: stack.count("run where state = 'done' and id = any(:runs)", runs=runs) > 2)
    stack.servers.flush_redis()
    _nothing_is_repeated(stack)
    assert len(stack.models.calls("format")) == asked_before
    assert worker.warnings == []


@contextmanager
def _frozen(stack: Stack) -> Iterator[None]:
    stack.servers.redis.freeze()
    try:
        yield
    finally:
        stack.servers.redis.thaw()
