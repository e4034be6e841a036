"""One lane in a process of its own, so that its CPU time is the process's and no lane pays for another's imports.

    python -m benchmarks.contestant LANE

Standard input's first line says where the servers are (``benchmarks.lanes.Places``; a URL holds a password, so it is no
argument). Each further line is an order (``{"tokens": 500, "gap_ms": 4, "stream": true, "calls": 40, "at_once": 20}``),
which is carried out and answered with a line. With ``"profile": FILE`` in an order, cProfile's statistics of it are
written there.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.lanes import LANES, Lane, Places
from benchmarks.sse_server import answer_text

__all__ = ["measure"]

# What a lane leaves for later (litellm logs in the background) is part of its cost.
_AFTERMATH_S = 0.05
_WARM_TOKENS = 20
_LARGE_BYTES = 8 * 1024 * 1024


async def measure(lane: Lane, order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order; returns CPU and wall milliseconds a call.

    CPU is that of the whole process, all its threads, user and system. The first calls, which connect, are not
    measured.

    Raises:
        AssertionError: A lane returned another text than was sent.
    """
    tokens, gap_ms, stream = order["tokens"], order["gap_ms"], order["stream"]
    calls, at_once = order["calls"], order["at_once"]
    await _run(lane, f"{_WARM_TOKENS} {gap_ms}", answer_text(_WARM_TOKENS), stream, at_once, at_once)
    await asyncio.sleep(_AFTERMATH_S)
    gc.collect()
    lane.reads = 0
    profile = cProfile.Profile() if order.get("profile") else None
    if profile is not None:
        profile.enable()
    cpu, wall = time.process_time(), time.perf_counter()
    walls_s = await _run(lane, f"{tokens} {gap_ms}", answer_text(tokens), stream, calls, at_once)
    wall = time.perf_counter() - wall
    await asyncio.sleep(_AFTERMATH_S)
    cpu = time.process_time() - cpu
    if profile is not None:
        profile.disable()
        profile.dump_stats(order["profile"])
    return {
        "cpu_ms": 1000 * cpu / calls,
        "wall_ms": 1000 * statistics.median(walls_s),
        "calls_per_s": calls / wall,
        "reads": lane.reads / calls,
        "rss_mb": _resident_bytes() / 1e6,
    }


async def _run(lane: Lane, wish: str, text: str, stream: bool, calls: int, at_once: int) -> list[float]:
    """Make the calls, so many at once; returns each one's wall seconds."""
    walls_s: list[float] = []
    left = iter(range(calls))

    async def work() -> None:
        for _ in left:
            since = time.perf_counter()
            answer = await lane.call(wish, stream=stream)
            walls_s.append(time.perf_counter() - since)
            assert answer == text, f"{len(answer)} characters instead of {len(text)}"

    await asyncio.gather(*(work() for _ in range(at_once)))
    return walls_s


def _resident_bytes() -> int:
    # Not ru_maxrss: a child that was forked begins with its parent's.
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def _lines() -> AsyncIterator[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        yield orjson.loads(line)


def _settle_malloc() -> None:
    """Free one large block, as any process that has worked for a while has.

    asyncio receives into 256 KiB blocks. glibc maps and unmaps each of them, which doubles a stream's CPU time, until
    a larger block than its threshold was freed once; whether a lane's imports happen to do that must not decide.
    """
    block = bytearray(_LARGE_BYTES)
    del block


async def _main(name: str) -> None:
    _settle_malloc()
    lines = _lines()
    lane = LANES[name](Places(**await anext(lines)))
    await lane.open()
    try:
        async for order in lines:
            print(orjson.dumps(await measure(lane, order)).decode(), flush=True)
    finally:
        await lane.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
