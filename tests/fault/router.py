"""``litellm.Router`` in a process of a fleet, for comparison: the same targets, limits and schedule as ours.

Its best settings: fallbacks, cooldowns shared through Redis from the first failure on, a bound of parallel calls, and
no retry at a target that has just failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from pipeline.providers.litellm import load_litellm
from tests.fault.member import Setup

__all__ = ["RouterCall", "run_router"]

# In the server that the processes are forked from: the import takes seconds and 200 MB once.
_litellm = load_litellm()


@dataclass(frozen=True, slots=True)
class RouterCall:
    """One call through the Router; ``error`` is the class of what it raised."""

    seconds: float
    error: str | None


def run_router(setup: Setup, parent: Connection) -> None:
    """The process's whole life; it takes a member's orders ``follow``, ``call`` and ``told``."""

    async def serve() -> None:
        router = _router(setup)
        made: list[RouterCall] = []
        parent.send("ready")
        while (order := await asyncio.to_thread(parent.recv)) is not None:
            name, arguments = order
            if name == "follow":
                made += await _follow(router, **arguments)
            elif name == "call":
                made += await asyncio.gather(*(_ask(router) for _ in range(arguments["calls"])))
            parent.send(made)

    asyncio.run(serve())


def _router(setup: Setup) -> object:
    limits: dict[str, dict[str, object]] = {
        "primary": {"stream_timeout": setup.ttft_timeout_s, "max_parallel_requests": setup.max_parallel},
        "fallback": {"stream_timeout": 10.0},
    }
    urls = {"primary": setup.primary_url, "fallback": setup.fallback_url}
    return _litellm.Router(
        model_list=[
            {
                "model_name": name,
                "litellm_params": {"model": f"openai/{name}", "api_base": url, "api_key": "sk-fleet", **limits[name]},
                "model_info": {"id": name},
            }
            for name, url in urls.items()
        ],
        fallbacks=[{"primary": ["fallback"]}],
        num_retries=0,
        allowed_fails=0,
        cooldown_time=setup.cooldown_s,
        redis_url=setup.redis_url,
        enable_pre_call_checks=True,
    )


async def _follow(router: object, starts_s: Sequence[float], at: float) -> list[RouterCall]:
    tasks = []
    for start_s in sorted(starts_s):
        await asyncio.sleep(max(0.0, at + start_s - time.time()))
        tasks.append(asyncio.create_task(_ask(router)))
    return await asyncio.gather(*tasks)


async def _ask(router: object) -> RouterCall:
    began = time.monotonic()
    error = None
    try:
        messages = [{"role": "user", "content": "a page"}]
        stream = await router.acompletion(model="primary", messages=messages, stream=True)  # type: ignore[attr-defined]
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert text == "a page"
    except Exception as caught:
        error = type(caught).__name__
    return RouterCall(time.monotonic() - began, error)
