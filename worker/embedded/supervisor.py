"""Starts the parts of a stack in order, restarts what dies, and stops them in reverse order."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.domain.errors import ServiceUnavailable
from pipeline.observe.logging import get_logger
from worker.embedded.child import describe_exit, kill, poll, send, spawn
from worker.embedded.home import Home
from worker.embedded.keeper import Keeper, Report
from worker.embedded.logfile import tail, trim
from worker.embedded.orphans import end_orphans
from worker.embedded.part import Part, Step
from worker.embedded.process import ProcessId
from worker.embedded.state import Stack, load_stack, write_stack

__all__ = ["Supervisor"]

_START_TRIES = 3
_TICK_STARTING_S = 0.05
_TICK_S = 0.5
_TRIM_EVERY_S = 60.0
_WARNINGS = frozenset({"part.died", "part.not_ready", "state.not_written"})


class _Stopping(Exception):
    """A stop was asked for while the stack was starting."""


class Supervisor:
    """Runs a stack in the foreground of this process.

    The process's main thread must call ``run``: the kernel ties children to the thread that starts them, and signals
    go there. It should have no other threads by then.

    Args:
        home: ``TIDEGATE_HOME``.
        items: Parts and steps in the order of their start.
        database_url: Written into the state file, for whoever attaches.
        redis_url: The same.
        base_env: The whole environment of the children; None hands on this process's own (``Part.env`` is then not
            used, so a part with variables of its own needs this).
        leash: A process without which the stack is not wanted; when it ends, the stack stops.
        report: Takes events; our log by default.

    Raises:
        ValueError: Two parts have one name, or variables without a base environment.
    """

    def __init__(
        self,
        home: Path,
        items: Sequence[Part | Step],
        *,
        database_url: str | None = None,
        redis_url: str | None = None,
        base_env: Mapping[str, str] | None = None,
        leash: ProcessId | None = None,
        report: Report | None = None,
    ) -> None:
        names = [item.name for item in items]
        if doubles := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"parts share a name: {sorted(doubles)}")
        if base_env is None and any(item.env for item in items):
            raise ValueError("a part has variables, but base_env is not given")
        self._home = Home(home)
        self._items = items
        self._urls = (database_url, redis_url)
        self._base_env = base_env
        self._leash = leash
        self._report: Report = report if report is not None else _log
        self._keepers = {
            item.name: Keeper(item, self._home, base_env, self._report) for item in items if isinstance(item, Part)
        }
        self._started: list[Keeper] = []
        self._stop = threading.Event()
        self._stop_signals = 0
        self._signals: set[signal.Signals] = set()
        self._phase = "starting"
        self._started_at = 0.0
        self._trim_due = 0.0

    def run(self, stop: threading.Event | None = None, on_ready: Callable[[Stack], None] | None = None) -> None:
        """Start everything, keep it running until told to stop, and stop it.

        SIGTERM, SIGINT, SIGHUP, ``stop`` and the end of the leash stop it; a second signal kills what is not a
        service at once. A stop that was asked for is no error, whenever it comes.

        Args:
            stop: Set it to stop; noticed within half a second.
            on_ready: Called once, when every part is ready.

        Raises:
            UsageError: Another supervisor runs under this home.
            ServiceUnavailable: The home can't be used, or a part does not come up; all is stopped again by then.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Supervisor.run needs the main thread")
        if stop is not None:
            self._stop = stop
        self._home.prepare()
        with self._home.locked(), self._own_signals():
            end_orphans(load_stack(self._home.path))
            self._started_at = time.time()
            self._publish()
            error: str | None = None
            try:
                self._start_all()
                self._set_phase("ready")
                self._report("stack.ready", home=str(self._home.path), seconds=round(time.time() - self._started_at, 1))
                if on_ready is not None:
                    on_ready(self._snapshot())
                self._watch()
            except _Stopping:
                pass
            except BaseException as failure:
                error = str(failure) or type(failure).__name__
                raise
            finally:
                self._stop_all()
                self._leave(error)

    # ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_all(self) -> None:
        for item in self._items:
            if isinstance(item, Step):
                self._await_ready()
                self._take(item)
                continue
            keeper = self._keepers[item.name]
            self._started.append(keeper)
            self._check_stop()
            keeper.start()
            self._publish()
            if item.is_service:
                self._await_ready()
        self._await_ready()

    def _await_ready(self) -> None:
        """Wait for all parts that were started; a part that can't come up ends the whole start."""
        deadlines = {keeper: time.monotonic() + keeper.part.ready_timeout_s for keeper in self._started}
        while True:
            self._tend()
            waiting = [keeper for keeper in self._started if not keeper.ready]
            if not waiting:
                return
            for keeper in waiting:
                if keeper.failures >= _START_TRIES:
                    self._give_up(keeper, f"ended {keeper.failures} times while starting ({keeper.last_exit})")
                if time.monotonic() > deadlines[keeper]:
                    self._give_up(keeper, f"is not ready after {keeper.part.ready_timeout_s:g} s")
            self._wait(_TICK_STARTING_S)
            self._check_stop()

    def _give_up(self, keeper: Keeper, what: str) -> None:
        log = self._home.log(keeper.part.name)
        words = keeper.last_problem or " | ".join(tail(log, 3)) or "it wrote nothing"
        raise ServiceUnavailable(f"{keeper.part.name} {what}: {words}", f"its log:  {log}")

    def _take(self, step: Step) -> None:
        self._check_stop()
        self._report("step.started", step=step.name)
        if callable(step.action):
            step.action()
        else:
            self._run_command(step, step.action)
        self._report("step.finished", step=step.name)

    def _run_command(self, step: Step, argv: Sequence[str]) -> None:
        env = None if self._base_env is None else {**self._base_env, **step.env}
        process = spawn(argv, home=self._home, name=step.name, death_signal=signal.SIGTERM, env=env)
        deadline = time.monotonic() + step.timeout_s
        try:
            while (status := poll(process)) is None:
                self._check_stop()
                if time.monotonic() > deadline:
                    break
                self._wait(_TICK_STARTING_S)
        finally:
            if poll(process) is None:
                self._end_together([(process, ((signal.SIGTERM, 10.0),))])
        if status != 0:
            log = self._home.log(step.name)
            how = f"did not end in {step.timeout_s:g} s" if status is None else f"failed ({describe_exit(status)})"
            raise ServiceUnavailable(
                f"{step.name} {how}: {' | '.join(tail(log, 3)) or 'it wrote nothing'}", f"its log:  {log}"
            )

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        while not self._is_stopping():
            self._tend()
            if time.monotonic() >= self._trim_due:
                self._trim_due = time.monotonic() + _TRIM_EVERY_S
                self._trim_logs()
            starting = any(not keeper.ready for keeper in self._started)
            self._wait(_TICK_STARTING_S if starting else _TICK_S)

    def _tend(self) -> None:
        changes = [keeper.tend() for keeper in self._started]
        if any(changes):
            self._publish()

    def _trim_logs(self) -> None:
        for log in self._home.logs.glob("*.log"):
            with suppress(OSError):  # a full disk: the next round may find room
                trim(log)

    # ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _stop_all(self) -> None:
        """Everything but the services at once, each with its own patience; then the services, the last first."""
        self._set_phase("stopping")
        self._report("stack.stopping")
        running = [keeper for keeper in reversed(self._started) if keeper.process is not None]
        self._end_keepers([keeper for keeper in running if not keeper.part.is_service], hurries=True)
        for keeper in running:
            if keeper.part.is_service:
                self._end_keepers([keeper])

    def _end_keepers(self, keepers: Sequence[Keeper], *, hurries: bool = False) -> None:
        pairs = [(keeper.process, keeper.part.ladder) for keeper in keepers if keeper.process is not None]
        self._end_together(pairs, hurries=hurries)
        for keeper in keepers:
            status = None if keeper.process is None else poll(keeper.process)
            if status is not None:
                self._report("part.stopped", part=keeper.part.name, exit=describe_exit(status))
                keeper.process, keeper.ready = None, False
        self._publish()

    def _end_together(
        self, pairs: Sequence[tuple[subprocess.Popen[bytes], Sequence[tuple[int, float]]]], *, hurries: bool = False
    ) -> None:
        now = time.monotonic()
        plans = []
        for process, ladder in pairs:
            due, plan = now, []
            for signum, patience_s in ladder:
                plan.append((due, signum))
                due += patience_s
            plans.append((process, plan, due))
        # The signal that brought the stop counts as the first; one more says that there is no time.
        patience = max(1, self._stop_signals)
        while left := [entry for entry in plans if poll(entry[0]) is None]:
            now = time.monotonic()
            for process, plan, kill_at in left:
                if now >= kill_at or (hurries and self._stop_signals > patience):
                    kill(process)
                elif plan and now >= plan[0][0]:
                    send(process, plan.pop(0)[1])
            self._wait(_TICK_STARTING_S)

    def _leave(self, error: str | None) -> None:
        with suppress(OSError):  # nothing is left that could be told, and the lock is what counts
            self._home.remove_stand_in()
            if error is None:
                self._home.state.unlink(missing_ok=True)
            else:
                self._set_phase("failed", error)
        self._report("stack.stopped", **({"error": error} if error else {}))

    # ── state and signals ─────────────────────────────────────────────────────────────────────────────────────────

    def _set_phase(self, phase: str, error: str | None = None) -> None:
        self._phase = phase
        self._publish(error)

    def _publish(self, error: str | None = None) -> None:
        try:
            write_stack(self._home, self._snapshot(error))
        except OSError as failure:
            # A full disk must not take down what runs; the next change is written again.
            self._report("state.not_written", error=str(failure))

    def _snapshot(self, error: str | None = None) -> Stack:
        return Stack(
            home=str(self._home.path),
            phase=self._phase,
            supervisor=_myself(),
            database_url=self._urls[0],
            redis_url=self._urls[1],
            parts=tuple(keeper.snapshot() for keeper in self._keepers.values()),
            started_at=self._started_at,
            error=error,
        )

    def _check_stop(self) -> None:
        if self._is_stopping():
            raise _Stopping

    def _is_stopping(self) -> bool:
        if self._leash is not None and not self._leash.is_alive():
            self._stop.set()
        return self._stop.is_set()

    @contextmanager
    def _own_signals(self) -> Iterator[None]:
        """Take signals synchronously: blocked here, fetched by ``_wait``; children get a clean mask from the tether."""
        wanted = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # ignored means nohup, which means: stay
            wanted.add(signal.SIGHUP)
        self._signals = wanted
        old_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        try:
            yield
        finally:
            while signal.sigtimedwait(wanted, 0) is not None:
                pass  # a late one would strike the caller as a KeyboardInterrupt
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            signal.signal(signal.SIGCHLD, old_child)

    def _wait(self, timeout_s: float) -> None:
        """Wait for a signal, a child's death among them, or for the time to pass."""
        found = signal.sigtimedwait(self._signals, timeout_s)
        if found is not None and found.si_signo != signal.SIGCHLD:
            self._stop_signals += 1
            self._stop.set()
            self._report("signal.received", signal=signal.Signals(found.si_signo).name)


def _log(event: str, **fields: object) -> None:
    logger = get_logger("supervisor")
    (logger.warning if event in _WARNINGS else logger.info)(event, **fields)


def _myself() -> ProcessId:
    import os

    identity = ProcessId.of(os.getpid())
    if identity is None:
        raise ServiceUnavailable("/proc does not show this process", "mount /proc: the supervisor needs it")
    return identity
