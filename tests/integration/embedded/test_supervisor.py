from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pipeline.domain.errors import ServiceUnavailable, UsageError
from tests.integration.embedded.programs import (
    FULL,
    REPO,
    SLEEPERS,
    command,
    eventually,
    open_files,
    part_of,
    running,
    stack_of,
)
from worker.embedded import Home, ProcessId, Stack, read_stack, start_detached, stop_stack
from worker.embedded.process import command_line


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tidegate-test-"))
    yield folder
    stop_stack(folder)
    shutil.rmtree(folder)


def _processes(stack: Stack) -> list[ProcessId]:
    processes = [part.process for part in stack.parts]
    assert all(processes)
    return [process for process in processes if process is not None]


def _kill(process: ProcessId | None, signum: int = signal.SIGKILL) -> None:
    assert process is not None
    assert process.send(signum)


def test_a_stack_starts_in_order_and_stops_in_reverse(home: Path) -> None:
    with running(FULL, home) as supervisor:
        stack = stack_of(home)
        assert [(part.name, part.role, part.state) for part in stack.parts] == [
            ("postgres", "postgres", "ready"),
            ("redis", "redis", "ready"),
            ("worker.parse", "worker", "ready"),
        ]
        assert stack.parts[2].queues == ("parse",)
        assert (home / "logs" / "migrate.log").read_text() == "migrated\n"
        assert stack.database_url is not None
        psycopg.connect(stack.database_url.replace("+psycopg", "")).close()
        processes = _processes(stack)
        assert stop_stack(home)
        assert supervisor.wait(10) == 0
    assert not any(process.is_alive() for process in processes)
    assert read_stack(home) is None
    assert not (home / "stack.json").exists()
    assert "database system is shut down" in (home / "logs" / "postgres.log").read_text()


def test_a_dead_part_is_started_again_and_the_state_says_why(home: Path) -> None:
    with running(SLEEPERS, home):
        first = part_of(home, "beat").process
        _kill(first)
        eventually(lambda: (part := part_of(home, "beat")).state == "ready" and part.process != first)
        beat = part_of(home, "beat")
        assert (beat.restarts, beat.last_exit) == (1, "killed by SIGKILL")
        assert part_of(home, "worker.parse").restarts == 0


def test_a_killed_postgres_is_started_again_with_its_data(home: Path) -> None:
    with running(FULL, home):
        url = stack_of(home).database_url
        assert url is not None
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("create table kept as select 42 as n")
        first = part_of(home, "postgres").process
        _kill(first)
        eventually(lambda: (part := part_of(home, "postgres")).state == "ready" and part.process != first)
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            assert connection.execute("select n from kept").fetchone() == (42,)


def test_a_killed_supervisor_takes_everything_with_it_and_the_next_one_starts(home: Path) -> None:
    with running(FULL, home) as supervisor:
        processes = _processes(stack_of(home))
        supervisor.kill()
        assert all(process.wait_gone(15) for process in processes)
        assert read_stack(home) is None
    with running(FULL, home):
        assert stack_of(home).is_ready


def test_a_part_that_outlives_its_supervisor_is_ended_by_the_next_one(home: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()"
    program = SLEEPERS.replace('["sleep", "600"], queues', f"[sys.executable, '-c', {stubborn!r}], queues")
    with running(program, home) as supervisor:
        orphan = part_of(home, "worker.parse").process
        assert orphan is not None
        # Started and deaf, not still importing.
        eventually(lambda: _ignores_sigterm(orphan.pid))
        supervisor.kill()
        supervisor.wait(10)
        assert not orphan.wait_gone(0.5)
        assert stop_stack(home, timeout_s=0.5)
        assert not orphan.is_alive()


def _ignores_sigterm(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def test_a_second_supervisor_on_the_same_home_is_refused(home: Path) -> None:
    with running(SLEEPERS, home):
        second = subprocess.run(command(SLEEPERS, home), cwd=REPO, capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert "UsageError: a stack already runs" in second.stderr
        assert "tidegate down" in second.stderr
        assert stack_of(home).is_ready
        with pytest.raises(UsageError, match="already runs"):
            start_detached(command(SLEEPERS, home), home, 10)


def test_of_two_stacks_started_at_once_one_is_refused(home: Path) -> None:
    def start() -> Stack | UsageError:
        try:
            return start_detached(command(SLEEPERS, home), home, 30, env={**os.environ, "PYTHONPATH": str(REPO)})
        except UsageError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        first, second = [future.result() for future in [pool.submit(start), pool.submit(start)]]
    refused = first if isinstance(first, UsageError) else second
    assert isinstance(refused, UsageError)
    assert "already runs" in refused.fact
    assert {type(first), type(second)} == {Stack, UsageError}


def test_ctrl_c_while_it_starts_stops_what_was_started(home: Path) -> None:
    program = SLEEPERS.replace('"600"], is_ready=yes', '"600"], is_ready=no')
    process = subprocess.Popen(command(program, home), cwd=REPO, stdout=subprocess.DEVNULL)
    eventually(lambda: (stack := read_stack(home)) is not None and all(part.process for part in stack.parts))
    processes = _processes(stack_of(home))
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert not any(child.is_alive() for child in processes)
    assert not (home / "stack.json").exists()


def test_a_part_that_does_not_come_up_ends_the_start_with_its_last_words(home: Path) -> None:
    program = SLEEPERS.replace(
        '"beat", argv=["sleep", "600"], is_ready=yes', '"beat", argv=["sh", "-c", "echo no such broker; exit 3"]'
    )
    with pytest.raises(ServiceUnavailable) as caught:
        start_detached(command(program, home), home, 30)
    assert "beat ended 3 times while starting (exit code 3)" in caught.value.fact
    assert "no such broker" in caught.value.fact
    assert str(home / "logs" / "beat.log") in caught.value.remedy
    assert read_stack(home) is None


def test_a_step_that_fails_ends_the_start(home: Path) -> None:
    program = SLEEPERS.replace(
        'Part(name="beat"', 'Step(name="migrate", action=["sh", "-c", "echo bad revision; exit 1"]), Part(name="beat"'
    )
    with pytest.raises(ServiceUnavailable, match=r"migrate failed \(exit code 1\): bad revision"):
        start_detached(command(program, home), home, 30)


def test_a_detached_stack_that_is_late_is_stopped_again(home: Path) -> None:
    program = SLEEPERS.replace('"600"], is_ready=yes', '"600"], is_ready=no')
    with pytest.raises(ServiceUnavailable, match=r"it waits for: beat \(starting\)"):
        start_detached(command(program, home), home, 2)
    assert read_stack(home) is None


def test_a_detached_stack_holds_none_of_the_callers_streams(home: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        stack = start_detached(command(SLEEPERS, home), home, 30, env={**os.environ, "PYTHONPATH": str(REPO)})
        ours = {f"pipe:[{os.fstat(write_end).st_ino}]", os.readlink("/proc/self/fd/1"), os.readlink("/proc/self/fd/2")}
        ours -= {"/dev/null"}
        for process in (stack.supervisor, *_processes(stack)):
            assert ours.isdisjoint(open_files(process.pid))
            assert os.getsid(process.pid) != os.getsid(0)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert stop_stack(home)
    assert not stop_stack(home)


def test_a_supervisor_ends_with_the_process_it_is_leashed_to(home: Path) -> None:
    holder = subprocess.Popen(["sleep", "60"])
    program = SLEEPERS.replace(
        "]).run()", f"], leash=__import__('worker.embedded').embedded.ProcessId.of({holder.pid})).run()"
    )
    with running(program, home) as supervisor:
        processes = _processes(stack_of(home))
        holder.kill()
        holder.wait()
        assert supervisor.wait(10) == 0
        assert not any(process.is_alive() for process in processes)


def test_a_second_signal_ends_a_patient_stop(home: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()"
    program = SLEEPERS.replace('["sleep", "600"], queues', f"[sys.executable, '-c', {stubborn!r}], queues")
    with running(program, home) as supervisor:
        orphan = part_of(home, "worker.parse").process
        assert orphan is not None
        eventually(lambda: _ignores_sigterm(orphan.pid))
        supervisor.send_signal(signal.SIGINT)
        eventually(lambda: stack_of(home).phase == "stopping")
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(10) == 0


def test_a_state_file_from_before_a_power_cut_is_no_obstacle(home: Path) -> None:
    with running(SLEEPERS, home) as supervisor:
        text = (home / "stack.json").read_text()
        boot = stack_of(home).supervisor.boot_id
        supervisor.terminate()
        supervisor.wait(10)
    (home / "stack.json").write_text(text.replace(boot, "an-earlier-boot"))
    with running(SLEEPERS, home):
        assert stack_of(home).is_ready


def test_nothing_is_cleaned_up_under_a_supervisor_that_is_only_starting(home: Path) -> None:
    with Home(home).locked(), pytest.raises(ServiceUnavailable, match="just starting"):
        stop_stack(home)


def test_children_see_a_clean_signal_mask(home: Path) -> None:
    with running(SLEEPERS, home):
        process = part_of(home, "beat").process
        assert process is not None
        eventually(lambda: command_line(process.pid) == ["sleep", "600"])
        assert "SigBlk:\t0000000000000000" in Path(f"/proc/{process.pid}/status").read_text()
