import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from worker.loop import LoopThread


async def _thread() -> str:
    return threading.current_thread().name


def test_work_runs_on_one_loop_in_a_thread_of_its_own() -> None:
    loop = LoopThread()
    names = {loop.submit(_thread()).result(5) for _ in range(3)}
    assert names == {"tidegate-loop"}
    loop.close()


def test_closing_cancels_what_runs_and_does_the_last_works_in_order() -> None:
    loop, seen = LoopThread(), []

    async def hang() -> None:
        await asyncio.Event().wait()

    async def last(what: str) -> None:
        seen.append(what)
        if what == "first":
            raise RuntimeError("the next one is done all the same")

    future = loop.submit(hang())
    loop.close(last("first"), last("second"))
    with pytest.raises(CancelledError):
        future.result(5)
    assert seen == ["first", "second"]
    assert not loop.running


def test_closing_a_loop_that_never_ran_is_nothing() -> None:
    loop = LoopThread()
    loop.close(_thread())
    assert not loop.running


def test_a_closed_loop_starts_anew() -> None:
    loop = LoopThread()
    loop.submit(_thread()).result(5)
    loop.close()
    assert loop.submit(_thread()).result(5) == "tidegate-loop"
    loop.close()
