"""The outage at one moment: how the targets stand, what the calls have cost, where the documents are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.domain.run import RunState
from pipeline.failover.registry import BreakerState, TargetStatus
from pipeline.store.attempts import attempts_of_runs
from pipeline.store.progress import Progress, read_progress
from pipeline.store.reader import reader_of
from worker.bootstrap import ROLE_OF_STAGE, Container
from worker.outage.ledger import Ledger, Switched, read_ledger
from worker.outage.place import PRIMARIES
from worker.outage.script import Phase, Script

if TYPE_CHECKING:
    from worker.cli.models import CommandCalls

__all__ = ["Clock", "Eye", "Glimpse", "TargetGlimpse"]

_SHOWN_ROLES = {role: stage.value for stage, role in ROLE_OF_STAGE.items() if role != "embedder"}


@dataclass(frozen=True, slots=True)
class TargetGlimpse:
    """One target.

    Attributes:
        stages: What it works for.
        until: While it is open.
        ramp: Calls at once that it gets while it recovers.
    """

    key: str
    preset: str
    stages: tuple[str, ...]
    state: BreakerState
    probing: bool
    until: datetime | None
    kind: str | None
    in_flight: int
    max_parallel: int | None
    ramp: int | None
    answered: int
    failed: int

    @property
    def words(self) -> str:
        """Its state for people, without the time."""
        if self.state is BreakerState.HALF_OPEN:
            return "probing" if self.probing else "to be probed"
        if self.state is BreakerState.CLOSED and self.ramp is not None:
            return f"closed, {self.ramp} at a time"
        return self.state.value

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.key,
            "preset": self.preset,
            "stages": list(self.stages),
            "state": self.state,
            "until": self.until,
            "kind": self.kind,
            "answered": self.answered,
            "failed": self.failed,
        }


@dataclass(frozen=True, slots=True)
class Glimpse:
    """The whole picture.

    Attributes:
        elapsed_s: Since the script's begin.
        runs: Documents that have come in, by state.
        to_come: Documents that have not come in yet.
        names: The documents of the runs.
    """

    script: Script
    began_at: datetime
    elapsed_s: float
    targets: tuple[TargetGlimpse, ...]
    ledger: Ledger
    progress: Progress
    to_come: int
    names: Mapping[int, str]

    @property
    def phase(self) -> Phase:
        return self.script.at(self.elapsed_s)

    @property
    def done(self) -> int:
        return self.progress.count(RunState.DONE, RunState.EMPTY)

    @property
    def lost(self) -> int:
        return self.progress.count(RunState.FAILED, RunState.CANCELLED)

    @property
    def under_way(self) -> int:
        return len(self.progress.runs) - self.done - self.lost

    @property
    def total(self) -> int:
        return len(self.progress.runs) + self.to_come

    def at(self, elapsed_s: float) -> datetime:
        return self.began_at + timedelta(seconds=elapsed_s)

    def since_begin_s(self, moment: datetime) -> float:
        return (moment - self.began_at).total_seconds()

    def document_of(self, switched: Switched) -> str:
        return self.names.get(switched.run_id, "")


class Clock(Protocol):
    """The script's time."""

    @property
    def elapsed_s(self) -> float: ...

    @property
    def began_at(self) -> datetime: ...


class Eye:
    """Looks at the registry and at Postgres, as any command may."""

    def __init__(self, container: Container, made: CommandCalls, script: Script) -> None:
        self._container = container
        self._made = made
        self._script = script

    def look(self, clock: Clock, names: Mapping[int, str], to_come: int) -> Glimpse:
        """See how everything stands.

        Args:
            names: The documents' names by run.
            to_come: Documents that have not come in yet.

        Raises:
            ServiceUnavailable: Postgres or Redis is away.
        """
        with self._container.sessions() as session:
            rows = attempts_of_runs(reader_of(session), names)
            progress = read_progress(session, list(names))
        ledger = read_ledger(rows, PRIMARIES)
        statuses = self._made.statuses()
        targets = [
            _target(known.target.preset, _stages(known.roles), known.target.max_parallel, status, ledger)
            for known in self._container.chains.known
            if _stages(known.roles) and (status := statuses[known.target.key])
        ]
        # The primaries first; the configuration's order else.
        targets.sort(key=lambda target: target.preset not in PRIMARIES)
        return Glimpse(
            self._script, clock.began_at, clock.elapsed_s, tuple(targets), ledger, progress, to_come, dict(names)
        )


def _stages(roles: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_SHOWN_ROLES[role] for role in roles if role in _SHOWN_ROLES)


def _target(
    preset: str, stages: tuple[str, ...], max_parallel: int | None, status: TargetStatus, ledger: Ledger
) -> TargetGlimpse:
    is_open = status.state is BreakerState.OPEN and status.until is not None
    return TargetGlimpse(
        key=status.target,
        preset=preset,
        stages=stages,
        state=status.state,
        probing=status.probing,
        until=datetime.fromtimestamp(status.until or 0.0, UTC) if is_open else None,
        kind=status.kind,
        in_flight=status.in_flight,
        max_parallel=max_parallel,
        ramp=status.ramp,
        answered=ledger.answered.get(preset, 0),
        failed=ledger.failed.get(preset, 0),
    )
