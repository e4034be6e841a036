"""The command with a broker that takes a message for lost after a second: ``python -m tests.fault.impatient …``."""

from __future__ import annotations

import sys
from typing import Any

from celery import Celery, signals

import worker.app
from worker.cli.main import main

_make = worker.app.make_app


def _impatient(broker: str, key_prefix: str) -> Celery:
    app = _make(broker, key_prefix)
    app.conf.broker_transport_options.update(
        visibility_timeout=1, unacked_restore_interval=0.5, unacked_restore_throttle=1
    )
    return app


def _say(task_id: str, **_: Any) -> None:
    """For whoever counts how often a message was delivered."""
    print(f"delivered {task_id}", flush=True)


if __name__ == "__main__":
    worker.app.make_app = _impatient
    signals.task_prerun.connect(_say)
    sys.exit(main())
