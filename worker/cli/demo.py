"""``demo``: the examples through the whole of Tidegate, on this machine alone."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.example import example
from worker.cli.paths import near
from worker.cli.session import services, set_up
from worker.cli.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from pipeline.search import SearchResult
    from pipeline.settings import Settings
    from worker.bootstrap import Container
    from worker.embedded import Stack

__all__ = ["register"]

_COLLECTION = "demo"
_QUESTIONS = (
    # What only OCR can read, and what stands in a table.
    ("what did the inspection of the sluice find after the storm of 1987?", "sluice-inspection-1987.pdf"),
    ("at which level does the Lantern gate close?", "tide-gate-handbook.pdf"),
)
_SCANS = (
    "slipway-notice.png",
    "sluice-inspection-1987.pdf",
    "night-watch.docx",
    "storm-inspection-zh.pdf",
    "ferry-notice-ko.pdf",
)
"""What a vision model has to look at, in the order in which an outage is to meet it."""
_SUFFIXES = frozenset({".pdf", ".docx", ".png", ".html", ".md"})
_WAIT_S = 300.0
_SETTLE_S = 1.5
"""A stack whose demo was killed notices within half a second, and stops; it is not one to attach to."""
_GONE_S = 120.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=example("tidegate demo", "tidegate demo --keep", "tidegate demo --outage"))(demo)


@dataclass(frozen=True, slots=True)
class _Searched:
    query: str
    expected: str
    result: SearchResult

    @property
    def is_right(self) -> bool:
        return bool(self.result.hits) and Path(self.result.hits[0].chunk.uri).name == self.expected

    def to_json(self) -> dict[str, Any]:
        hits = self.result.to_json()["hits"]
        return {"query": self.query, "expected": self.expected, "right": self.is_right, "hits": hits}


def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running afterwards.")] = False,
    outage: Annotated[
        bool, typer.Option("--outage", help="Watch simulated models go busy, hang and recover instead.")
    ] = False,
) -> None:
    """Take the example documents in, and answer two searches.

    It starts the stack under TIDEGATE_HOME (./.tidegate) and stops it again; one that runs there already is used and
    left alone. Without a configuration all models are local ones: no key and no network are needed.

    With --outage it has a stack and a home of its own, TIDEGATE_HOME/outage, whatever is configured.
    """
    terminal = terminal_of(context)
    settings = set_up(terminal)
    examples = _examples()
    if outage:
        _outage(terminal, settings, examples, keep=keep)
        return
    began = time.monotonic()
    running = _running(settings)
    stays = keep or running is not None
    with _stack(terminal, settings, running, keep=keep) as stack, services(terminal) as container:
        where = _say_where(terminal, settings, stack)
        document = _take_in(terminal, container, examples)
        searched = [_searched(container, query, expected) for query, expected in _QUESTIONS]
        took_s = time.monotonic() - began
        terminal.emit(
            {**document, "searches": [one.to_json() for one in searched], **where, "seconds": round(took_s, 1)}
        )
        for one in searched:
            _say_search(terminal, one)
        terminal.line(f"That took {took_s:.0f} s.")
        say_next(terminal, settings, stays=stays)
        terminal.flush()
    failed = any(one["state"] not in ("done", "empty") for one in document["documents"])
    if failed or not all(one.is_right for one in searched):
        terminal.note(
            f"The demo did not end as it should.\nSee:  {_up(stays=stays)}{_command()} status --collection demo"
        )
        raise typer.Exit(1)


def _outage(terminal: Terminal, settings: Settings, examples: list[str], *, keep: bool) -> None:
    from pipeline.domain.errors import UsageError
    from worker.outage.run import Plan, run_outage
    from worker.outage.view import say_sums

    if keep:
        raise UsageError("--keep and --outage don't go together", "leave one of them out")
    scans = [path for name in _SCANS for path in map(Path, examples) if path.name == name]
    others = [path for path in map(Path, examples) if path not in scans]
    found = run_outage(terminal, settings, Plan(others=others, scans=scans))
    terminal.emit(found.to_json())
    say_sums(terminal, found)
    terminal.flush()
    if not found.is_right:
        terminal.note(f"The outage did not end as it should.\nSee the logs in  {found.home / 'logs'}")
        raise typer.Exit(1)


def _examples() -> list[str]:
    import worker
    from pipeline.domain.errors import UsageError

    folder = Path(worker.__file__).resolve().parent.parent / "examples"
    found = sorted(str(path) for path in folder.glob("*") if path.suffix in _SUFFIXES)
    if not found:
        raise UsageError(f"there are no example documents in {str(folder)!r}", "run it from a clone:  make demo")
    return found


@contextmanager
def _stack(terminal: Terminal, settings: Settings, running: Stack | None, *, keep: bool) -> Iterator[Stack]:
    """The stack that runs here, or one of the demo's own, which ends with it whatever ends it."""
    from worker.cli.stack import start
    from worker.embedded import stop_stack

    if running is not None:
        terminal.note(f"using the stack that runs under {running.home}")
        yield running
        return
    stack = start(terminal, settings, () if keep else ("--leash", str(os.getpid())))
    if keep:
        yield stack
        return
    try:
        yield stack
    finally:
        terminal.note("stopping …")
        stop_stack(settings.home)
        terminal.note("stopped.")


def _running(settings: Settings) -> Stack | None:
    """A stack to attach to; one that is on its way up or down is waited for."""
    from worker.embedded import read_stack

    stack, deadline, pause = read_stack(settings.home), time.monotonic() + _GONE_S, threading.Event()
    if stack is not None and stack.is_ready:
        stack.supervisor.wait_gone(_SETTLE_S)
        stack = read_stack(settings.home)
    while stack is not None and not stack.is_ready and time.monotonic() < deadline:
        pause.wait(0.2)
        stack = read_stack(settings.home)
    return stack


def _say_where(terminal: Terminal, settings: Settings, stack: Stack) -> dict[str, Any]:
    from worker.cli.stack import where_things_are

    where = where_things_are(settings, stack)
    terminal.facts(where.rows(terminal))
    terminal.flush()
    return where.to_json()


def _take_in(terminal: Terminal, container: Container, examples: list[str]) -> dict[str, Any]:
    """Enqueue, wait, and show how it went; returns the documents as ``status`` shows them."""
    from pipeline.status import status
    from worker.cli.enqueue import Order, carry_out, say_rejected
    from worker.cli.waiting import wait_for_runs

    result = carry_out(terminal, container, Order(examples, collection=_COLLECTION))
    say_rejected(terminal, result)
    unchanged = result.counts["unchanged"]
    if unchanged:
        terminal.note(
            f"{unchanged} of {len(examples)} documents are known from an earlier demo; what was done is not repeated"
        )
    runs = [one.run for one in result.documents if one.run is not None]
    wait_for_runs(terminal, container.sessions, runs, _WAIT_S)
    found = status(container.reads, document_ids=[one.id for one in result.documents if one.id is not None])
    if not terminal.as_json:
        from worker.cli.status_view import documents_table

        terminal.print()
        terminal.print(documents_table(found.documents[::-1], terminal.console.width))
    return {"documents": found.to_json()["documents"], "counts": result.counts}


def _searched(container: Container, query: str, expected: str) -> _Searched:
    from worker.cli.reading import search_for

    return _Searched(query, expected, search_for(container, query, collection=_COLLECTION, k=3, mode="hybrid"))


def _say_search(terminal: Terminal, searched: _Searched) -> None:
    from rich.text import Text

    from worker.cli.reading import say_hits

    terminal.print()
    terminal.print(Text.assemble(("search  ", "dim"), searched.query))
    say_hits(terminal, searched.result.hits[:2])
    if not searched.is_right:
        terminal.note(f"{searched.expected} should have been on top")


def say_next(terminal: Terminal, settings: Settings, *, stays: bool) -> None:
    """What to try after the demo, by a stack that ``stays`` or has to be started again."""
    terminal.print()
    command = _command()
    rows = [
        ("next", f"{_up(stays=stays)}{command} search 'who decides about the gates?' --collection {_COLLECTION}"),
        ("", f"{command} enqueue YOUR.pdf --wait"),
        ("data", f"stay in {settings.home}; to be rid of them, remove that folder"),
    ]
    terminal.facts(rows)


def _up(*, stays: bool) -> str:
    # Where a stack runs, a second start fails, and so would all that stands behind it.
    return "" if stays else f"{_command()} up --detach && "


def _command() -> str:
    """How a shell calls ``tidegate`` here: ``make demo`` runs it from an environment that is not activated."""
    own = Path(sys.executable).with_name("tidegate")
    return "tidegate" if shutil.which("tidegate") or not own.exists() else quote(near(str(own)))
