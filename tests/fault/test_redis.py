"""Redis flushed, killed, frozen and cut off: it carries wake-ups and cooldowns, and no work is lost with it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store.switches import set_switch
from tests.fault.checks import check, paid_again
from tests.fault.stack import Program, Stack, wait_for

_SLOW = {"first_content_s": 1.5}
_REGISTRY_S = 2.0
"""``registry.timeout_s`` of the stack."""
_PUBLISH_S = 9.0
"""3 s for a connection, 5 s for an answer, and what a busy machine adds."""


def test_flushed_redis_loses_no_work_and_no_kill_switch(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack(config={"presets": {"format": {"fallbacks": ["cues"]}}})
    key = stack.container.chains.chain("vlm_formatter").primary.key
    with stack.container.sessions.begin() as session:
        set_switch(session, key, disabled=True)
    worker = _running(stack)
    stack.models.behave("cues", _SLOW, calls=4)
    stack.enqueue(*stack.papers.notes(3))
    stack.wait_until(lambda: stack.open_calls("cues"))
    stack.servers.flush_redis()
    stack.enqueue(*stack.papers.notes(2))
    stack.wait_until(lambda: stack.count("run where state = 'done'") > 2)
    stack.servers.flush_redis()
    _messages_are_missed(stack)
    stack.wait_ended()
    check(stack)
    assert not paid_again(stack)
    assert not stack.models.calls("format")
    assert _warnings(worker) == []


def test_redis_killed_in_the_middle_of_units_delays_only_what_was_not_handed_out(stack: Stack) -> None:
    worker = _running(stack)
    stack.models.behave("cues", _SLOW, calls=4)
    stack.enqueue(*stack.papers.notes(2))
    stack.wait_until(lambda: len(stack.open_calls("cues")) == 4)
    stack.servers.redis.kill()
    try:
        open_then = stack.count("unit where state = 'leased'")
        # The units that are at work end, those after them in their slices too: with local breakers.
        stack.wait_until(lambda: not stack.count("unit where state = 'leased'"))
        assert open_then
        assert stack.count("unit where stage = 'retrieve' and state = 'done'") >= open_then
    finally:
        stack.servers.redis.start()
    stack.enqueue(stack.papers.note())
    stack.wait_ended()
    check(stack)
    assert not paid_again(stack)
    # One line of each of those that missed it: consumer, registry, dispatcher.
    assert sorted(_warnings(worker)) == ["broker.lost", "dispatch.failed", "registry.degraded"]
    assert wait_for(lambda: {"broker.restored", "registry.restored"} <= set(_events(worker)))


def test_frozen_redis_holds_nobody_longer_than_its_timeouts(stack: Stack) -> None:
    worker = _running(stack)
    stack.models.behave("cues", _SLOW, calls=1)
    stack.enqueue(stack.papers.note(6))
    stack.wait_until(lambda: stack.open_calls("cues"))
    with _frozen(stack):
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable, match="Redis does not take messages"):
            stack.enqueue(*stack.papers.notes(2))
        assert time.monotonic() - began < _PUBLISH_S
        assert stack.count("run") == 3
        assert stack.count("unit where dispatched_at is not null and run_id > 1") == 0
        # The slice that is at work goes on: each of its calls asks the registry in vain once, and then no more.
        stack.wait_until(lambda: not stack.count("unit where state = 'leased'"), timeout_s=_SLOW_SLICE_S)
    stack.wait_ended()
    check(stack)
    assert not paid_again(stack)
    assert set(_warnings(worker)) <= {"broker.lost", "dispatch.failed", "registry.degraded"}
    assert len(set(_warnings(worker))) == len(_warnings(worker))


def test_a_message_redelivered_while_its_unit_is_at_work_calls_no_model(stack: Stack) -> None:
    worker = _running(stack)
    stack.models.behave("cues", _SLOW, calls=4)
    stack.enqueue(*stack.papers.notes(2))
    stack.wait_until(lambda: len(stack.open_calls("cues")) == 4)
    client = redis.Redis.from_url(stack.servers.redis_url)
    try:
        killed = sum(client.client_kill_filter(_type=kind, skipme=True) for kind in ("normal", "pubsub"))
    finally:
        client.close()
    assert killed
    stack.wait_ended()
    check(stack)
    assert not paid_again(stack)
    assert set(_warnings(worker)) <= {"broker.lost", "dispatch.failed"}
    assert "broker.lost" in _warnings(worker)


_SLOW_SLICE_S = 2 * _REGISTRY_S + 4


def _running(stack: Stack) -> Program:
    """A worker, and a beat beside it."""
    worker, beat = stack.worker(ready=False), stack.beat(ready=False)
    stack.wait_ready(worker, beat)
    return worker


def _messages_are_missed(stack: Stack) -> None:
    """Two minutes go by for the messages that were in Redis."""
    stack.pass_time(130)


@contextmanager
def _frozen(stack: Stack) -> Iterator[None]:
    stack.servers.redis.freeze()
    try:
        yield
    finally:
        stack.servers.redis.thaw()


def _said(program: Program) -> list[dict[str, str]]:
    assert program.alive
    assert "Traceback" not in program.said(), program.said()
    return [json.loads(line) for line in program.said().splitlines()]


def _events(program: Program) -> list[str]:
    return [line["event"] for line in _said(program)]


def _warnings(program: Program) -> list[str]:
    return [line["event"] for line in _said(program) if line["level"] != "info"]
