"""What one process of a fleet knows, the others know at their next call: real processes, Redis and HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from pipeline.domain.call import SkipReason
from pipeline.failover.registry import BreakerState
from tests.fault.fleet import Fleet
from tests.fault.member import Answered, Setup
from tests.upstream import UpstreamProcess

Make = Callable[..., Setup]
HANGS = {"as": "hang"}


def why(answered: Answered) -> list[SkipReason]:
    return [skip.reason for skip in answered.skipped]


@pytest.mark.behaviour(9)
def test_what_one_process_found_busy_another_skips_on_its_very_next_call(setup: Make, primary: UpstreamProcess) -> None:
    primary.behave("primary", "overloaded")
    with Fleet(setup(), 2) as fleet:
        first, second = fleet.members
        [found] = first.ask("call")
        assert (found.position, found.tried) == (1, ("overloaded", None))
        [skipped] = second.ask("call")
        assert (skipped.position, why(skipped)) == (1, [SkipReason.COOLING])
    assert len(primary.calls()) == 1


@pytest.mark.behaviour(9)
def test_clocks_that_disagree_by_a_minute_agree_on_who_cools(setup: Make, primary: UpstreamProcess) -> None:
    primary.behave("primary", {"as": "overloaded", "headers": {"Retry-After": "3"}}, calls=1)
    with Fleet(setup(), 3, clocks_off_s=(0.0, 60.0, -60.0)) as fleet:
        right, fast, slow = fleet.members
        right.ask("call")
        cools_until = time.time() + 3
        assert [why(each.ask("call")[0]) for each in (fast, slow)] == [[SkipReason.COOLING]] * 2
        assert fleet.status().until == pytest.approx(cools_until, abs=1.5)
        fleet.wait_until(lambda: fleet.status().state is BreakerState.HALF_OPEN)
        assert time.time() >= cools_until - 1.5
        # The clock that is a minute behind does not make its process wait for that minute.
        assert slow.ask("call")[0].position == 0
        assert fleet.status().state is BreakerState.CLOSED
    assert len(primary.calls()) == 2


@pytest.mark.behaviour(10, 11)
def test_fifty_calls_at_expiry_are_one_probe_and_when_its_process_is_killed_another_probes(
    setup: Make, primary: UpstreamProcess
) -> None:
    primary.behave("primary", HANGS)
    primary.behave("primary", "overloaded", calls=1)
    with Fleet(setup(cooldown_s=0.5, permit_ttl_s=8.0, max_parallel=None, ttft_timeout_s=60.0), 5) as fleet:
        fleet.members[0].ask("call")
        fleet.wait_until(lambda: fleet.status().state is BreakerState.HALF_OPEN)
        fleet.ask_all("start", calls=10)
        answers: list[list[Answered]] = []

        def all_but_the_probe() -> bool:
            answers[:] = [answered for answered, _, _ in fleet.ask_all("told")]
            return sum(map(len, answers)) == 1 + 49

        fleet.wait_until(all_but_the_probe)
        since = answers[0][1:] + [each for later in answers[1:] for each in later]
        assert {answered.position for answered in since} == {1}
        assert {reason for answered in since for reason in why(answered)} == {SkipReason.PROBING}
        assert len(primary.calls()) == 2

        held = [len(answered) - (number == 0) for number, answered in enumerate(answers)]
        prober = fleet.members[held.index(9)]
        prober.kill()
        primary.wait_for_calls(1, outcome="client_closed")
        primary.clear()
        other = fleet.members[held.index(10)]
        [meanwhile] = other.ask("call")
        assert (meanwhile.position, why(meanwhile)) == (1, [SkipReason.PROBING])
        fleet.wait_until(lambda: not fleet.status().probing)
        [probe] = other.ask("call")
        assert probe.position == 0
        assert fleet.status().state is BreakerState.CLOSED
    assert len(primary.calls()) == 3


@pytest.mark.behaviour(21)
def test_permits_go_back_with_every_end_of_a_call_and_of_its_process(setup: Make, primary: UpstreamProcess) -> None:
    primary.behave("primary", HANGS, prompt_contains="hang")
    primary.behave("primary", "bad_request", prompt_contains="bad")
    with Fleet(setup(max_parallel=3, permit_ttl_s=2.0), 2) as fleet:
        first, second = fleet.members
        assert [answered.position for answered in first.ask("call", calls=2)] == [0, 0]
        assert fleet.status().in_flight == 0
        assert first.ask("call", text="bad")[0].tried == ("invalid_request", None)
        assert fleet.status().in_flight == 0

        first.ask("start", text="hang", calls=2)
        primary.wait_for_calls(2, outcome="open")
        assert fleet.status().in_flight == 2
        first.ask("cancel")
        assert fleet.status().in_flight == 0
        primary.wait_for_calls(2, outcome="client_closed")

        second.ask("start", text="hang", calls=2)
        primary.wait_for_calls(2, outcome="open")
        assert fleet.status().in_flight == 2
        second.kill()
        fleet.wait_until(lambda: fleet.status().in_flight == 0, timeout_s=5)
        assert fleet.status().state is BreakerState.CLOSED


@pytest.mark.behaviour(21)
def test_eight_processes_never_have_five_calls_at_a_server_that_takes_four_even_when_one_is_killed(
    setup: Make, primary: UpstreamProcess
) -> None:
    primary.behave("primary", {"first_content_s": 0.1})
    primary.behave("primary", HANGS, prompt_contains="hang")
    with Fleet(setup(max_parallel=4, permit_ttl_s=6.0, ttft_timeout_s=60.0), 8) as fleet:
        assert {answered.position for answered in fleet.call_all(calls=4)} == {0}
        assert primary.peak_in_flight() == 4

        doomed, *others = fleet.members
        doomed.ask("start", text="hang", calls=4)
        primary.wait_for_calls(4, outcome="open")
        for member in others:
            member.order("call", calls=2)
        doomed.kill()
        primary.wait_for_calls(4, outcome="client_closed")
        # Its permits are still lent: nobody is let in for them before their lease is over.
        assert fleet.status().in_flight == 4
        assert len(primary.calls()) == 32 + 4
        answers = [answered for member in others for answered in member.answer()]
        assert [answered.position for answered in answers] == [0] * 14
        assert fleet.status().in_flight == 0
    assert primary.peak_in_flight() == 4


@pytest.mark.behaviour(23)
def test_a_redis_that_stands_still_costs_each_process_the_bound_once(setup: Make, redis_url: str) -> None:
    bound_s = 0.25
    with Fleet(setup(registry_timeout_s=bound_s), 4) as fleet, redis.Redis.from_url(redis_url) as client:
        usual: list[list[Answered]] = [fleet.call_all() for _ in range(3)]
        usual_s = max(answered.seconds for answers in usual for answered in answers)
        client.execute_command("CLIENT", "PAUSE", "2000", "ALL")
        paused: list[Any] = fleet.ask_all("call")
        later: list[Any] = fleet.ask_all("call")
        said = [degraded for _, _, degraded in fleet.ask_all("told")]
    assert [answered.position for answers in (*paused, *later) for answered in answers] == [0] * 8
    assert max(answered.seconds for answers in paused for answered in answers) <= bound_s + max(0.25, 2 * usual_s)
    assert max(answered.seconds for answers in later for answered in answers) <= max(0.2, 2 * usual_s)
    assert said == [[f"Redis did not answer within {bound_s:g} s"]] * 4
