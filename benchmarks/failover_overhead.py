"""What the failover core costs a call, beside a bare socket and beside litellm's own failover, in one run.

    python -m benchmarks.failover_overhead [--quick] [--json FILE] [--check]

Every lane of ``benchmarks.lanes`` runs in a process of its own; the server, Valkey and Postgres are others', so a
lane's CPU time is the client's alone: user and system time of all its threads. Lanes take turns, one at a time, in an
order that is drawn anew for every round. A figure is the median of the rounds; a ratio is the median of the *rounds'*
ratios, so that what slows the whole machine down for a while slows both sides.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.lanes import LANES, Places
from benchmarks.machine import machine
from pipeline.store.migrate import upgrade
from pipeline.store.session import make_engine
from worker.embedded import EmbeddedPostgres, EmbeddedValkey

__all__ = ["BARS", "SCENARIOS", "Bar", "Scenario", "main", "run"]

ROOT = Path(__file__).parents[1]
LIMIT = "raw"


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is asked of every lane.

    Attributes:
        calls: Measured in a round.
        at_once: How many of them run at the same time.
    """

    name: str
    tokens: int
    gap_ms: int
    calls: int
    at_once: int = 1
    stream: bool = True

    def order(self) -> dict[str, Any]:
        """As ``benchmarks.contestant`` takes it."""
        return {field: value for field, value in asdict(self).items() if field != "name"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise about a lane's CPU time: at most ``most`` times that of another lane, in each of the scenarios."""

    lane: str
    beside: str
    most: float
    scenarios: tuple[str, ...]
    text: str


SCENARIOS = (
    Scenario("20 burst", 20, 0, calls=60),
    Scenario("500 burst", 500, 0, calls=15),
    Scenario("20 paced", 20, 4, calls=60, at_once=20),
    Scenario("500 paced", 500, 4, calls=20, at_once=20),
    Scenario("whole", 500, 0, calls=60, stream=False),
)
BARS = (
    Bar("fast+core", LIMIT, 1.5, ("500 paced",), "fast lane with the core ≤ 1.5 × the limit"),
    Bar("fast+core", "router", 1 / 8, ("500 paced",), "fast lane with the core ≤ 1/8 of the Router"),
    Bar("litellm-lane+core", "litellm-lane", 1.05, ("500 paced",), "the core adds ≤ 5 % to the litellm lane"),
)


class Contestant:
    """A lane's process."""

    def __init__(self, lane: str, places: Places) -> None:
        command = [sys.executable, "-m", "benchmarks.contestant", lane]
        self._process = _start(command)
        self._tell(asdict(places))

    def carry_out(self, order: Mapping[str, Any]) -> dict[str, float]:
        """Have one order carried out.

        Raises:
            RuntimeError: The process has ended; why stands on standard error.
        """
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # the empty answer says it
            self._tell(order)
        line = self._process.stdout.readline()
        if not line:
            msg = f"{self._process.args!r} ended with {self._process.wait()}"
            raise RuntimeError(msg)
        measured: dict[str, float] = orjson.loads(line)
        return measured

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _tell(self, line: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(line) + b"\n")
        self._process.stdin.flush()


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    # In a session of its own: an interrupt is for this process, which ends the others by closing their input.
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


@contextmanager
def _services() -> Iterator[tuple[str, str]]:
    """A Valkey and a migrated Postgres of our own; their URLs."""
    home = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    valkey, postgres = EmbeddedValkey(home, durable=False), EmbeddedPostgres(home, durable=False)
    try:
        valkey.start()
        postgres.start()
        engine = make_engine(postgres.url, pool_size=2)
        upgrade(engine)
        engine.dispose()
        yield valkey.url, postgres.url
    finally:
        postgres.stop()
        valkey.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _server() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.sse_server"]
    process = _start(command)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.communicate()


def run(
    scenarios: Sequence[Scenario], lanes: Sequence[str], rounds: int, profiles: Path | None = None
) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Measure; returns the rounds by scenario and lane.

    Args:
        scenarios: What is asked.
        lanes: Of ``benchmarks.lanes.LANES``.
        rounds: How often.
        profiles: A folder for cProfile's statistics; the figures are then worth nothing.
    """
    order_of = random.Random(1)  # noqa: S311  (the order of turns)
    results: dict[str, dict[str, list[dict[str, float]]]] = {
        scenario.name: {lane: [] for lane in lanes} for scenario in scenarios
    }
    with ExitStack() as stack:
        redis_url, database_url = stack.enter_context(_services())
        places = Places(stack.enter_context(_server()), redis_url, database_url)
        contestants = {}
        for lane in lanes:
            contestants[lane] = Contestant(lane, places)
            stack.callback(contestants[lane].close)
        for number in range(rounds):
            for scenario in scenarios:
                for lane in order_of.sample(list(lanes), len(lanes)):
                    order = scenario.order()
                    if profiles is not None:
                        order["profile"] = str(profiles / f"{lane}.{scenario.name.replace(' ', '-')}.{number}.prof")
                    results[scenario.name][lane].append(contestants[lane].carry_out(order))
                print(f"round {number + 1} of {rounds}: {scenario.name}", file=sys.stderr)
    return results


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each figure's median over the rounds."""
    return {figure: statistics.median(each[figure] for each in rounds) for figure in rounds[0]}


def ratio(rounds: Sequence[Mapping[str, float]], beside: Sequence[Mapping[str, float]]) -> float:
    """How many times the CPU time of ``beside``: the median of the rounds' own ratios."""
    return statistics.median(ours["cpu_ms"] / theirs["cpu_ms"] for ours, theirs in zip(rounds, beside, strict=True))


def judge(results: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> list[dict[str, Any]]:
    """The bars whose lanes and scenarios were measured, with what was found."""
    verdicts = []
    for bar in BARS:
        for scenario in bar.scenarios:
            lanes = results.get(scenario, {})
            if bar.lane in lanes and bar.beside in lanes:
                found = ratio(lanes[bar.lane], lanes[bar.beside])
                verdicts.append(
                    {"bar": bar.text, "scenario": scenario, "most": bar.most, "found": found, "held": found <= bar.most}
                )
    return verdicts


def report(results: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> dict[str, Any]:
    """What the JSON file holds beside the rounds: medians and ratios to the limit."""
    summary: dict[str, Any] = {}
    for scenario, lanes in results.items():
        summary[scenario] = {}
        for lane, rounds in lanes.items():
            summary[scenario][lane] = medians(rounds)
            if LIMIT in lanes:
                summary[scenario][lane]["times_the_limit"] = ratio(rounds, lanes[LIMIT])
    return summary


def _print(console: Console, found: Mapping[str, Any]) -> None:
    table = Table(title="CPU ms a call (× the limit) · wall ms a call", title_justify="left")
    table.add_column("lane")
    for scenario in found["summary"]:
        table.add_column(scenario, justify="right")
    table.add_column("RSS MB", justify="right")
    for lane in next(iter(found["summary"].values())):
        cells, rss_mb = [], 0.0
        for lanes in found["summary"].values():
            figures = lanes[lane]
            times = f" ({figures['times_the_limit']:.2f})" if "times_the_limit" in figures else ""
            cells.append(f"{figures['cpu_ms']:.2f}{times} · {figures['wall_ms']:.1f}")
            rss_mb = max(rss_mb, figures["rss_mb"])
        table.add_row(lane, *cells, f"{rss_mb:.0f}")
    console.print(table)
    for lane in next(iter(found["summary"].values())):
        console.print(f"  {lane}: {LANES[lane].about}", highlight=False)
    for scenario, lanes in found["summary"].items():
        if LIMIT in lanes and lanes[LIMIT]["reads"]:
            console.print(f"  {scenario}: {lanes[LIMIT]['reads']:.0f} reads of the socket a call", highlight=False)
    for verdict in found["bars"]:
        mark = "held  " if verdict["held"] else "MISSED"
        console.print(
            f"{mark} {verdict['bar']}, {verdict['scenario']}: {verdict['found']:.3f} of at most {verdict['most']:.3f}",
            highlight=False,
        )
    host = found["machine"]
    console.print(
        f"{host['cpu']}, {host['cores']} cores, load {host['load'][0]} before and {found['load_after'][0]} after, "
        f"Python {host['python']}, {found['rounds']} rounds",
        highlight=False,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 when ``--check`` was given and a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover_overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="two rounds of a few calls: does it run at all")
    parser.add_argument("--lane", action="append", choices=list(LANES), help="only these lanes")
    parser.add_argument("--scenario", action="append", choices=[s.name for s in SCENARIOS], help="only these")
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--check", action="store_true", help="fail when a bar is missed")
    parser.add_argument("--profile", type=Path, help="write cProfile's statistics into this folder")
    given = parser.parse_args(arguments)
    scenarios = [s for s in SCENARIOS if given.scenario is None or s.name in given.scenario]
    if given.quick:
        scenarios = [replace(s, calls=min(s.calls, 4), at_once=min(s.at_once, 4)) for s in scenarios]
    before = machine()
    rounds = 2 if given.quick else given.rounds
    if given.profile is not None:
        given.profile.mkdir(parents=True, exist_ok=True)
    results = run(scenarios, given.lane or list(LANES), rounds, given.profile)
    found = {
        "machine": before,
        "load_after": machine()["load"],
        "rounds": rounds,
        "scenarios": [asdict(scenario) for scenario in scenarios],
        "summary": report(results),
        "bars": judge(results),
        "results": results,
    }
    if given.json is not None:
        given.json.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    _print(Console(width=None if sys.stdout.isatty() else 200), found)
    return 1 if given.check and not all(verdict["held"] for verdict in found["bars"]) else 0


if __name__ == "__main__":
    sys.exit(main())
