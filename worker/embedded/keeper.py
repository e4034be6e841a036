"""One part's life: started, ready, died, started again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping

from pipeline.domain.errors import TidegateError
from worker.embedded.child import describe_exit, poll, spawn
from worker.embedded.home import Home
from worker.embedded.part import Part
from worker.embedded.process import ProcessId
from worker.embedded.state import StackPart

__all__ = ["Keeper", "Report", "restart_delay_s"]

Report = Callable[..., None]
"""Called with an event name and fields: ``report("part.started", part="beat", pid=7)``."""

_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 30.0
# A part that ran this long has recovered: its next death is a new one.
_SETTLED_S = 60.0
# What stands in for an answer from a part that can't be asked.
_RAN_A_WHILE_S = 1.0
_PROBE_FIRST_S = 0.05
_PROBE_MAX_S = 1.0


def restart_delay_s(failures: int, *, is_service: bool) -> float:
    """Seconds to wait before a restart after so many failures in a row: 0.5, 1, 2 … 30; services begin with 0."""
    if is_service:
        failures -= 1
    return 0.0 if failures < 1 else min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(failures - 1, 16))


class Keeper:
    """Keeps one part running. Times are those of ``time.monotonic``."""

    def __init__(self, part: Part, home: Home, base_env: Mapping[str, str] | None, report: Report) -> None:
        self.part = part
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.restarts = 0
        self.failures = 0
        self.last_exit: str | None = None
        self.last_problem: str | None = None
        self._home = home
        self._base_env = base_env
        self._report = report
        self._identity: ProcessId | None = None
        self._started = 0.0
        self._due = 0.0
        self._probe_due = 0.0
        self._probe_gap_s = _PROBE_FIRST_S

    def start(self) -> None:
        """Start the part.

        Raises:
            TidegateError: What it needs can't be made ready.
        """
        self.part.before_start(self.failures)
        env = None if self._base_env is None else {**self._base_env, **self.part.env}
        self.process = spawn(
            self.part.argv, home=self._home, name=self.part.name, death_signal=self.part.ladder[0][0], env=env
        )
        self._identity = ProcessId.of(self.process.pid)
        self._started = time.monotonic()
        self._probe_due, self._probe_gap_s = 0.0, _PROBE_FIRST_S
        self.ready = False
        self._report("part.started", part=self.part.name, pid=self.process.pid)

    def tend(self, *, restart: bool = True) -> bool:
        """Look after the part: notice a death, restart when that is due, ask whether it is ready.

        Returns:
            Whether anything changed.
        """
        if self.process is not None and (status := poll(self.process)) is not None:
            self._note_death(status)
            return True
        if self.process is None:
            if not restart or time.monotonic() < self._due:
                return False
            return self._restart()
        return not self.ready and self._ask()

    def snapshot(self) -> StackPart:
        running = self.process is not None
        state = "ready" if running and self.ready else "starting" if running else "waiting"
        return StackPart(
            name=self.part.name,
            role=self.part.role,
            state=state,
            process=self._identity if running else None,
            queues=tuple(self.part.queues),
            port=self.part.port,
            restarts=self.restarts,
            last_exit=self.last_exit,
            log=str(self._home.log(self.part.name)),
        )

    def _note_death(self, status: int) -> None:
        up_s = time.monotonic() - self._started
        self.process, self.ready = None, False
        self.failures = 1 if up_s >= _SETTLED_S else self.failures + 1
        self.last_exit = describe_exit(status)
        delay_s = restart_delay_s(self.failures, is_service=self.part.is_service)
        self._due = time.monotonic() + delay_s
        self._report("part.died", part=self.part.name, exit=self.last_exit, up_s=round(up_s, 1), restart_in_s=delay_s)

    def _restart(self) -> bool:
        self.restarts += 1
        try:
            self.start()
        except (TidegateError, OSError) as error:
            # A full disk or memory shortage passes; the supervisor must outlive it.
            self.failures += 1
            self._due = time.monotonic() + restart_delay_s(self.failures, is_service=False)
            self._note_problem(f"cannot be restarted: {error}")
        return True

    def _ask(self) -> bool:
        if time.monotonic() < self._probe_due:
            return False
        try:
            self.ready = self._has_run_a_while() if self.part.is_ready is None else self.part.is_ready()
        except Exception as error:  # a probe is the caller's code and must not take the stack down
            self._note_problem(f"{type(error).__name__}: {error}")
        if self.ready:
            self.last_problem = None
            self._report("part.ready", part=self.part.name, seconds=round(time.monotonic() - self._started, 2))
            return True
        self._probe_due = time.monotonic() + self._probe_gap_s
        self._probe_gap_s = min(_PROBE_MAX_S, self._probe_gap_s * 1.3)
        return False

    def _has_run_a_while(self) -> bool:
        return time.monotonic() - self._started >= _RAN_A_WHILE_S

    def _note_problem(self, problem: str) -> None:
        if problem != self.last_problem:
            self.last_problem = problem
            self._report("part.not_ready", part=self.part.name, problem=problem)
