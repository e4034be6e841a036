"""The outage from its start to its sums."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pipeline.clock import wall_now_s
from pipeline.settings import Settings
from pipeline.status import status
from worker.bootstrap import Container, open_container
from worker.cli.enqueue import Order, carry_out
from worker.cli.models import calls_of
from worker.cli.stack import START_TIMEOUT_S
from worker.embedded import start_detached, stop_stack
from worker.outage.control import Primaries, serving
from worker.outage.documents import Arrival, feed, write_sheets
from worker.outage.glimpse import Eye, Glimpse
from worker.outage.place import PRIMARIES, prepare
from worker.outage.primary import Served
from worker.outage.script import DEFAULT_SCRIPT, Script
from worker.outage.view import Show, display
from worker.stack import choose_port, program

if TYPE_CHECKING:
    from worker.cli.terminal import Terminal

__all__ = ["Outage", "Plan", "run_outage"]

_COLLECTION = "outage"
_TICK_S = 0.4
_AFTER_RECOVERY_S = 9.0
_LATEST_S = 180.0
"""After the last document has come in; what has not ended by then is not going to."""
_WARM_S = 60.0
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """What to play.

    Attributes:
        sheets: Documents to write and take in.
        others: Documents that exist, to take in beside them.
        scans: Those among them that a vision model has to look at, a few.
        feed_s: Over how long the sheets come in; None for until traffic is back on the primaries.
    """

    script: Script = DEFAULT_SCRIPT
    sheets: int = 48
    others: Sequence[Path] = ()
    scans: Sequence[Path] = ()
    feed_s: float | None = None

    @property
    def lasts_s(self) -> float:
        return self.script.recovers_s + _AFTER_RECOVERY_S if self.feed_s is None else self.feed_s


@dataclass(frozen=True, slots=True)
class Outage:
    """What came of it.

    Attributes:
        end: How everything stood when the last document had ended.
        served: The simulated server's own log.
        degraded: Units that a fallback answered.
        states: Each target's states as they were seen, with when; by preset.
    """

    end: Glimpse
    served: tuple[Served, ...]
    degraded: int
    states: dict[str, list[tuple[float, str]]]
    home: Path
    seconds: float = field(default=0.0)

    @property
    def lost(self) -> int:
        """Documents that failed, or never ended."""
        return self.end.lost + self.end.under_way

    @property
    def back_after_s(self) -> dict[str, float]:
        """How long after the recovery each primary's first answer began."""
        recovered_at = self.end.at(self.end.script.recovers_s)
        return {preset: round(s, 1) for preset, s in self.end.ledger.back_after(recovered_at).items()}

    @property
    def served_counts(self) -> dict[str, int]:
        found = Counter(call.outcome for call in self.served)
        return {outcome: found[outcome] for outcome in ("answered", "refused", "dropped")}

    @property
    def agrees(self) -> bool:
        """Whether the attempts say of the primaries what the server's own log says."""
        counts = self.served_counts
        ledger = self.end.ledger
        answered = sum(ledger.answered.get(preset, 0) for preset in PRIMARIES)
        return (answered, ledger.wasted) == (counts["answered"], counts["refused"] + counts["dropped"])

    @property
    def is_right(self) -> bool:
        return self.lost == 0 and self.agrees and "text" in self.back_after_s

    def to_json(self) -> dict[str, Any]:
        end, ledger = self.end, self.end.ledger
        return {
            "phases": [
                {
                    "mode": phase.mode,
                    "began_at": end.at(phase.begins_s),
                    "seconds": phase.seconds if phase is not end.script.phases[-1] else None,
                    "calls": Counter(call.outcome for call in self.served if call.phase == index),
                }
                for index, phase in enumerate(end.script.phases)
            ],
            "switches": [one.to_json() | {"document": end.document_of(one)} for one in ledger.switches],
            "calls_wasted": ledger.wasted,
            "seconds_lost": ledger.lost_s,
            "calls_passed_over": ledger.passed_over,
            "documents": {"total": end.total, "done": end.done, "lost": self.lost, "degraded_units": self.degraded},
            "targets": [
                target.to_json()
                | {"states": [{"at_s": at_s, "state": state} for at_s, state in self.states.get(target.preset, [])]}
                for target in end.targets
            ],
            "back_after_s": self.back_after_s,
            "server": {**self.served_counts, "agrees": self.agrees},
            "home": self.home,
            "seconds": round(self.seconds, 1),
        }


def run_outage(terminal: Terminal, settings: Settings, plan: Plan) -> Outage:
    """Play a plan on a stack of its own, which is stopped at the end, whatever ends it.

    Raises:
        UsageError: Another outage runs here.
        ServiceUnavailable: The stack does not come up, or goes away.
    """
    began = time.monotonic()
    port = choose_port(0)
    own = prepare(settings, port)
    sheets = write_sheets(own.home / "documents", plan.sheets)
    arrivals = feed(sheets, plan.others, plan.scans, plan.script, plan.lasts_s)
    with serving(own.home, port, plan.script) as primaries, _stack(terminal, own), open_container(own) as container:
        outage = _play(terminal, container, primaries, plan, arrivals)
    return Outage(outage.end, outage.served, outage.degraded, outage.states, own.home, time.monotonic() - began)


@contextmanager
def _stack(terminal: Terminal, settings: Settings) -> Iterator[None]:
    terminal.note("starting a stack for the outage …")
    words = ["up", "--no-flower", "--threads", str(_THREADS), "--leash", str(os.getpid())]
    start_detached(program(*words), settings.home, START_TIMEOUT_S, env=settings.environ)
    try:
        yield
    finally:
        terminal.note("stopping …")
        stop_stack(settings.home)
        terminal.note("stopped.")


def _play(
    terminal: Terminal, container: Container, primaries: Primaries, plan: Plan, arrivals: Sequence[Arrival]
) -> Outage:
    clock, pause = _Clock(), threading.Event()
    with calls_of(container) as made, display(terminal) as show:
        stage = _Stage(terminal, container, Eye(container, made, plan.script), clock, deque(arrivals), show)
        # On a slow machine the first calls come late; an outage before them would be an outage of nothing.
        warm_by = time.monotonic() + _WARM_S
        while not _is_warm(stage.turn(), bool(plan.scans)) and time.monotonic() < warm_by:
            pause.wait(_TICK_S)
        primaries.begin()
        clock.begin()
        latest_s = arrivals[-1].at_s + _LATEST_S
        while True:
            turned_at = time.monotonic()
            glimpse = stage.turn()
            ended = not glimpse.to_come and not glimpse.under_way
            if ended or glimpse.elapsed_s > latest_s:
                break
            pause.wait(max(0.0, turned_at + _TICK_S - time.monotonic()))
    found = status(container.reads, document_ids=list(stage.documents.values()), limit=len(stage.documents))
    degraded = sum(one.degraded for one in found.documents)
    return Outage(glimpse, tuple(primaries.calls()), degraded, stage.states, container.settings.home)


def _is_warm(glimpse: Glimpse, has_scans: bool) -> bool:
    """Whether every primary is at work, and one has answered."""
    primaries = [target for target in glimpse.targets if target.preset in PRIMARIES]
    needed = [target for target in primaries if target.preset == "text" or has_scans]
    return any(target.answered for target in primaries) and all(
        target.in_flight or target.answered or target.failed for target in needed
    )


class _Clock:
    """The script's clock, which stands at zero until the script begins."""

    def __init__(self) -> None:
        self._began: tuple[float, datetime] | None = None

    def begin(self) -> None:
        self._began = time.monotonic(), _now()

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began[0]

    @property
    def began_at(self) -> datetime:
        return _now() if self._began is None else self._began[1]


def _now() -> datetime:
    return datetime.fromtimestamp(wall_now_s(), UTC)


class _Stage:
    """Lets documents in when they are due, looks, and shows what it saw."""

    def __init__(
        self, terminal: Terminal, container: Container, eye: Eye, clock: _Clock, arrivals: deque[Arrival], show: Show
    ) -> None:
        self._terminal = terminal
        self._container = container
        self._eye = eye
        self._clock = clock
        self._arrivals = arrivals
        self._show = show
        self._names: dict[int, str] = {}
        self.documents: dict[int, UUID] = {}
        self.states: dict[str, list[tuple[float, str]]] = {}

    def turn(self) -> Glimpse:
        """One round."""
        self._let_in(self._clock.elapsed_s)
        glimpse = self._eye.look(self._clock, self._names, len(self._arrivals))
        for target in glimpse.targets:
            seen = self.states.setdefault(target.preset, [])
            if not seen or seen[-1][1] != target.words:
                seen.append((round(glimpse.elapsed_s, 1), target.words))
        self._show(glimpse)
        return glimpse

    def _let_in(self, now_s: float) -> None:
        due = []
        while self._arrivals and self._arrivals[0].at_s <= now_s:
            due.append(str(self._arrivals.popleft().path))
        if not due:
            return
        order = Order(due, collection=_COLLECTION, label=_COLLECTION)
        for one in carry_out(self._terminal, self._container, order).documents:
            if one.run is not None and one.id is not None:
                self._names[one.run] = Path(one.path).name
                self.documents[one.run] = one.id
