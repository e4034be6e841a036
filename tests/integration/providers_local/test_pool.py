from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipeline.domain.errors import UpstreamFailure
from pipeline.providers.local.pool import ChildPool

MODULE = "tests.integration.providers_local.scripted_child"


@pytest.fixture
async def pool() -> AsyncIterator[ChildPool]:
    made = ChildPool(size=1, threads=1, job_timeout_s=30.0, module=MODULE)
    yield made
    await made.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_no_child_is_started_before_the_first_job(pool: ChildPool) -> None:
    assert pool.pids == ()


async def test_one_child_serves_one_job_after_another(pool: ChildPool) -> None:
    first = await pool.run({"do": "answer"}, b"x" * 300_000)
    second = await pool.run({"do": "answer"}, b"")
    assert first["bytes"] == 300_000
    assert first["pid"] == second["pid"]


async def test_a_child_sees_nothing_of_the_workers_environment(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_TEST_SECRET", "s3cret")
    answer = await pool.run({"do": "answer"}, b"")
    assert "TIDEGATE_TEST_SECRET" not in answer["environment"]
    assert "ORT_DISABLE_TELEMETRY" in answer["environment"]


async def test_a_dead_child_fails_its_job_and_is_replaced(pool: ChildPool) -> None:
    before = (await pool.run({"do": "answer"}, b""))["pid"]
    with pytest.raises(UpstreamFailure, match="signal 9") as failed:
        await pool.run({"do": "die"}, b"")
    assert failed.value.kind == "server_error"
    assert (await pool.run({"do": "answer"}, b""))["pid"] != before


async def test_a_page_that_crashes_two_children_is_at_fault_and_one_that_crashes_one_is_not(
    pool: ChildPool, tmp_path: Path
) -> None:
    mark, never = str(tmp_path / "crashed"), str(tmp_path / "never")
    answer = await pool.run({"do": "crash", "mark": mark, "unless": mark}, b"xy")
    assert answer["bytes"] == 2
    with pytest.raises(UpstreamFailure, match=r"crashes the process of a local model \(signal 11\)") as failed:
        await pool.run({"do": "crash", "mark": mark, "unless": never}, b"")
    assert failed.value.kind == "invalid_output"
    assert (await pool.run({"do": "answer"}, b""))["bytes"] == 0


async def test_what_a_library_stumbles_over_is_the_pages_fault_and_what_the_machine_lacks_is_not() -> None:
    pool = ChildPool(size=1, threads=1, job_timeout_s=30.0, module="tests.integration.providers_local.stumbling_child")
    kinds = {}
    try:
        for error in ("ZeroDivisionError", "MemoryError", "OSError"):
            with pytest.raises(UpstreamFailure, match=rf": {error} while reading a page$") as failed:
                await pool.run({"raise": error}, b"")
            kinds[error] = str(failed.value.kind)
        assert len(pool.pids) == 1
    finally:
        await pool.close()
    assert kinds == {
        "ZeroDivisionError": "invalid_output",
        "MemoryError": "server_error",
        "OSError": "server_error",
    }


async def test_a_child_that_talks_nonsense_is_replaced(pool: ChildPool) -> None:
    with pytest.raises(UpstreamFailure) as failed:
        await pool.run({"do": "babble"}, b"")
    assert failed.value.kind == "server_error"
    assert (await pool.run({"do": "answer"}, b""))["bytes"] == 0


async def test_a_hung_child_is_killed() -> None:
    pool = ChildPool(size=1, threads=1, job_timeout_s=0.2, module=MODULE)
    try:
        with pytest.raises(UpstreamFailure) as failed:
            await pool.run({"do": "sleep", "s": 60}, b"")
        assert failed.value.kind == "timeout"
        assert pool.pids == ()
    finally:
        await pool.close()


async def test_what_a_child_reports_as_failed_is_raised(pool: ChildPool) -> None:
    with pytest.raises(UpstreamFailure, match="no such thing") as failed:
        await pool.run({"do": "answer", "answer": {"error": "invalid_request", "message": "no such thing"}}, b"")
    assert failed.value.kind == "invalid_request"


async def test_a_cancelled_caller_returns_at_once_and_the_child_goes_on(pool: ChildPool) -> None:
    pid = (await pool.run({"do": "answer"}, b""))["pid"]
    call = asyncio.create_task(pool.run({"do": "sleep", "s": 0.5}, b""))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(0.2):
            await call
    assert (await pool.run({"do": "answer"}, b""))["pid"] == pid


async def test_jobs_beyond_the_size_wait_for_a_slot(pool: ChildPool) -> None:
    answers = await asyncio.gather(*(pool.run({"do": "answer"}, b"") for _ in range(5)))
    assert len({answer["pid"] for answer in answers}) == 1


async def test_closing_kills_the_children_and_fails_who_waits() -> None:
    pool = ChildPool(size=1, threads=1, job_timeout_s=30.0, module=MODULE)
    pid = (await pool.run({"do": "answer"}, b""))["pid"]
    call = asyncio.create_task(pool.run({"do": "sleep", "s": 60}, b""))
    await asyncio.sleep(0.05)
    await pool.close()
    with pytest.raises(UpstreamFailure):
        await call
    assert not alive(pid)
    with pytest.raises(UpstreamFailure, match="shut down"):
        await pool.run({"do": "answer"}, b"")


async def test_a_pool_refuses_a_second_event_loop(pool: ChildPool) -> None:
    await pool.run({"do": "answer"}, b"")
    with pytest.raises(RuntimeError, match="two event loops"):
        await asyncio.to_thread(asyncio.run, pool.run({"do": "answer"}, b""))


def test_a_pool_without_children_is_refused() -> None:
    with pytest.raises(ValueError, match="0"):
        ChildPool(size=0, threads=1, job_timeout_s=1.0)
