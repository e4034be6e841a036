import socket
import urllib.request
from contextlib import closing

import pytest
from prometheus_client import generate_latest

from pipeline.observe.metrics import Metrics, serve_metrics


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_failover_is_counted_under_the_promised_name() -> None:
    metrics = Metrics()
    metrics.failovers.labels("a", "b", "ttft_timeout").inc()

    text = generate_latest(metrics.registry).decode()

    assert 'llm_failover_total{from_target="a",reason="ttft_timeout",to_target="b"} 1.0' in text


def test_two_processes_worth_of_metrics_can_live_in_one_process() -> None:
    Metrics()
    Metrics()


def test_metrics_are_served_on_loopback_while_the_block_runs() -> None:
    metrics, port = Metrics(), _free_port()
    address = f"http://127.0.0.1:{port}/metrics"
    with serve_metrics(metrics, port), urllib.request.urlopen(address, timeout=5) as answer:
        assert b"tidegate_attempts_total" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=5)


def test_processes_that_share_an_environment_take_one_port_each() -> None:
    port = _free_port()
    with serve_metrics(Metrics(), port) as first, serve_metrics(Metrics(), port) as second:
        assert first == port
        assert second is not None
        assert port < second < port + 16


def test_without_a_port_nothing_listens() -> None:
    with serve_metrics(Metrics(), None) as port:
        assert port is None
