"""Who is served while others wait: two collections, an urgent document, and a role whose only target hangs.

Real workers, one a stage, over real servers (without fsync: nothing here is about the disk) and a model server that
answers at once, unless it is told to hang.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.finding import Finding
from pipeline.domain.unit import QUEUES
from tests.fault.servers import Servers
from tests.fault.stack import Stack
from tests.upstream import UpstreamProcess

__all__ = ["measure_fleet"]

_THREADS = 2
_WINDOW = 2 * _THREADS
_WAIT_S = 900.0
_PATIENT = {"ttft_timeout_s": 900, "idle_timeout_s": 900, "timeout_s": 900, "deadline_s": 1800}


def measure_fleet(*, quick: bool = False, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Measure all three; the fleet has two slots a stage, so its window is four slices."""
    with _fleet() as stack:
        say("two collections")
        share, urgent = _two_collections(stack, 12 if quick else 60)
        say("a role that hangs")
        ratios = _hanging_role(stack, notes=6 if quick else 30, rounds=1 if quick else 5, say=say)
    findings = [
        Finding("the younger of two collections' share of the finished units, least", share, 0.4, least=True),
        Finding("the younger of two collections' share of the finished units, most", share, 0.6),
        *(
            Finding(f"{stage} slices begun from the enqueue at --priority 9 to its first call", begun, 2 * _WINDOW)
            for stage, begun in urgent.items()
        ),
        Finding("throughput of the others beside a role that hangs", statistics.median(ratios), 0.9, "×", least=True),
    ]
    return {
        "fsync": "off",
        "findings": findings,
        "beside": {"window_slices": _WINDOW, "rounds": len(ratios), "lowest_round": min(ratios)},
    }


@contextmanager
def _fleet() -> Iterator[Stack]:
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-fleet-")))
        servers = Servers()
        servers.start()
        closing.callback(servers.stop)
        models = closing.enter_context(UpstreamProcess())
        vision = {"model": "openai/vision", "base_url": models.base_url, "modalities": ["text", "image"]}
        config = {"failover": _PATIENT, "presets": {"vision": {**vision, "max_parallel": 1}}}
        stack = Stack(servers, models, folder, config=config)
        closing.callback(stack.close)
        stack.wait_ready(*(stack.worker(queue.value, threads=_THREADS, ready=False) for queue in QUEUES))
        stack.beat()
        yield stack


def _two_collections(stack: Stack, notes: int) -> tuple[float, dict[str, int]]:
    """The younger collection's share of the units that were finished half-way, and what an urgent document waited."""
    backlog = {
        name: stack.enqueue(*stack.papers.notes(notes), collection=name, hand_out=False) for name in ("older", "newer")
    }
    stack.container.dispatch()
    done = "unit where state = 'done' and run_id = any(:runs)"
    every = [run for runs in backlog.values() for run in runs]
    ended = "run where state = 'done' and id = any(:runs)"
    stack.wait_until(lambda: stack.count(ended, runs=every) >= notes // 2, _WAIT_S)
    urgent = _urgent(stack)
    stack.wait_until(lambda: stack.count(ended, runs=every) >= notes, _WAIT_S)
    counts = {name: stack.count(done, runs=runs) for name, runs in backlog.items()}
    stack.wait_ended(timeout_s=_WAIT_S)
    return counts["newer"] / sum(counts.values()), urgent


def _urgent(stack: Stack) -> dict[str, int]:
    """Slices of others, by stage, that were begun between an urgent document's enqueue and its first call."""
    path = stack.papers.note()
    (since,) = stack.rows("select clock_timestamp() as now")
    (run,) = stack.enqueue(path, collection="older", priority=9)
    called = "attempt where run_id = :run"
    stack.wait_until(lambda: stack.count(called, run=run), _WAIT_S)
    (first,) = stack.rows("select min(started_at) as at from attempt where run_id = :run", run=run)
    # A note's parse, chunk and format are one slice each; of a unit that is done its end is known, and of the others
    # that they are at it.
    rows = stack.rows(
        "select stage, count(*) as begun from unit where run_id <> :run and stage in ('parse', 'format') "
        "and (finished_at between :since and :until or (state = 'leased' and leased_at between :since and :until)) "
        "group by stage",
        run=run,
        since=since.now,
        until=first.at,
    )
    return {stage: next((row.begun for row in rows if row.stage == stage), 0) for stage in ("parse", "format")}


def _hanging_role(stack: Stack, notes: int, rounds: int, say: Callable[[str], None]) -> Sequence[float]:
    """How many times the throughput without it the others have beside a role that hangs, round by round."""
    ratios = []
    for number in range(rounds):
        # In turns, so that neither is always the one that meets warmer caches.
        free_first = number % 2 == 0
        free_s = _seconds(stack, notes) if free_first else 0.0
        with _hanging(stack):
            hung_s = _seconds(stack, notes)
        free_s = free_s or _seconds(stack, notes)
        ratios.append(free_s / hung_s)
        say(f"round {number + 1} of {rounds}: {notes} notes in {free_s:.1f} s without, {hung_s:.1f} s beside it")
    return ratios


@contextmanager
def _hanging(stack: Stack) -> Iterator[None]:
    """Sheets that wait for a model which does not answer, and nothing else of theirs to do, while the block runs."""
    stack.models.behave("vision", "hang")
    sheets = stack.enqueue(*(stack.papers.sheets(pages=8) for _ in range(4)))
    parsed = "unit where stage = 'parse' and state = 'done' and run_id = any(:runs)"
    stack.wait_until(lambda: stack.count(parsed, runs=sheets) == len(sheets), _WAIT_S)
    stack.wait_until(lambda: stack.open_calls("vision"), _WAIT_S)
    yield
    if (hanging := len(stack.open_calls("vision"))) != 1:
        msg = f"{hanging} calls hang where one may"
        raise RuntimeError(msg)
    # Answer again, and let the call that hangs break off.
    stack.models.clear()
    stack.models.refuse(0.2)
    stack.wait_ended(*sheets, timeout_s=_WAIT_S)


def _seconds(stack: Stack, notes: int) -> float:
    paths = stack.papers.notes(notes)
    began = time.perf_counter()
    stack.wait_ended(*stack.enqueue(*paths), timeout_s=_WAIT_S)
    return time.perf_counter() - began
