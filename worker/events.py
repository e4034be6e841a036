"""What happened, logged and counted: the ``Observer`` of the failover core and the ``Events`` of ingest."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from pipeline.domain.call import Outcome, TryRecord
from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.run import ENDED_RUN_STATES, RunState
from pipeline.failover.records import CallContext, Switch
from pipeline.observe.logging import get_logger
from pipeline.observe.metrics import Metrics
from pipeline.reconcile import TakenBack
from pipeline.store.units import Claimed

__all__ = ["EventLog"]

_REMEMBERED_RUNS = 1000
_SAID_AGAIN_AFTER_S = 30.0
_CONFIG_KINDS = frozenset({"auth", "not_found", "quota"})
"""Failures that no waiting mends."""


class EventLog:
    """Both ports in one; safe to use from several threads.

    Attributes:
        on_recovered: Called with the key of a target whose breaker closed in this process.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.on_recovered: Callable[[str], None] = lambda _: None
        self._metrics = metrics
        self._log = get_logger("events")
        self._lock = threading.Lock()
        self._ended: OrderedDict[int, RunState] = OrderedDict()
        self._silent_until = 0.0

    # --- Observer ---

    def tried(self, context: CallContext, role: str, record: TryRecord) -> None:
        """A try ended."""
        kind = record.kind or ""
        self._metrics.attempts.labels(record.target, record.outcome.value, kind).inc()
        self._metrics.duration_s.labels(record.target, record.outcome.value).observe(record.duration_s)
        if record.ttft_s is not None:
            self._metrics.ttft_s.labels(record.target).observe(record.ttft_s)
        if record.usage is not None:
            self._metrics.tokens.labels(record.target, "in").inc(record.usage.tokens_in)
            self._metrics.tokens.labels(record.target, "out").inc(record.usage.tokens_out)
            self._metrics.cost_usd.labels(record.target).inc(record.usage.cost_usd)
        if record.outcome is not Outcome.OK:
            self._log.info(
                "attempt.failed",
                **_whose(context),
                role=role,
                target=record.target,
                outcome=record.outcome.value,
                kind=kind,
                status=record.status,
                message=record.message,
                seconds=round(record.duration_s, 3),
            )

    def switched(self, switch: Switch) -> None:
        """A call moves to another target, or ends for want of one."""
        to_target = switch.to_target or ""
        self._metrics.failovers.labels(switch.from_target, to_target, switch.reason).inc()
        self._log.warning(
            "target.failed_over",
            **_whose(switch.context),
            role=switch.role,
            from_target=switch.from_target,
            to_target=switch.to_target,
            reason=switch.reason,
        )

    def cooled(self, target: str, kind: str, until: float) -> None:
        """A target is skipped by everyone for a while."""
        self._metrics.cooldowns.labels(target, kind).inc()
        say = self._log.error if kind in _CONFIG_KINDS else self._log.warning
        say("target.cooled", target=target, kind=kind, until=_clock(until))

    def recovered(self, target: str) -> None:
        """A target's breaker closed."""
        self._metrics.recoveries.labels(target).inc()
        self._log.info("target.recovered", target=target)
        self.on_recovered(target)

    # --- Events ---

    def unit_finished(self, unit: Claimed, outcome: str, detail: str) -> None:
        """A unit of ours ended, or was put aside."""
        self._metrics.units.labels(unit.stage.value, outcome).inc()
        self._log.info(
            "unit.finished",
            run=unit.run_id,
            stage=unit.stage.value,
            unit=unit.ordinal,
            outcome=outcome,
            **({"detail": detail} if detail else {}),
        )

    def run_moved(self, run_id: int, document_id: str, state: RunState, detail: str) -> None:
        """A run was parked or ended. Later units of an ended run report it again; it is said once."""
        if state in ENDED_RUN_STATES and not self._is_news(run_id, state):
            return
        self._metrics.runs.labels(state.value).inc()
        # Nothing tries a failed run again by itself.
        say = self._log.error if state is RunState.FAILED else self._log.info
        event = "run.parked" if state is RunState.PARKED else "run.finished"
        say(event, run=run_id, document=document_id, state=state.value, **({"detail": detail} if detail else {}))

    def failed_inside(self, unit: Claimed, error: BaseException) -> None:
        """Our own code failed on a unit."""
        self._metrics.internal_errors.labels(unit.stage.value).inc()
        self._log.error(
            "unit.failed_inside",
            run=unit.run_id,
            stage=unit.stage.value,
            unit=unit.ordinal,
            exc_info=(type(error), error, error.__traceback__),
        )

    def leases_lost(self, taken: TakenBack) -> None:
        """Leases of dead workers were taken back; what that ended, nothing tries again by itself."""
        if taken.units:
            self._log.warning("leases.lost", units=taken.units, poisoned=taken.poisoned)
        for move in taken.moved:
            self.run_moved(move.run_id, move.document_id, move.state, "poison" if move.poisoned else "")

    def runs_resumed(self, run_ids: Iterable[int], reason: str) -> None:
        """Parked runs go on."""
        for run_id in run_ids:
            self._log.info("run.resumed", run=run_id, reason=reason)

    def runs_given_up(self, run_ids: Iterable[int]) -> None:
        """Runs were failed after waiting for too long."""
        for run_id in run_ids:
            self._metrics.runs.labels(RunState.FAILED.value).inc()
            self._log.error("run.finished", run=run_id, state=RunState.FAILED.value, detail="chain_exhausted")

    def postgres_awaited(self, error: ServiceUnavailable) -> None:
        """Work waits for Postgres with its results in hand; said once for all of it, and again where it goes on."""
        with self._lock:
            now = time.monotonic()
            if now < self._silent_until:
                return
            self._silent_until = now + _SAID_AGAIN_AFTER_S
        self._log.warning("postgres.awaited", error=error.fact, remedy=error.remedy)

    def slices_handed_out(self, count: int) -> int:
        """Slices went to the broker; returns ``count``."""
        self._metrics.slices.inc(count)
        return count

    def _is_news(self, run_id: int, state: RunState) -> bool:
        with self._lock:
            if self._ended.get(run_id) is state:
                return False
            self._ended[run_id] = state
            if len(self._ended) > _REMEMBERED_RUNS:
                self._ended.popitem(last=False)
            return True


def _whose(context: CallContext) -> dict[str, object]:
    named = {
        "request": context.call_id,
        "document": context.document_id,
        "run": context.run_id,
        "stage": context.stage,
        "unit_id": context.unit_id,
    }
    return {name: value for name, value in named.items() if value is not None}


def _clock(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")
