"""Why: the reason that a document is where it is, and the command that helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.budgets import BudgetStanding
from pipeline.domain.errors import UsageError
from pipeline.domain.run import ACTIVE_RUN_STATES, RunState
from pipeline.domain.unit import MODEL_STAGES, Stage, queue_of
from pipeline.failover.registry import BreakerState, TargetStatus
from pipeline.sources import source_uri, words_to_enqueue
from pipeline.status import DocumentStatus, QueueLoad, Status, status
from pipeline.store.attempts import AttemptRow, last_failures
from pipeline.store.reader import Reader, Reads
from pipeline.store.reports import document_named
from pipeline.store.standing import runs_ahead, standing_of

__all__ = ["ChainLink", "Why", "next_try", "why"]

_MESSAGE_CHARS = 200

# What helps against a failure, by its kind, a line a command. A kind that is not here is worth another try as it is.
_NOT_AGAIN: dict[str, str] = {
    "password_required": "tidegate enqueue {path} --password P\ntidegate enqueue {path} --password-file FILE",
    "corrupt": "put a sound copy in its place, then:  tidegate enqueue {path}",
    "unsupported": "convert it to a format that is read, then enqueue that",
    "unsafe": "look at the file before you trust it; it was not opened",
    "too_large": "raise what it names under limits: in the configuration, then:  tidegate enqueue {path}",
    # Where the live version is of the same bytes, enqueue stores them again, and begins no run.
    "blob_missing": "tidegate enqueue {path}\ntidegate requeue --document {ref} --failed",
}


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A target of a stage's chain, as the registry holds it.

    Attributes:
        name: What people call it: the preset, or the key.
        role: Whose chain it is in.
    """

    name: str
    role: str
    status: TargetStatus


def next_try(resume_at: datetime | None, chain: Sequence[ChainLink]) -> datetime | None:
    """When parked work is tried again: not while all of its chain cools, which its row may not have heard of yet."""
    recoveries = [link.status.until for link in chain if link.status.state is BreakerState.OPEN]
    known = [until for until in recoveries if until is not None]
    others = any(link.status.state in (BreakerState.CLOSED, BreakerState.HALF_OPEN) for link in chain)
    if resume_at is None or others or not known:
        return resume_at
    return max(resume_at, datetime.fromtimestamp(min(known), UTC))


@dataclass(frozen=True, slots=True)
class Why:
    """The explanation.

    Attributes:
        lines: Whole sentences, the most telling first.
        commands: What helps, the best first; empty when there is nothing to do.
        failures: The newest failed attempts, one a target and kind.
    """

    document: DocumentStatus
    lines: list[str]
    commands: list[str]
    failures: list[AttemptRow]

    def to_json(self) -> dict[str, Any]:
        return {
            "document": str(self.document.id),
            "path": self.document.path,
            "state": self.document.state.value,
            "stage": self.document.stage.value if self.document.stage else None,
            "lines": self.lines,
            "commands": self.commands,
            "failures": [
                {
                    "target": one.target,
                    "kind": one.kind,
                    "message": one.message,
                    "stage": one.stage,
                    "ordinal": one.ordinal,
                    "started_at": one.started_at.isoformat(),
                }
                for one in self.failures
            ],
        }


def why(
    reads: Reads,
    document: str,
    *,
    chains: Mapping[Stage, Sequence[ChainLink]] | None = None,
    budgets: Mapping[str, BudgetStanding] | None = None,
) -> Why:
    """Explain a document.

    Args:
        document: As people name it.
        chains: The targets of each model stage in order, with their states; without it nothing is said of targets.
        budgets: How collections stand, by name.

    Raises:
        UsageError: There is no such document.
        ServiceUnavailable: Postgres is away.
    """
    with reads() as reader:
        found = document_named(reader, document, as_uri=source_uri(document))
    overview = status(reads, document_ids=[found.id])
    if not overview.documents:
        raise UsageError(f"{found.uri!r} was never run", f"tidegate enqueue {words_to_enqueue(found.uri)}")
    with reads() as reader:
        facts = _Facts(reader, overview, chains or {}, budgets or {})
    return Why(facts.document, *facts.explained(), facts.failures)


class _Facts:
    def __init__(
        self,
        reader: Reader,
        overview: Status,
        chains: Mapping[Stage, Sequence[ChainLink]],
        budgets: Mapping[str, BudgetStanding],
    ) -> None:
        self.document = overview.documents[0]
        self._budget = budgets.get(self.document.collection)
        self.failures = last_failures(reader, self.document.run)
        self._standing = standing_of(reader, self.document.run)
        self._ahead = runs_ahead(reader, self.document.run) if self.document.state is RunState.QUEUED else 0
        self._queues = overview.queues
        self._beat = overview.beat
        chain = chains.get(self.document.stage, ()) if self.document.stage else ()
        # A run that redoes what a fallback answered waits for the first target, whoever else is well.
        self._chain = chain[:1] if self._standing.primary_only else chain
        self._ref = str(self.document.id)[:8]

    def explained(self) -> tuple[list[str], list[str]]:
        lines, commands = {
            RunState.QUEUED: self._queued,
            RunState.RUNNING: self._running,
            RunState.PARKED: self._parked,
            RunState.DONE: self._done,
            RunState.EMPTY: self._empty,
            RunState.FAILED: self._failed,
            RunState.CANCELLED: self._cancelled,
        }[self.document.state]()
        if self.document.state in ACTIVE_RUN_STATES and (trouble := self._beat.trouble):
            lines.append(f"{trouble[:1].upper()}{trouble[1:]}.")
            commands = ["tidegate beat", *commands]
        if self.document.live and self.document.state not in (RunState.DONE, RunState.EMPTY):
            lines.append("An earlier version of it is still found by search.")
        return lines, commands

    def _queued(self) -> tuple[list[str], list[str]]:
        many = "document of its collection is" if self._ahead == 1 else "documents of its collection are"
        ahead = f"{self._ahead} {many} ahead of it" if self._ahead else "it is the next"
        idle, commands = self._unattended(Stage.PARSE)
        return [f"{self.document.path} is queued; {ahead}.", *idle], commands

    def _running(self) -> tuple[list[str], list[str]]:
        stage = self.document.stage
        held = self._standing.leased
        work = f"A worker holds {_some(held, 'unit')} of it." if held else ""
        lines = [f"{self.document.path} is running{_at(stage)}{self._progress()}.", work]
        idle, commands = self._unattended(stage) if stage and not held else ([], [])
        said = (*lines, *self._over_budget(), *self._cooling(), *self._rejected(), *self._said(), *idle)
        return [line for line in said if line], commands

    def _parked(self) -> tuple[list[str], list[str]]:
        stage = self.document.stage
        lines = [f"{self.document.path} is parked{_at(stage)}{self._progress()}."]
        lines += self._over_budget() + self._rejected() + (self._cooling() or self._said())
        if self._standing.primary_only:
            lines.append("It was requeued with --degraded, so no fallback may answer.")
        until = next_try(self.document.resume_at, self._chain)
        if until is None:
            lines.append(
                "It waits without a time: until a target is enabled or reset, or the budget or configuration is changed"
                " and the stack restarted."
            )
        else:
            by_itself = "Once a beat runs" if self._beat.trouble else "It goes on by itself"
            lines.append(f"{by_itself}; the next try is at {_clock(until)}.")
        commands = [f"tidegate targets reset {link.name}" for link in self._chain if link.status.until is not None][:1]
        disabled = [link.name for link in self._chain if link.status.state is BreakerState.DISABLED]
        commands += [f"tidegate targets enable {name}" for name in disabled]
        # Waking what no target may be paid for would park it again.
        again = [] if self._over_budget() else [f"tidegate requeue --document {self._ref} --parked"]
        return lines, [*commands, *again]

    def _done(self) -> tuple[list[str], list[str]]:
        lines, commands = [f"{self.document.path} is done and found by search."], []
        if self.document.incomplete:
            failed = self._standing.failed
            lines.append(f"{_some(failed, 'unit')} of it failed and {'is' if failed == 1 else 'are'} left out.")
            if self._standing.failure is not None:
                first = "" if failed == 1 else "The first: "
                lines.append(f"{first}{self._standing.failure.rstrip('.')}.")
            commands.append(f"tidegate requeue --document {self._ref} --failed")
        if self._standing.degraded:
            lines.append(f"{_some(self._standing.degraded, 'unit')} of it came from a fallback.")
            commands.append(f"tidegate requeue --document {self._ref} --degraded")
        return lines, commands

    def _empty(self) -> tuple[list[str], list[str]]:
        return [f"{self.document.path} was read, and no text was found in it."], []

    def _failed(self) -> tuple[list[str], list[str]]:
        kind, detail = self.document.failure_kind or "unknown", self.document.failure_detail
        lines = [f"{self.document.path} failed{_at(self.document.stage)}{self._progress()}. {kind}: {detail}"]
        lines += [line for line in self._said() if detail is None or line not in detail]
        if self._standing.pages_done or self._standing.chunks_done:
            lines.append("What is done of it is kept and not paid for again.")
        helps = _NOT_AGAIN.get(kind)
        if helps is not None:
            return lines, helps.format(path=words_to_enqueue(self.document.path), ref=self._ref).split("\n")
        return lines, [f"tidegate requeue --document {self._ref} --failed"]

    def _cancelled(self) -> tuple[list[str], list[str]]:
        detail = self.document.failure_detail
        lines = [f"{self.document.path} was {detail or 'cancelled'}."]
        # Enqueueing would find an earlier version of the same bytes unchanged.
        return lines, [f"tidegate requeue --document {self._ref}"]

    def _progress(self) -> str:
        standing = self._standing
        if self.document.stage in (Stage.RETRIEVE, Stage.EMBED) and standing.chunks:
            return f", {standing.chunks_done} of {_some(standing.chunks, 'chunk')} done"
        return f", {standing.pages_done} of {_some(standing.pages, 'page')} done" if standing.pages else ""

    def _cooling(self) -> list[str]:
        if not self._chain:
            return []
        away = [link for link in self._chain if link.status.state is not BreakerState.CLOSED]
        if not away:
            return []
        described = ", ".join(_described(link) for link in away)
        role, are = away[0].role, "is" if len(away) == 1 else "are"
        some = "All targets" if len(away) == len(self._chain) else f"{len(away)} of {len(self._chain)} targets"
        if len(self._chain) == 1:
            which = "first" if self._standing.primary_only else "only"
            return [f"The {which} target of {role} is away: {described}."]
        return [f"{some} of {role} {are} away: {described}."]

    def _rejected(self) -> list[str]:
        """Who is well, and is not asked again all the same."""
        return [
            f"{link.name} turned down {_some(units, 'unit')} of it and is not asked for"
            f" {'that' if units == 1 else 'those'} again."
            for link in self._chain
            if (units := self._standing.rejected_by.get(link.status.target))
        ]

    def _over_budget(self) -> list[str]:
        return [f"{self._budget.note}."] if self._budget is not None and self._budget.is_used_up else []

    def _said(self) -> list[str]:
        """What the last failed calls said."""
        lines = []
        for failure in self.failures:
            message = f": {failure.message[:_MESSAGE_CHARS].rstrip('.')}" if failure.message else ""
            name = failure.preset or failure.target
            if failure.outcome == "lost":
                when, unit = _clock(failure.started_at), f"{failure.stage} {failure.ordinal or ''}".strip()
                lines.append(
                    f"The worker that called {name} at {when} died or froze."
                    if name
                    else f"Work on {unit} that began at {when} was lost{message}."
                )
                continue
            lines.append(f"{name} failed at {_clock(failure.started_at)} with {failure.kind or 'no reason'}{message}.")
        return lines

    def _unattended(self, stage: Stage) -> tuple[list[str], list[str]]:
        queue = queue_of(stage)
        load = self._queues.get(queue, QueueLoad(0, 0))
        if load.consumers:
            return [], []
        role = "model " if stage in MODEL_STAGES else ""
        return [f"No {role}worker takes from {queue.value}."], [
            f"tidegate worker --queues {queue.value}",
            "tidegate up",
        ]


def _described(link: ChainLink) -> str:
    state = link.status
    if state.state is BreakerState.DISABLED:
        return f"{link.name} (disabled)"
    until = f" until {_clock(datetime.fromtimestamp(state.until, UTC))}" if state.until else ""
    if state.state is BreakerState.HALF_OPEN:
        until = ", being tried again" if state.probing else ", to be tried again"
    times = f", {_ordinal(state.failures)} time" if state.failures > 1 else ""
    kind = f" ({state.kind}{times})" if state.kind else ""
    return f"{link.name}{until}{kind}"


def _at(stage: Stage | None) -> str:
    return f" at {stage.value}" if stage else ""


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _ordinal(number: int) -> str:
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _clock(moment: datetime) -> str:
    """A time of day on the reader's clock."""
    return moment.astimezone().strftime("%H:%M:%S")
