"""What Prometheus scrapes, one registry a process, and the loopback server that it is scraped from.

Queues, states and lost work are read from Postgres by the beat process alone (``worker/census.py``): a gauge that
every process reported would be summed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.registry import Collector

__all__ = ["Metrics", "serve_metrics"]

_TTFT_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)
_DURATION_BUCKETS_S = (0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300)
_LOOPBACK = "127.0.0.1"
_PORTS = 16
_LAST_PORT = 65_535


class Metrics:
    """The counters and histograms that a process moves as it works.

    Attributes:
        registry: What ``serve_metrics`` serves; collectors may be added.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.failovers = self._counter(
            "llm_failover", "Calls that moved on to another target.", ("from_target", "to_target", "reason")
        )
        self.attempts = self._counter("tidegate_attempts", "Calls to targets.", ("target", "outcome", "kind"))
        self.cooldowns = self._counter("tidegate_target_cooldowns", "Cooldowns set.", ("target", "kind"))
        self.recoveries = self._counter("tidegate_target_recoveries", "Breakers closed again.", ("target",))
        self.units = self._counter("tidegate_units_ended", "Units that ended here.", ("stage", "outcome"))
        self.runs = self._counter("tidegate_runs_moved", "Runs that changed state here.", ("state",))
        self.internal_errors = self._counter("tidegate_internal_errors", "Exceptions of our own code.", ("stage",))
        self.slices = self._counter("tidegate_slices_dispatched", "Slices handed to the broker.", ())
        self.tokens = self._counter("tidegate_tokens", "Tokens paid for.", ("target", "direction"))
        self.cost_usd = self._counter("tidegate_cost_usd", "US dollars paid.", ("target",))
        self.ttft_s = Histogram(
            "llm_ttft_seconds",
            "Time to first content.",
            ("target",),
            buckets=_TTFT_BUCKETS_S,
            registry=self.registry,
        )
        self.duration_s = Histogram(
            "llm_call_duration_seconds",
            "Length of a call to a target.",
            ("target", "outcome"),
            buckets=_DURATION_BUCKETS_S,
            registry=self.registry,
        )
        self.last_heartbeat = Gauge(
            "tidegate_heartbeat_timestamp_seconds",
            "When this process last wrote its heartbeat.",
            ("role",),
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)


@contextmanager
def serve_metrics(metrics: Metrics, port: int | None, *, collector: Collector | None = None) -> Iterator[int | None]:
    """Serve ``/metrics`` on loopback for as long as the block runs.

    Several processes of a host share one environment, so each takes the first free port from ``port`` on.

    Args:
        metrics: What to serve.
        port: The first to try; None serves nothing.
        collector: More to serve, read at each scrape.

    Yields:
        The port; None when there is none, or none was free: nobody's ingest stops for that.
    """
    if collector is not None:
        metrics.registry.register(collector)
    for candidate in () if port is None else range(port, min(port + _PORTS, _LAST_PORT + 1)):
        try:
            server, thread = start_http_server(candidate, addr=_LOOPBACK, registry=metrics.registry)
        except OSError:
            continue
        try:
            yield candidate
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
        return
    yield None
