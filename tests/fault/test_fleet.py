"""Eight processes, one primary that hangs for twenty seconds: how many calls it takes the fleet to know.

The same calls at the same times go through ``litellm.Router``, to another primary that hangs at the same time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

import pytest

from tests.fault.fleet import Fleet, Process
from tests.fault.member import Answered, Setup
from tests.fault.router import RouterCall, run_router
from tests.upstream import Call, UpstreamProcess
from tests.upstream.fixtures import ProcessFactory

PROCESSES, CALLS = 8, 25
MAX_PARALLEL = 8
OUTAGE_S = 20.0
TTFT_S, COOLDOWN_S, COOLDOWN_MAX_S = 1.0, 4.0, 8.0
JITTER = 0.1
# All at once as the outage begins, then steadily until the primary is back, then all at once again.
FIRST, LAST, STEADY_S = 5, 6, 25.0
ANSWER_S = 0.2
SLACK_S = 2.0


@dataclass(frozen=True)
class Counts:
    """What the primary saw of one run. Times count from the outage's begin."""

    wasted: int
    answered: int
    slowest_s: float
    median_s: float
    back_s: float | None
    after: list[Call]

    @classmethod
    def of(cls, primary: UpstreamProcess, began: float, waits_s: list[float]) -> Counts:
        calls = primary.calls("primary")
        after = [call for call in calls if call.received_at >= began + OUTAGE_S]
        answers = [call.received_at - began for call in after if call.outcome == "ok"]
        return cls(
            wasted=len(calls) - len(after),
            answered=len(waits_s),
            slowest_s=max(waits_s),
            median_s=median(waits_s),
            back_s=min(answers, default=None),
            after=after,
        )

    def line(self, name: str) -> str:
        back = "never" if self.back_s is None else f"{self.back_s - OUTAGE_S:.1f} s after its end"
        good = sum(call.outcome == "ok" for call in self.after)
        return (
            f"{name:15} calls lost on the primary during the outage {self.wasted:3} · answered {self.answered:3} of "
            f"{PROCESSES * CALLS} · a caller waited {self.median_s:.2f} s (median), {self.slowest_s:.2f} s (most) · "
            f"back on the primary {back}, {good} calls there"
        )


def schedule(number: int) -> list[float]:
    """When one process starts its calls, in seconds from the outage's begin; no two processes alike."""
    steady = CALLS - FIRST - LAST
    step_s = STEADY_S / steady
    return [0.0] * FIRST + [step_s * (n + 1 - number / PROCESSES) for n in range(steady)]


def elapsed_cooldowns() -> int:
    """The most cooldowns that can end within the outage: each probe waits for its timer and opens for longer."""
    at_s, length_s, ended = TTFT_S, COOLDOWN_S, 0
    while (at_s := at_s + min(length_s, COOLDOWN_MAX_S) * (1 - JITTER)) < OUTAGE_S:
        ended, length_s, at_s = ended + 1, 2 * length_s, at_s + TTFT_S
    return ended


@pytest.mark.behaviour(9, 10)
def test_a_fleet_wastes_few_calls_on_a_primary_that_hangs_and_is_back_on_it_soon(
    setup: Callable[..., Setup],
    primary: UpstreamProcess,
    upstream_process: ProcessFactory,
    redis_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = setup(max_parallel=MAX_PARALLEL, ttft_timeout_s=TTFT_S, cooldown_s=COOLDOWN_S, cooldown_max_s=COOLDOWN_MAX_S)
    routers_primary = upstream_process()
    theirs = replace(ours, redis_url=redis_url.replace("db=0", "db=1"), primary_url=routers_primary.base_url)
    with Fleet(ours, PROCESSES) as fleet, started(run_router, theirs) as routers:
        for host in (primary, routers_primary):
            host.behave("primary", {"first_content_s": ANSWER_S})
            host.behave("primary", "hang", seconds=OUTAGE_S)
        began = time.time()
        for group in (fleet.members, routers):
            for number, process in enumerate(group):
                process.order("follow", starts_s=schedule(number), at=began)
        for process in (*fleet.members, *routers):
            process.answer()
        back_at_s = time.time() - began
        while not primary.calls(
            "primary", outcome="ok"
        ):  # a slow machine: the primary's cooldown stands a little longer
            fleet.members[0].ask("call")
            assert time.time() - began < back_at_s + COOLDOWN_MAX_S + SLACK_S
        for process in (*fleet.members, *routers):
            process.order("call", calls=LAST)
        for process in (*fleet.members, *routers):
            process.answer()
        told = [member.ask("told") for member in fleet.members]
        router_calls: list[RouterCall] = [call for router in routers for call in router.ask("told")]
    answers: list[Answered] = [answer for answered, _, _ in told for answer in answered]

    counts = Counts.of(primary, began, [answer.seconds for answer in answers])
    router_counts = Counts.of(routers_primary, began, [call.seconds for call in router_calls if call.error is None])
    with capsys.disabled():
        print(f"\n{counts.line('Tidegate')}\n{router_counts.line('litellm.Router')}")
        if lost := Counter(call.error for call in router_calls if call.error):
            print(f"{'':15} not answered: {dict(lost)}")

    assert len(answers) >= PROCESSES * CALLS
    assert max(answer.seconds for answer in answers) < OUTAGE_S
    assert counts.wasted <= MAX_PARALLEL + elapsed_cooldowns()
    assert primary.peak_in_flight("primary") <= MAX_PARALLEL
    # Back within the cooldown that stood when the outage ended.
    assert counts.back_s is not None
    assert counts.back_s <= max(until for _, cooled_until, _ in told for until in cooled_until) - began + SLACK_S
    # It ramps up: one call more at a time for each that succeeded, and nearly to the full at last.
    for number, call in enumerate(counts.after):
        before = [other for other in counts.after[:number] if other.ended_at and other.ended_at <= call.received_at]
        assert call.in_flight_at_start <= 1 + len(before)
    assert max(call.in_flight_at_start for call in counts.after) > MAX_PARALLEL // 2


@contextmanager
def started(work: Callable[..., None], setup: Setup) -> Iterator[list[Process]]:
    """As many processes of some other work; they are ready when the block begins."""
    group = [Process(work, setup) for _ in range(PROCESSES)]
    for process in group:
        assert process.answer() == "ready"
    yield group
    for process in group:
        process.end()
