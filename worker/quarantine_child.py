"""The quarantine: a worker of concurrency 1, in a process of its own, that works on units which have lost a lease.

    python -m worker.quarantine_child QUEUE…

It reads slices as JSON lines (``{"run": 7, "stage": "describe", "ordinals": [3]}``) from stdin, and writes a line when
it is ready (``{"ready": NAME}``) and one for what became of each slice. SIGTERM, or the end of stdin, drains it: what
it holds is finished or given back. Its parent is the worker that received the configuration and environment which it
inherits (``worker/quarantine.py``).
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pipeline.domain.errors import ServiceUnavailable, TidegateError
from pipeline.domain.unit import Queue, Stage
from pipeline.endings import SliceReport
from pipeline.ingest import Ingest
from pipeline.observe.logging import configure_logging, get_logger
from pipeline.observe.metrics import Metrics
from pipeline.settings import Settings, read_settings
from worker.bootstrap import open_container
from worker.events import EventLog
from worker.heartbeat import heartbeats
from worker.ingester import make_ingester
from worker.processes import metrics_served, parse_queues, process_identity
from worker.signals import stop_on_signals

__all__ = ["QUARANTINE_CONNECTIONS", "main"]

QUARANTINE_CONNECTIONS = 4
_HARD_END_S = 5.0
"""What a drain may take beyond its own time before the process ends all the same: a unit that hangs stops nobody."""
_POLL_S = 0.5

Order = Mapping[str, Any]


def main(words: list[str]) -> int:
    """Serve slices of these queues until stdin ends or a signal comes; returns the exit status."""
    # Libraries that print would break the lines: stdout is ours alone, their prints go to stderr.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        settings = read_settings()
        configure_logging(settings.log_level, settings.log_format)
        serve(settings, parse_queues(words), out)
    except TidegateError as error:
        get_logger("quarantine").error("quarantine.not_served", error=str(error))
        return 1
    return 0


def serve(settings: Settings, queues: tuple[Queue, ...], out: int) -> None:
    """Work on what comes in, one slice at a time.

    Args:
        out: The descriptor that answers are written to.

    Raises:
        ConfigError: The configuration can't be used.
        ServiceUnavailable: Postgres is away at the start.
    """
    stopping, metrics = threading.Event(), Metrics()
    identity = process_identity("quarantine", "quarantine")
    with (
        stop_on_signals(stopping),
        open_container(
            settings, connections=QUARANTINE_CONNECTIONS, name="tidegate quarantine", missing_keys="refuse"
        ) as container,
    ):
        container.configure_logging()
        _end_for_sure(stopping, container.unit_policy.drain_s + _HARD_END_S)
        orders = _orders(stopping)
        ingester = make_ingester(container, EventLog(metrics), identity.name, 1, stopping, queues, suspects=True)
        try:
            with metrics_served(settings, metrics), heartbeats(container.sessions, identity, metrics):
                _say(out, {"ready": identity.name})
                while not stopping.is_set():
                    try:
                        order = orders.get(timeout=_POLL_S)
                    except queue.Empty:
                        continue
                    _say(out, _carry_out(ingester.tasks.ingest, order))
        finally:
            stopping.set()
            ingester.close()


def _carry_out(ingest: Ingest, order: Order) -> Order:
    try:
        report = ingest.run_slice(order["run"], Stage(order["stage"]), order["ordinals"])
    except ServiceUnavailable as error:
        return _told(SliceReport(), str(error))
    return _told(report)


def _told(report: SliceReport, away: str | None = None) -> Order:
    return {"counts": dict(report.counts), "text": str(report), "made_work": report.made_work, "away": away}


def _say(out: int, line: Order) -> None:
    left = json.dumps(line).encode() + b"\n"
    # The worker may have died: what was done is committed, and the end of stdin ends this process too.
    with suppress(BrokenPipeError):
        while left:
            left = left[os.write(out, left) :]


def _orders(stopping: threading.Event) -> queue.SimpleQueue[Order]:
    """What comes in at stdin, read by a thread of its own: its end drains a slice that is being worked on, too."""
    orders: queue.SimpleQueue[Order] = queue.SimpleQueue()

    def read() -> None:
        heard = b""
        # Unbuffered: at the interpreter's end, a thread that waits inside a buffered reader holds its lock.
        while data := os.read(0, 1 << 16):
            *lines, heard = (heard + data).split(b"\n")
            for line in lines:
                orders.put(json.loads(line))
        stopping.set()

    threading.Thread(target=read, name="tidegate-orders", daemon=True).start()
    return orders


def _end_for_sure(stopping: threading.Event, patience_s: float) -> None:
    def watch() -> None:
        stopping.wait()
        threading.Event().wait(patience_s)
        os._exit(1)

    threading.Thread(target=watch, name="tidegate-hard-end", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
