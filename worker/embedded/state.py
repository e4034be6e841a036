"""``stack.json``: what runs under a home, for every command that attaches to it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from worker.embedded.home import Home
from worker.embedded.process import ProcessId

__all__ = ["Stack", "StackPart", "load_stack", "read_stack", "write_stack"]

_FORMAT = 1


@dataclass(frozen=True)
class StackPart:
    """One part as its supervisor last saw it.

    Attributes:
        name: Its name.
        role: ``worker | beat | flower | postgres | redis``.
        state: ``waiting`` (not started yet, or about to be restarted), ``starting``, ``ready`` or ``stopped``.
        process: Which process it is; None while there is none.
        queues: What a worker consumes.
        port: Where it listens, on 127.0.0.1; None for a socket or nothing.
        restarts: How often it died and was started again.
        last_exit: How it last died, for people; None when it never did.
        log: The file with its output.
    """

    name: str
    role: str
    state: str
    process: ProcessId | None
    queues: tuple[str, ...] = ()
    port: int | None = None
    restarts: int = 0
    last_exit: str | None = None
    log: str = ""


@dataclass(frozen=True)
class Stack:
    """A stack under a home.

    Attributes:
        home: The folder.
        phase: ``starting``, ``ready``, ``stopping`` or ``failed``; a stack that was stopped leaves no file.
        supervisor: The process that runs it.
        database_url: For SQLAlchemy, password included.
        redis_url: For redis-py.
        parts: In the order of their start.
        started_at: Seconds since the epoch.
        error: Why it failed.
    """

    home: str
    phase: str
    supervisor: ProcessId
    database_url: str | None = field(repr=False)
    redis_url: str | None = field(repr=False)
    parts: tuple[StackPart, ...]
    started_at: float
    error: str | None = None

    @property
    def is_ready(self) -> bool:
        return self.phase == "ready"


def read_stack(home: Path) -> Stack | None:
    """The stack that runs under ``home`` now; None when there is none.

    Starting and stopping stacks count: look at ``phase``. Parts that have died since are shown without a process.
    """
    stack = load_stack(home)
    if stack is None or not stack.supervisor.is_alive():
        return None
    parts = tuple(
        part if part.process is None or part.process.is_alive() else replace(part, process=None, state="waiting")
        for part in stack.parts
    )
    return replace(stack, parts=parts)


def load_stack(home: Path) -> Stack | None:
    """What the state file says, whether or not it is still true; None when there is none or it can't be read.

    A file that somebody else owns is not believed: it says where the data go.
    """
    folder = Home(home)
    try:
        with folder.state.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid not in (0, os.geteuid(), folder.path.stat().st_uid):
                return None
            return _decode(json.load(file))
    except (OSError, ValueError, TypeError, KeyError):
        # Also a file that a power cut emptied, and one of another version: nothing of it runs any more.
        return None


def write_stack(home: Home, stack: Stack) -> None:
    """Replace the state file at once, readable by the owner alone."""
    home.write(home.state, json.dumps({"format": _FORMAT, **asdict(stack)}, indent=1) + "\n")


def _decode(document: Mapping[str, Any]) -> Stack:
    fields = dict(document)
    if fields.pop("format") != _FORMAT:
        raise ValueError("another format")
    parts = tuple(
        StackPart(**{**part, "process": _process(part["process"]), "queues": tuple(part["queues"])})
        for part in fields.pop("parts")
    )
    supervisor = ProcessId(**fields.pop("supervisor"))
    return Stack(**fields, supervisor=supervisor, parts=parts)


def _process(fields: Mapping[str, Any] | None) -> ProcessId | None:
    return None if fields is None else ProcessId(**fields)
