"""A seeded random run: all is killed, frozen, cut off and restarted while documents flow, and then all must hold.

    python -m tests.fault.chaos --seconds 600 --seed 7 --documents 200

The seed gives the documents and the sequence of the faults; when threads meet is not repeatable. At the end everything
is healed, the backlog drains, and what must hold is read from the rows and from the model server's own log of calls.
"""

from __future__ import annotations

import argparse
import heapq
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import psycopg
import redis
from sqlalchemy.engine import make_url

from pipeline.documents.sniff import sniff
from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.run import ENDED_RUN_STATES
from pipeline.enqueue import enqueue
from tests.fault.checks import check, inputs_of
from tests.fault.kin import descendants_of
from tests.fault.servers import Server, Servers
from tests.fault.stack import Fault, Program, Stack
from tests.upstream import Call, UpstreamProcess

__all__ = ["Chaos", "Report"]

_TICK_S = 0.1
_LOOK_S = 0.5
_JUST_NOW_S = 1.0
"""An answer so shortly before a fault may not have been committed."""
_HEALING_S = 5.0
"""After an outage it takes so long until what waited for its end is committed."""
_ENQUEUED_BY = 0.8
"""The part of the time in which documents come in."""
_BATCH = 5
_FORGOTTEN_A_CRASH = 30
"""Attempts are committed asynchronously: those of the last moment go with a Postgres that crashes or is cut off."""
_SIGTERM_S = 30.0

_CONFIG: dict[str, Any] = {
    "failover": {
        "ttft_timeout_s": 4,
        "idle_timeout_s": 4,
        "timeout_s": 30,
        "deadline_s": 60,
        "cooldown_s": 1,
        "cooldown_max_s": 4,
    },
    "registry": {"timeout_s": 0.25},
    # Random kills may well hit one unit three times; poison has tests of its own.
    "unit": {"max_lost": 20, "max_calls": 200},
}
_MOODS: tuple[Any, ...] = ("overloaded", "rate_limit", "hang", "cut", "reset", {"first_content_s": 1.5})
_PACE = {"first_content_s": 0.25}


@dataclass
class _Outage:
    """Whether a server answers, and since when not."""

    server: Server
    how: str | None = None
    since: float = 0.0
    until: float = 0.0

    @property
    def away(self) -> bool:
        return self.how is not None

    def begin(self, how: str) -> None:
        self.how, self.since = how, time.time()

    def end(self) -> None:
        if self.how == "frozen":
            self.server.thaw()
        elif self.how == "down":
            self.server.start()
        self.how, self.until = None, time.time()


@dataclass
class _Slot:
    """A place in the fleet, which always has a process again, as under a supervisor."""

    program: Program
    frozen: bool = False
    ended_by_us: bool = False
    again_at: float = 0.0


@dataclass
class Report:
    """What was done and what came of it.

    Attributes:
        unexplained: Inputs that were answered well again, though no call for them was open at a fault.
    """

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    open_at_faults: int = 0
    unexplained: list[str] = field(default_factory=list)
    recoveries: list[tuple[float, str]] = field(default_factory=list)
    drained_s: float = 0.0
    deaths: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        slowest, after = max(self.recoveries, default=(0.0, "nothing"))
        lines = [
            f"seed                  {self.seed}",
            f"faults                {self.faults.total()}: {_counted(self.faults)}",
            f"documents             {_counted(self.states)}",
            f"model calls           {self.calls.total()}: {_counted(self.calls)}",
            f"repeated, answered    {self.repeated} (answers under way at the faults: {self.open_at_faults})",
            f"slowest recovery      {slowest:.1f} s, after {after}",
            f"drained after         {self.drained_s:.1f} s",
        ]
        return "\n".join(lines)


class Chaos:
    """One run over servers and a model server that are the caller's; use it from the main thread.

    Args:
        seconds: How long things are broken; the backlog drains after it.
        documents: How many come in meanwhile.
        pace_s: Between two faults, on average.
        longest_s: The longest that anything is frozen or away.
        drain_s: How long the backlog may take after it.
        leases_run_out: Let the leases of the killed run out in their own time, rather than at once.
    """

    def __init__(
        self,
        servers: Servers,
        models: UpstreamProcess,
        folder: Path,
        *,
        seed: int,
        seconds: float,
        documents: int,
        pace_s: float = 3.0,
        longest_s: float = 6.0,
        workers: int = 2,
        drain_s: float = 300.0,
        leases_run_out: bool = True,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.stack = Stack(servers, models, folder, config=_CONFIG, seed=seed)
        self._rng = Random(seed)
        self._seconds, self._pace_s, self._longest_s, self._drain_s = seconds, pace_s, longest_s, drain_s
        self._say = say
        self._workers = workers
        self._leases_run_out = leases_run_out
        self._postgres, self._redis = _Outage(servers.postgres), _Outage(servers.redis)
        papers = self.stack.papers
        self._papers = [papers.sheets(2) if number % 5 == 0 else papers.note() for number in range(documents)]
        self._slots: list[_Slot] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._began = 0.0
        self._crashes = 0
        self._recovering: list[tuple[float, str, int]] = []
        self._done, self._left, self._look_at = 0, 1, 0.0
        self.report = Report(seed)
        self._kinds: dict[str, tuple[int, Callable[[], bool]]] = {
            "worker killed": (4, self._kill_worker),
            "worker frozen": (2, self._freeze_worker),
            "worker told to end": (3, self._end_worker),
            "beat killed": (1, self._kill_beat),
            "Redis killed": (2, lambda: self._stop(self._redis, "Redis killed", kill=True)),
            "Redis frozen": (2, lambda: self._freeze(self._redis, "Redis frozen")),
            "Redis flushed": (1, self._flush),
            "Redis cut off": (2, self._cut_redis),
            "Postgres killed": (2, lambda: self._stop(self._postgres, "Postgres killed", kill=True)),
            "Postgres stopped": (1, lambda: self._stop(self._postgres, "Postgres stopped", kill=False)),
            "Postgres frozen": (1, lambda: self._freeze(self._postgres, "Postgres frozen")),
            "Postgres cut off": (2, self._cut_postgres),
            "model in a mood": (5, self._upset_model),
        }

    def run(self) -> Report:
        """Break things, heal them, wait for the backlog, and check.

        Raises:
            AssertionError: Something does not hold; the text has the summary, the rows and the ends of the logs.
        """
        stack = self.stack
        stack.models.behave("*", _PACE)
        programs = [stack.worker(ready=False) for _ in range(self._workers)] + [stack.beat(ready=False)]
        stack.wait_ready(*programs)
        self._slots = [_Slot(program) for program in programs]
        self._began = time.monotonic()
        self._schedule_documents()
        self._schedule_fault()
        while time.monotonic() - self._began < self._seconds:
            self._step()
        self._heal()
        healed_at = time.monotonic()
        while self._left and time.monotonic() - healed_at < self._drain_s:
            self._step()
        self.report.drained_s = time.monotonic() - healed_at
        self._verify()
        return self.report

    def close(self) -> None:
        """End the processes; the servers are left running and answering."""
        for outage in (self._postgres, self._redis):
            if outage.away:
                outage.end()
        self.stack.close()

    # --- time -------------------------------------------------------------------------------------------------------

    def _in(self, seconds: float, do: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (time.monotonic() + seconds, self._number, do))

    def _step(self) -> None:
        threading.Event().wait(_TICK_S)
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()
        self._tend()
        self._look()

    def _tend(self) -> None:
        """Start again what has ended, as a supervisor does."""
        for slot in self._slots:
            program = slot.program
            if program.alive:
                continue
            if slot.again_at == 0.0:
                started = f"{program.kind}.started" in program.said()
                if started and not slot.ended_by_us:
                    self.report.deaths.append(f"{program.name} ended by itself: {program.process.returncode}")
                slot.again_at = time.monotonic() + 1.0
            elif time.monotonic() >= slot.again_at:
                slot.program = self.stack.again(program, ready=False)
                slot.frozen, slot.ended_by_us, slot.again_at = False, False, 0.0

    def _look(self) -> None:
        """See how far the work is; who waits for a fault's recovery hears of the first unit that is done after it."""
        if self._postgres.away or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        try:
            self._done = self.stack.count("unit where state = 'done'")
            ended = [state.value for state in ENDED_RUN_STATES]
            self._left = len(self._papers) + self.stack.count("run where state <> all(:ended)", ended=ended)
        except ServiceUnavailable:
            return
        now = time.monotonic()
        waiting = []
        for since, what, done in self._recovering:
            if self._done > done:
                self.report.recoveries.append((now - since, what))
            elif self._left:
                waiting.append((since, what, done))
        self._recovering = waiting

    def _over(self, what: str) -> None:
        self._recovering.append((time.monotonic(), what, self._done))

    # --- documents --------------------------------------------------------------------------------------------------

    def _schedule_documents(self) -> None:
        batches = -(-len(self._papers) // _BATCH)
        for number in range(batches):
            self._in(self._seconds * _ENQUEUED_BY * number / batches, self._enqueue)

    def _enqueue(self) -> None:
        """Hand the next files in; who is told that a server is away does it again, as a person would."""
        batch = self._papers[:_BATCH]
        if not batch:
            return
        if self._postgres.away:
            self._in(1.0, self._enqueue)
            return
        container = self.stack.container
        try:
            enqueue(
                container.sessions,
                container.blobs,
                batch,
                recipe=container.recipe_for("default"),
                limits=container.config.limits.to_domain(),
                sniff=sniff,
            )
        except ServiceUnavailable:
            self._in(1.0, self._enqueue)
            return
        del self._papers[: len(batch)]
        if not self._redis.away:
            try:
                container.dispatch()
            except ServiceUnavailable:
                # The beat does it.
                return

    # --- faults -----------------------------------------------------------------------------------------------------

    def _schedule_fault(self) -> None:
        self._in(self._rng.uniform(0.4, 1.6) * self._pace_s, self._fault)

    def _fault(self) -> None:
        if time.monotonic() - self._began >= self._seconds:
            return
        names = list(self._kinds)
        (name,) = self._rng.choices(names, [self._kinds[one][0] for one in names])
        if self._kinds[name][1]():
            self.report.faults[name] += 1
            self._say(f"{time.monotonic() - self._began:6.1f} s  {name}")
        self._schedule_fault()

    def _note(self, program: Program | None = None) -> None:
        """Remember the calls whose answers may be lost now: those open, and those answered and perhaps not stored."""
        since = time.time() - _JUST_NOW_S
        for outage in (self._postgres, self._redis):
            if outage.away or outage.until > time.time() - _HEALING_S:
                since = min(since, outage.since - _JUST_NOW_S)
        calls = tuple(call for call in self.stack.models.calls() if call.ended_at is None or call.ended_at > since)
        self.stack.faults.append(Fault(calls, program.name if program else None))

    def _pick_worker(self) -> _Slot | None:
        slot = self._rng.choice(self._slots[:-1])
        busy = slot.frozen or slot.ended_by_us or not slot.program.alive
        return None if busy else slot

    def _kill_worker(self) -> bool:
        slot = self._pick_worker()
        return slot is not None and self._kill(slot, "worker killed")

    def _kill_beat(self) -> bool:
        slot = self._slots[-1]
        return slot.program.alive and self._kill(slot, "beat killed")

    def _kill(self, slot: _Slot, what: str) -> bool:
        program = slot.program
        slot.ended_by_us = True
        family = descendants_of(program.pid)
        program.process.kill()
        program.process.wait(10)
        # Looked at afterwards: what it sent until its last moment counts as open.
        self._note(program)
        host = program.name.partition("@")[2]
        for child in family:
            assert child.wait_gone(10), f"child {child.pid} of {program.name} outlives it"
        children = [f"quarantine-{child.pid}@{host}" for child in family]
        self.stack.faults += [Fault((), child) for child in children]
        if not self._leases_run_out:
            self._run_out([program.name, *children])
        self._over(what)
        return True

    def _run_out(self, workers: list[str]) -> None:
        if self._postgres.away:
            self._in(1.0, lambda: self._run_out(workers))
            return
        try:
            self.stack.change("update unit set lease_expires_at = now() where leased_by = any(:by)", by=workers)
        except ServiceUnavailable:
            self._in(1.0, lambda: self._run_out(workers))

    def _freeze_worker(self) -> bool:
        slot = self._pick_worker()
        if slot is None:
            return False
        slot.frozen = True
        slot.program.freeze()
        # Looked at afterwards: what it sent until its last moment counts as open.
        self._note(slot.program)

        def thaw() -> None:
            # What it had in hand when it was frozen, it has in hand still.
            slot.program.thaw()
            slot.frozen = False
            self._over("worker frozen")

        self._in(self._rng.uniform(0.5, self._longest_s), thaw)
        return True

    def _end_worker(self) -> bool:
        slot = self._pick_worker()
        if slot is None:
            return False
        self._note(slot.program)
        slot.ended_by_us = True
        slot.program.terminate()
        self._in(0.0, lambda: self._await_end(slot, slot.program, time.monotonic() + _SIGTERM_S))
        return True

    def _await_end(self, slot: _Slot, program: Program, deadline: float) -> None:
        if not program.alive:
            self._over("worker told to end")
        elif time.monotonic() > deadline:
            self.report.deaths.append(f"{program.name} was told to end and did not")
            self._kill(slot, "worker told to end")
        else:
            # Calls that it began after SIGTERM are cancelled with its end.
            self._note(program)
            self._in(0.5, lambda: self._await_end(slot, program, deadline))

    def _stop(self, outage: _Outage, what: str, *, kill: bool) -> bool:
        if outage.away:
            return False
        outage.begin("down")
        if kill:
            outage.server.kill()
            self._crashes += outage is self._postgres
        else:
            outage.server.stop()
        self._in(self._rng.uniform(0.2, self._longest_s), lambda: self._end(outage, what))
        return True

    def _freeze(self, outage: _Outage, what: str) -> bool:
        if outage.away:
            return False
        outage.begin("frozen")
        outage.server.freeze()
        self._in(self._rng.uniform(0.5, self._longest_s), lambda: self._end(outage, what))
        return True

    def _end(self, outage: _Outage, what: str) -> None:
        if outage.away:
            outage.end()
            self._over(what)

    def _flush(self) -> bool:
        if self._redis.away:
            return False
        self.stack.servers.flush_redis()
        self._over("Redis flushed")
        return True

    def _cut_redis(self) -> bool:
        if self._redis.away:
            return False
        client = redis.Redis.from_url(self.stack.servers.redis_url)
        try:
            for kind in ("normal", "pubsub"):
                client.client_kill_filter(_type=kind, skipme=True)
        finally:
            client.close()
        self._over("Redis cut off")
        return True

    def _cut_postgres(self) -> bool:
        if self._postgres.away:
            return False
        url = make_url(self.stack.database_url)
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()",
                (url.database,),
            )
        self._crashes += 1
        self._over("Postgres cut off")
        return True

    def _upset_model(self) -> bool:
        model = self._rng.choice(["vision", "format", "cues", "vectors", "*"])
        mood = self._rng.choice(_MOODS)
        self.stack.models.behave(model, mood, seconds=self._rng.uniform(1, self._longest_s))
        return True

    # --- the end ----------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} s  healed")
        self._due = [one for one in self._due if one[2] == self._enqueue]
        heapq.heapify(self._due)
        for outage, name in ((self._postgres, "Postgres"), (self._redis, "Redis")):
            self._end(outage, f"{name} away")
        for slot in self._slots:
            if slot.frozen:
                slot.program.thaw()
                slot.frozen = False
        self.stack.models.clear()
        self._left = 1

    def _verify(self) -> None:
        stack, report = self.stack, self.report
        calls = stack.models.calls()
        report.calls.update(call.outcome for call in calls)
        report.states.update(str(row.state) for row in stack.rows("select state from run"))
        noted = {call.n for fault in stack.faults for call in fault.calls}
        answers = [call for call in calls if call.outcome == "ok"]
        given, under_way = _inputs(answers), _inputs(call for call in answers if call.n in noted)
        beyond = Counter({key: count - 1 for key, count in given.items() if count > 1})
        report.repeated, report.open_at_faults = beyond.total(), under_way.total()
        report.unexplained = [
            f"{key} ({self._told(key, answers)})" for key, count in beyond.items() if count > under_way[key]
        ]
        for program in stack.programs:
            report.tracebacks += [f"{program.name}: {line}" for line in _tracebacks(program)]
        wrong = [
            *(f"answered again without a fault at it: {key}" for key in report.unexplained),
            *report.deaths,
            *report.tracebacks,
            *([f"{self._left} runs or documents are left after {self._drain_s:g} s"] if self._left else []),
        ]
        assert not wrong, "\n".join([*wrong, str(report), stack.state()])
        try:
            check(stack, only_answers=True, forgotten_attempts=_FORGOTTEN_A_CRASH * self._crashes)
        except AssertionError as error:
            raise AssertionError(f"{report}\n{error}") from error

    def _told(self, key: str, answers: list[Call]) -> str:
        """When the calls for an input went on, on the clock of the faults, and who made them."""
        zero = time.time() - (time.monotonic() - self._began)
        told = []
        for call in answers:
            if key in inputs_of(call):
                by = self.stack.rows(
                    "select worker, run_id, unit_id, outcome from attempt where target is not null "
                    "and abs(extract(epoch from started_at) - :at) < 0.5",
                    at=call.received_at,
                )
                whose = ", ".join(f"{row.worker} {row.run_id}/{row.unit_id} {row.outcome}" for row in by)
                ended = "" if call.ended_at is None else f"{call.ended_at - zero:.1f}"
                told.append(f"{call.received_at - zero:.1f}-{ended} s by one of {whose or 'nobody'}")
        return "; ".join(told)


def _inputs(calls: Iterator[Call] | list[Call]) -> Counter[str]:
    return Counter(key for call in calls for key in inputs_of(call))


def _tracebacks(program: Program) -> Iterator[str]:
    for line in program.said().splitlines():
        if "Traceback" in line:
            try:
                found = json.loads(line)
            except ValueError:
                yield line
            else:
                yield f"{found['event']}: {str(found.get('exception', '')).strip().splitlines()[-1:]}"


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counter.items()))


def main() -> int:
    """Run it as the command says; 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--pace", type=float, default=3.0, help="seconds between two faults, on average")
    parser.add_argument("--longest", type=float, default=12.0, help="the longest that anything is frozen or away")
    parser.add_argument("--keep", action="store_true", help="keep the logs and the documents")
    given = parser.parse_args()
    seed = SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    print(f"seed {seed}, {given.seconds:g} s, {given.documents} documents; logs in {folder}", flush=True)
    servers = Servers()
    servers.start()
    try:
        with UpstreamProcess() as models:
            chaos = Chaos(
                servers,
                models,
                folder,
                seed=seed,
                seconds=given.seconds,
                documents=given.documents,
                pace_s=given.pace,
                longest_s=given.longest,
                say=lambda line: print(line, flush=True),
            )
            try:
                print(chaos.run())
            except AssertionError as error:
                print(f"{error}\nDoes not hold; again with --seed {seed}. Logs in {folder}", file=sys.stderr)
                return 1
            finally:
                chaos.close()
    finally:
        servers.stop()
    if not given.keep:
        shutil.rmtree(folder)
    print("Everything holds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
