"""The beat's metrics: runs, units, waiting work, targets and heartbeats, read when Prometheus scrapes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage, UnitState
from pipeline.failover.registry import BreakerState, TargetStatus
from pipeline.observe.logging import get_logger
from pipeline.store.census import Census, take_census
from pipeline.store.session import Sessions

__all__ = ["CensusCollector"]

_KEPT_S = 10.0
"""A census is taken at most this often, however many scrape."""


class CensusCollector(Collector):
    """Only the beat process registers it: what every process reported would be summed.

    Args:
        statuses: Reads the targets' states; it may wait.
    """

    def __init__(self, sessions: Sessions, statuses: Callable[[], Iterable[TargetStatus]]) -> None:
        self._sessions = sessions
        self._statuses = statuses
        self._lock = threading.Lock()
        self._taken_at = float("-inf")
        self._last: list[Metric] = []

    def describe(self) -> list[Metric]:
        """Nothing: registering must not read the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families, at most ``_KEPT_S`` old; none while Postgres is away."""
        with self._lock:
            if time.monotonic() - self._taken_at >= _KEPT_S:
                try:
                    with self._sessions() as session:
                        census = take_census(session)
                    self._last = [*_families(census), *_targets(self._statuses())]
                except ServiceUnavailable as error:
                    get_logger("metrics").warning("census.failed", error=error.fact)
                    self._last = []
                self._taken_at = time.monotonic()
            yield from self._last


def _families(census: Census) -> Iterator[Metric]:
    runs = GaugeMetricFamily("tidegate_runs", "Runs by state.", labels=["state"])
    for run_state in RunState:
        runs.add_metric([run_state.value], census.runs.get(run_state.value, 0))
    yield runs
    units = GaugeMetricFamily("tidegate_units", "Units by stage and state.", labels=["stage", "state"])
    waiting = GaugeMetricFamily("tidegate_waiting_units", "Units that nobody has leased, by stage.", labels=["stage"])
    oldest = GaugeMetricFamily(
        "tidegate_oldest_waiting_seconds", "Age of the oldest waiting unit's document, by stage.", labels=["stage"]
    )
    for stage in Stage:
        for state in UnitState:
            units.add_metric([stage.value, state.value], census.units.get((stage.value, state.value), 0))
        waiting.add_metric([stage.value], census.units.get((stage.value, UnitState.PENDING.value), 0))
        oldest.add_metric([stage.value], census.oldest_waiting_s.get(stage.value, 0.0))
    yield from (units, waiting, oldest)
    yield GaugeMetricFamily("tidegate_lost_attempts", "Calls whose worker died under them.", value=census.lost_attempts)
    beats = GaugeMetricFamily(
        "tidegate_heartbeat_age_seconds", "Since a process' last heartbeat.", labels=["process", "role"]
    )
    for name, (role, age_s) in census.heartbeats_s.items():
        beats.add_metric([name, role], age_s)
    yield beats


def _targets(statuses: Iterable[TargetStatus]) -> Iterator[Metric]:
    states = GaugeMetricFamily("tidegate_target_state", "1 for the state a target is in.", labels=["target", "state"])
    in_flight = GaugeMetricFamily("tidegate_target_in_flight", "Calls at a target now.", labels=["target"])
    for status in statuses:
        for state in BreakerState:
            states.add_metric([status.target, state.value], float(status.state is state))
        in_flight.add_metric([status.target], status.in_flight)
    yield from (states, in_flight)
