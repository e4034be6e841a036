"""What a dead supervisor left running."""

from __future__ import annotations

import signal
import time

from worker.embedded.state import Stack, StackPart

__all__ = ["end_orphans"]

# They were told to end when their supervisor died; this is for those that did not listen.
_WORKER_PATIENCE_S = 10.0
_SERVICE_PATIENCE_S = 30.0
_KILL_WAIT_S = 10.0


def end_orphans(stack: Stack | None, worker_patience_s: float = _WORKER_PATIENCE_S) -> bool:
    """End the parts of a stack whose supervisor is gone, the services last.

    Args:
        stack: What its state file says.
        worker_patience_s: How long those that are no services may take before they are killed.

    Returns:
        Whether there were any.
    """
    parts = [part for part in (stack.parts if stack else ()) if part.process is not None and part.process.is_alive()]
    services = [part for part in parts if part.role in ("postgres", "redis")]
    _end([part for part in parts if part not in services], worker_patience_s)
    for part in reversed(services):
        _end([part], _SERVICE_PATIENCE_S)
    return bool(parts)


def _end(parts: list[StackPart], patience_s: float) -> None:
    processes = [part.process for part in parts if part.process is not None]
    for part, process in zip(parts, processes, strict=True):
        process.send(signal.SIGINT if part.role == "postgres" else signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    for process in processes:
        if not process.wait_gone(max(0.0, deadline - time.monotonic())):
            process.send(signal.SIGKILL, group=True)
            process.wait_gone(_KILL_WAIT_S)
