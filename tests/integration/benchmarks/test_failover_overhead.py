"""The benchmark measures what it says: every lane reads the whole answer, and bars are judged round by round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from benchmarks.contestant import measure
from benchmarks.failover_overhead import BARS, SCENARIOS, judge, medians, ratio, report
from benchmarks.lanes import LANES, Lane, Places
from benchmarks.sse_server import Connection, answer_text

WITHOUT_SERVICES = ("raw", "fast")


@pytest.fixture
async def places() -> AsyncIterator[Places]:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield Places(f"http://127.0.0.1:{port}/v1")
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("name", WITHOUT_SERVICES)
@pytest.mark.parametrize(
    ("gap_ms", "stream"), [(0, True), (1, True), (0, False)], ids=["burst", "paced", "not streamed"]
)
async def test_a_lane_reads_the_whole_answer_and_is_measured(
    name: str, gap_ms: int, stream: bool, places: Places
) -> None:
    lane = LANES[name](places)
    await lane.open()
    order = {"tokens": 7, "gap_ms": gap_ms, "stream": stream, "calls": 3, "at_once": 2}
    found = await measure(lane, order)
    await lane.close()
    assert found["cpu_ms"] > 0
    assert found["wall_ms"] > 0


async def test_a_lane_that_reads_less_is_no_contestant(places: Places) -> None:
    class Lazy(Lane):
        async def open(self) -> None:
            """Nothing to make."""

        async def call(self, wish: str, *, stream: bool) -> str:
            return answer_text(int(wish.split()[0]) - 1)

    order = {"tokens": 7, "gap_ms": 0, "stream": True, "calls": 1, "at_once": 1}
    with pytest.raises(AssertionError, match="characters instead of"):
        await measure(Lazy(places), order)


async def test_paced_tokens_come_one_by_one(places: Places) -> None:
    lane = LANES["raw"](places)
    await lane.open()
    found = await measure(lane, {"tokens": 10, "gap_ms": 5, "stream": True, "calls": 1, "at_once": 1})
    await lane.close()
    assert found["reads"] > 1


def test_a_ratio_is_of_one_round_never_of_two_different_ones() -> None:
    slow_and_fast = [{"cpu_ms": 10.0}, {"cpu_ms": 1.0}, {"cpu_ms": 4.0}]
    assert ratio(slow_and_fast, [{"cpu_ms": 5.0}, {"cpu_ms": 0.5}, {"cpu_ms": 2.0}]) == 2.0
    assert medians(slow_and_fast) == {"cpu_ms": 4.0}


def test_bars_name_lanes_and_scenarios_that_there_are() -> None:
    names = {scenario.name for scenario in SCENARIOS}
    assert all({bar.lane, bar.beside} <= set(LANES) and set(bar.scenarios) <= names for bar in BARS)


def test_a_missed_bar_is_told_with_what_was_found() -> None:
    rounds = {"fast+core": [{"cpu_ms": 16.0}], "raw": [{"cpu_ms": 10.0}], "router": [{"cpu_ms": 160.0}]}
    verdicts = judge({"500 paced": rounds})
    assert [(verdict["found"], verdict["held"]) for verdict in verdicts] == [(1.6, False), (0.1, True)]
    assert report({"500 paced": rounds})["500 paced"]["fast+core"]["times_the_limit"] == 1.6
