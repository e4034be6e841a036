"""A whole Tidegate of real processes that a fault test kills, freezes and looks into.

How to write a fault test::

    def test_a_killed_worker_loses_nothing(stack: Stack) -> None:       # fixture: fresh database, empty Redis and log
        stack.models.behave("cues", "hang", calls=4)                    # see tests/upstream; models are named by role
        first = stack.worker("format", "retrieve", threads=4)           # real processes; ready when they return
        stack.beat()
        stack.enqueue(*stack.papers.notes(3))
        stack.wait_until(lambda: len(stack.open_calls("cues")) == 4)    # a deadline, and rows and logs if it passes
        stack.kill(first)                                               # remembers the calls open at this moment
        stack.worker()
        stack.wait_ended()
        check(stack)                                                    # tests/fault/checks.py: all that must hold

- ``servers`` (fixture, one pair a module): ``servers.redis`` and ``servers.postgres`` have ``kill``, ``start``,
  ``restart``, ``stop``, ``freeze`` and ``thaw``; ``servers.flush_redis()``.
- ``stack.models``: the fake model server in its own process. Its models are ``vision``, ``format``, ``cues`` and
  ``vectors``, one a role; a configuration of the test's own goes to the fixture ``make_stack(config={...}, seed=7)``.
- ``stack.fault()`` notes the calls that are open at the server *now*; call it just before a fault of your own
  making (``kill`` does). The checks bound what is paid twice by these calls.
- ``stack.pass_time(s)`` lets that time go by for what waits for tens of seconds (lost attempts, lost messages): rows
  are made older, and the real beat finds them.
- ``stack.rows(sql, **values)``, ``stack.state()``, ``stack.container`` (the light half, as a command has it).
- ``kill`` makes the dead worker's leases run out at once, so that the beat's next pass (two a second) takes them back;
  they last 15 s otherwise, because a worker on an overrun machine may be late in renewing them.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml
from pydantic import SecretStr
from sqlalchemy import text

from pipeline.documents.sniff import sniff
from pipeline.domain.run import ENDED_RUN_STATES
from pipeline.domain.unit import QUEUES
from pipeline.enqueue import enqueue
from pipeline.settings import Settings
from tests.fault.kin import descendants_of
from tests.fault.papers import Papers
from tests.fault.servers import Servers
from tests.upstream import Call, UpstreamProcess
from worker.bootstrap import Container
from worker.embedded.child import tethered

__all__ = ["MODELS", "Fault", "Program", "Stack", "wait_for"]

REPO = Path(__file__).resolve().parents[2]
MODELS = {"vlm": "vision", "vlm_formatter": "format", "retrieval_llm": "cues", "embedder": "vectors"}
"""The models at the fake server, by role."""

START_S = 60.0
WAIT_S = 60.0
"""Deadlines, not waits: only a test that fails, or a machine that is overrun, comes near them."""
_POLL_S = 0.02
_TAIL_LINES = 25
_LINE_CHARS = 600
_ANSWERED_JUST_NOW_S = 0.3


def wait_for(what: Callable[[], object], timeout_s: float = WAIT_S) -> bool:
    """Poll until ``what`` is true; False when it is not so within the time."""
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not what():
        if time.monotonic() > deadline:
            return False
        pause.wait(_POLL_S)
    return True


@dataclass(frozen=True)
class Fault:
    """What was open at the model server when something was broken.

    Attributes:
        calls: Open, or answered so shortly before that the answer may not have been committed.
        worker: Who was killed, as rows name it; None where the fault was another.
    """

    calls: tuple[Call, ...]
    worker: str | None = None


@dataclass
class Program:
    """A process of the stack.

    Attributes:
        name: Its row in ``worker``; leases and attempts show it.
        aliases: Its children's names in leases and attempts; known once it was killed.
    """

    kind: str
    words: tuple[str, ...]
    name: str
    process: subprocess.Popen[bytes]
    log: Path
    aliases: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def freeze(self) -> None:
        """SIGSTOP: it holds its leases, connections and messages, and does nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM: finish or give back, and end."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = 20.0) -> int:
        """Its exit status; ``subprocess.TimeoutExpired`` when it goes on."""
        return self.process.wait(timeout_s)

    def limit_files(self, most_bytes: int | None) -> None:
        """No file that it writes may grow beyond so much (EFBIG, which is treated as a full disk); None lifts it."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (hard if most_bytes is None else most_bytes, hard))

    def said(self, lines: int | None = None) -> str:
        """The end of its log."""
        whole = self.log.read_text(encoding="utf-8", errors="replace")
        return whole if lines is None else "\n".join(map(_shortened, whole.splitlines()[-lines:]))


@dataclass
class Stack:
    """Processes over one database, one Redis and one model server. ``close`` ends them.

    Args:
        folder: For the configuration, the home, logs and documents.
        config: Laid over the configuration of the tests; mappings are merged.
    """

    servers: Servers
    models: UpstreamProcess
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1
    programs: list[Program] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.papers = Papers(self.folder, self.rng)
        self.database_url = self.servers.new_database()
        file = self.folder / "tidegate.yaml"
        file.write_text(yaml.safe_dump(_merged(self._standard(), self.config)), encoding="utf-8")
        settings = Settings(
            database_url=SecretStr(self.database_url),
            redis_url=SecretStr(self.servers.redis_url),
            home=self.folder / "home",
            config=file,
        )
        self.container = Container(settings, name="tests")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "MODEL_"))}
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment = {
            **inherited,
            "TIDEGATE_DATABASE_URL": self.database_url,
            "TIDEGATE_REDIS_URL": self.servers.redis_url,
            "TIDEGATE_HOME": str(settings.home),
            "TIDEGATE_CONFIG": str(file),
            "PYTHONPATH": str(REPO),
        }

    def _standard(self) -> dict[str, Any]:
        chat = {"base_url": self.models.base_url, "modalities": ["text", "image"]}
        return {
            "failover": {"ttft_timeout_s": 60, "idle_timeout_s": 60, "timeout_s": 60, "deadline_s": 120},
            "registry": {"timeout_s": 2},
            "presets": {name: {"model": f"openai/{name}", **chat} for name in ("vision", "format", "cues")},
            "kb": {
                **{role: {"preset": name} for role, name in MODELS.items() if role != "embedder"},
                "embedder": {"model": "openai/vectors", "dim": 256, "base_url": self.models.base_url},
            },
            "describe": {"when": "always"},
            "chunk": {"max_tokens": 80, "overlap_tokens": 0},
            "unit": {"lease_s": 15},
            "dispatch": {"period_s": 0.5},
        }

    # --- processes --------------------------------------------------------------------------------------------------

    def worker(self, *queues: str, threads: int = 4, ready: bool = True) -> Program:
        """Start a worker of these queues (all without any) as ``tidegate worker`` does."""
        label = queues[0] if len(queues) == 1 else "all" if len(queues) in (0, len(QUEUES)) else "mixed"
        chosen = ("--queues", ",".join(queues)) if queues else ()
        return self.start("worker", ("worker", *chosen, "--threads", str(threads)), label, ready=ready)

    def beat(self, *, ready: bool = True) -> Program:
        """Start a beat."""
        return self.start("beat", ("beat",), "beat", ready=ready)

    def start(
        self, kind: str, words: Sequence[str], label: str, *, ready: bool = True, by: Sequence[str] = ("-m", "worker")
    ) -> Program:
        """Start any process of the command; it ends with this one.

        Args:
            by: What Python is given before the words, where it is not the command itself.
        """
        log = self.folder / f"{len(self.programs)}-{label}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                tethered([sys.executable, "-P", *by, *words], signal.SIGKILL),
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        name = f"{label}-{process.pid}@{socket.gethostname()}"
        program = Program(kind, tuple(words), name, process, log)
        self.programs.append(program)
        if ready:
            self.wait_ready(program)
        return program

    def again(self, program: Program, *, ready: bool = True) -> Program:
        """Start another process like one that has ended."""
        label = program.name.split("-", 1)[0]
        return self.start(program.kind, program.words, label, ready=ready)

    def wait_ready(self, *programs: Program) -> None:
        """Wait until processes that were started with ``ready=False`` work; they start side by side."""
        for program in programs:
            self.wait_until(
                lambda program=program: f"{program.kind}.started" in program.said(),  # type: ignore[misc]
                timeout_s=START_S,
            )
            assert program.alive, f"{program.name} ended with {program.process.returncode}\n{program.said(_TAIL_LINES)}"

    def kill(self, program: Program, *, wait_out_leases: bool = False) -> Fault:
        """SIGKILL, with the calls noted that were open; the process is gone when this returns, with its children.

        Args:
            wait_out_leases: Let its leases run out in their own time, or by ``run_out_leases``, rather than now.
        """
        family, began = descendants_of(program.pid), time.time()
        program.process.kill()
        program.process.wait(10)
        # Looked at afterwards: what it sent until its last moment counts as open.
        fault = self.fault(program, since=began)
        for child in family:
            assert child.wait_gone(20), f"child {child.pid} of {program.name} outlives it"
        # Its units that have lost a lease before are held by a child, its quarantine.
        program.aliases = [f"quarantine-{child.pid}@{socket.gethostname()}" for child in family]
        if not wait_out_leases:
            self.run_out_leases(program)
        return fault

    def run_out_leases(self, program: Program) -> None:
        """Let the leases have run out just now that a process holds which is dead or frozen."""
        sql = "update unit set lease_expires_at = now() where leased_by = any(:held_by)"
        self.change(sql, held_by=[program.name, *program.aliases])

    def fault(self, program: Program | None = None, since: float | None = None) -> Fault:
        """Note the calls that are open at the server now, or were answered a moment ago.

        Args:
            program: Who is broken, where it is a process.
            since: When it was broken, in Unix seconds, where that is done already.
        """
        now = time.time() if since is None else since
        recent = [
            call for call in self.models.calls() if call.ended_at is None or call.ended_at > now - _ANSWERED_JUST_NOW_S
        ]
        fault = Fault(tuple(recent), program.name if program else None)
        self.faults.append(fault)
        return fault

    # --- documents --------------------------------------------------------------------------------------------------

    def enqueue(self, *paths: Path, hand_out: bool = True, **options: Any) -> list[int]:
        """Accept files and hand them out, as ``tidegate enqueue`` does; the runs' ids in the files' order."""
        container = self.container
        result = enqueue(
            container.sessions,
            container.blobs,
            paths,
            recipe=container.recipe_for(options.get("collection", "default")),
            limits=container.config.limits.to_domain(),
            sniff=sniff,
            **options,
        )
        if hand_out:
            container.dispatch()
        runs = [document.run for document in result.documents]
        assert None not in runs, result.to_json()
        return [run for run in runs if run is not None]

    # --- looking ----------------------------------------------------------------------------------------------------

    def rows(self, sql: str, **values: Any) -> list[Any]:
        """What a query finds, in a transaction of its own."""
        with self.container.sessions() as session:
            return list(session.execute(text(sql), values).all())

    def change(self, sql: str, **values: Any) -> None:
        """Write rows behind the product's back."""
        with self.container.sessions.begin() as session:
            session.execute(text(sql), values)

    def count(self, sql: str, **values: Any) -> int:
        """``select count(*) from`` + the rest of the query."""
        return int(self.rows(f"select count(*) from {sql}", **values)[0][0])  # noqa: S608 - a test's own words

    def open_calls(self, model: str | None = None) -> list[Call]:
        """Calls that the model server has not answered yet."""
        return self.models.calls(model, ended=False)

    def wait_until(self, what: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait for a condition; when it does not come, fail with the rows and the ends of the logs."""
        if not wait_for(what, timeout_s):
            raise AssertionError(f"not within {timeout_s:g} s\n{self.state()}")

    def wait_ended(self, *runs: int, timeout_s: float = WAIT_S) -> None:
        """Wait until these runs have ended (all runs without any)."""
        ended = tuple(state.value for state in ENDED_RUN_STATES)
        sql = "run where state <> all(:ended) and (:every or id = any(:runs))"
        self.wait_until(
            lambda: not self.count(sql, ended=list(ended), every=not runs, runs=list(runs)), timeout_s=timeout_s
        )

    def pass_time(self, seconds: float) -> None:
        """Make what is waited for so much older: open attempts, messages under way, the dead's last heartbeats.

        Leases, and the heartbeats of processes that live (the frozen ones among them), stay.
        """
        dead = [program.name for program in self.programs if not program.alive]
        with self.container.sessions.begin() as session:
            for sql in (
                "update attempt set started_at = started_at - make_interval(secs => :s) where outcome = 'running'",
                "update unit set dispatched_at = dispatched_at - make_interval(secs => :s) where state = 'pending'",
                "update unit set resume_at = resume_at - make_interval(secs => :s) where state = 'pending'",
                "update worker set heartbeat_at = heartbeat_at - make_interval(secs => :s) where id = any(:dead)",
            ):
                session.execute(text(sql), {"s": seconds, "dead": dead})

    @contextmanager
    def locked(self, sql: str, **values: Any) -> Iterator[None]:
        """Hold the rows of a ``select … for update`` while the block runs: who wants to write them waits."""
        with self.container.sessions.begin() as session:
            session.execute(text("set local idle_in_transaction_session_timeout = 0"))
            session.execute(text(sql), values)
            yield

    def state(self) -> str:
        """What a person needs to see what happened: rows, calls, ends of logs."""
        parts = [
            _table("runs", self.rows("select id, state, failure_kind, failure_detail, resume_at from run order by id")),
            _table(
                "units not done",
                self.rows(
                    "select run_id, stage, ordinal, state, lost_leases, leased_by, dispatched_at, lease_expires_at, "
                    "failure_kind, now() from unit where state <> 'done' order by id limit 40"
                ),
            ),
            _table("units", self.rows("select stage, state, count(*) from unit group by 1, 2 order by 1, 2")),
            _table(
                "attempts", self.rows("select role, worker, outcome, kind, count(*) from attempt group by 1, 2, 3, 4")
            ),
            _table("calls open", [(call.n, call.model, call.act) for call in self.open_calls()]),
        ]
        parts += [
            f"--- {program.name} ({program.process.poll()})\n{program.said(_TAIL_LINES)}" for program in self.programs
        ]
        return "\n".join(parts)

    def close(self) -> None:
        """End every process (SIGTERM, then SIGKILL) and let go of the connections."""
        for program in self.programs:
            if program.alive:
                program.thaw()
                program.terminate()
        for program in self.programs:
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.process.kill()
                program.wait()
        self.container.close()


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _shortened(line: str) -> str:
    """A traceback's last words are what counts."""
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS // 3]} … {line[-_LINE_CHARS * 2 // 3 :]}"


def _table(title: str, rows: Sequence[Any]) -> str:
    return "\n".join([f"--- {title}", *(f"  {tuple(row)}" for row in rows)])
