"""``enqueue``: files in, and, with ``--wait``, their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.example import example
from worker.cli.session import services
from worker.cli.terminal import Terminal, one_line, terminal_of

if TYPE_CHECKING:
    from pipeline.enqueue import Enqueued, EnqueueResult
    from pipeline.passwords import Passwords
    from worker.bootstrap import Container
    from worker.cli.waiting import Waited

__all__ = ["Order", "carry_out", "register"]

_FAILED, _UNREACHABLE, _PARKED = 1, 4, 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=example(
            "tidegate enqueue report.pdf notes/ --recursive",
            "tidegate enqueue handbook/ --collection staff --batch handbook-2026 --wait",
            "tidegate enqueue letters.zip --expand --password-file passwords.txt",
        )
    )(enqueue)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be enqueued, and how."""

    paths: Sequence[str]
    collection: str = "default"
    label: str | None = None
    priority: int = 5
    recursive: bool = False
    expand: bool = False
    passwords: Passwords | None = None
    dry_run: bool = False


def enqueue(
    context: typer.Context,
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, or folders for the files in them.")],
    collection: Annotated[str, typer.Option("--collection", metavar="C", help="Where they belong.")] = "default",
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="LABEL", help="What to call them together; else today's date.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", metavar="0-9", help="9 goes first.")] = 5,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Folders' folders too.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when they have ended, or nothing moves.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="S", min=0, help="The longest to --wait, in seconds.")
    ] = None,
    password: Annotated[
        str | None, typer.Option("--password", metavar="P", help="Opens these documents, where they are locked.")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Lines 'name-or-pattern:password' (or a tab); for what no line fits, --password counts.",
        ),
    ] = None,
    expand: Annotated[
        bool, typer.Option("--expand", help="Take what is in ZIP and TAR archives; a mail's attachments always count.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
) -> None:
    """Take files in. A bad path is rejected and the others go on; what is unchanged is not done again.

    Exit codes: 0 done; 1 a path was rejected or a document failed; 5 --wait ended with documents that are parked or
    still under way.
    """
    from pipeline.domain.errors import UsageError

    if timeout is not None and not wait:
        raise UsageError("--timeout is given without --wait", "add --wait")
    if wait and dry_run:
        raise UsageError("--wait and --dry-run don't go together", "leave one of them out")
    terminal = terminal_of(context)
    passwords = _passwords(terminal, password_file, password)
    order = Order(paths, collection, batch, priority, recursive, expand, passwords, dry_run)
    with services(terminal) as container:
        result = carry_out(terminal, container, order)
        say_rejected(terminal, result)
        if not wait:
            terminal.emit(result.to_json())
            _say(terminal, result, dry_run=dry_run)
            raise typer.Exit(_FAILED if result.counts["rejected"] else 0)
        if result.counts["queued"] or not result.counts["unchanged"]:
            _say(terminal, result, dry_run=False)
        raise typer.Exit(_wait(terminal, container, result, timeout))


def carry_out(terminal: Terminal, container: Container, order: Order) -> EnqueueResult:
    """Enqueue, and hand out what was committed; while the broker is away the beat does that later."""
    from pipeline.documents.sniff import sniff
    from pipeline.domain.errors import ServiceUnavailable
    from pipeline.enqueue import enqueue as enqueue_paths

    for warning in container.loaded.warnings:
        terminal.note(f"warning: {warning}")
    told: list[str] = []

    def hand_out(_: Sequence[Enqueued]) -> None:
        if told:
            return
        try:
            container.dispatch()
        except ServiceUnavailable as error:
            told.append(error.fact)
            terminal.note(f"{error.fact}\nThe documents are enqueued all the same, and go on when it is back.")

    if not order.dry_run:
        container.remember_embedder()
    return enqueue_paths(
        container.sessions,
        container.blobs,
        order.paths,
        recipe=container.recipe_for(order.collection),
        limits=container.config.limits.to_domain(),
        sniff=sniff,
        collection=order.collection,
        label=order.label,
        priority=order.priority,
        recursive=order.recursive,
        expand=order.expand,
        passwords=order.passwords,
        dry_run=order.dry_run,
        on_slice=hand_out,
    )


def _passwords(terminal: Terminal, file: Path | None, password: str | None) -> Passwords:
    from pipeline.passwords import Passwords, read_passwords

    if file is None:
        return Passwords(default=password)
    passwords = read_passwords(file, password)
    if passwords.exposed:
        terminal.note(f"warning: others can read {one_line(str(file))}; chmod 600 it")
    return passwords


def say_rejected(terminal: Terminal, result: EnqueueResult) -> None:
    """A line for each path that was not taken."""
    for document in result.documents:
        if document.reason:
            terminal.line(f"{document.given or document.path}: {document.reason}, rejected.")


def _say(terminal: Terminal, result: EnqueueResult, *, dry_run: bool) -> None:
    counts = result.counts
    would = "would be " if dry_run else ""
    parts = []
    if counts["queued"] or not counts["unchanged"]:
        parts.append(f"{_documents(counts['queued'])} {would}enqueued")
    if counts["unchanged"]:
        parts.append(f"{_documents(counts['unchanged'])} unchanged")
    batch = f" (batch {result.batch_label})" if result.batch_label and counts["queued"] else ""
    terminal.line(", ".join(parts) + batch + ".")


def _wait(terminal: Terminal, container: Container, result: EnqueueResult, timeout_s: float | None) -> int:
    from worker.cli.waiting import Ending, wait_for_runs

    runs = [document.run for document in result.documents if document.run is not None]
    try:
        waited = wait_for_runs(terminal, container.sessions, runs, timeout_s)
    except KeyboardInterrupt:
        terminal.note("No longer waited for; what is enqueued goes on. See:  tidegate status")
        raise
    document = result.to_json()
    document["documents"] = (_final(one, waited) for one in result.documents)
    document["waited"] = waited.ending.value
    terminal.emit(document)
    _say_ends(terminal, result, waited)
    states = {run.state.value for run in waited.progress.runs.values()}
    if result.counts["rejected"] or "failed" in states:
        return _FAILED
    if waited.ending is Ending.NO_WORKER:
        return _UNREACHABLE
    return 0 if waited.ending is Ending.ENDED else _PARKED


def _final(one: Enqueued, waited: Waited) -> dict[str, Any]:
    """A document as ``enqueue`` shows it, with the state that its run ended in."""
    shown = one.to_json()
    run = waited.progress.runs.get(one.run) if one.run is not None else None
    if run is None:
        return shown
    shown |= {"enqueued": one.state.value, "state": run.state.value, "resume_at": run.resume_at}
    shown["failure"] = {"kind": run.failure_kind, "detail": run.failure_detail} if run.failure_kind else None
    return shown


def _say_ends(terminal: Terminal, result: EnqueueResult, waited: Waited) -> None:
    from worker.cli.times import clock
    from worker.cli.waiting import Ending

    for one in result.documents:
        run = waited.progress.runs.get(one.run) if one.run is not None else None
        if run is not None and run.failure_kind:
            terminal.line(f"{one.given or one.path}: {run.state.value}, {run.failure_kind}: {run.failure_detail}")
    if not waited.progress.runs:
        return
    counts = dict.fromkeys(("done", "empty", "failed", "cancelled", "parked", "running", "queued"), 0)
    for run in waited.progress.runs.values():
        counts[run.state.value] += 1
    unchanged = result.counts["unchanged"]
    note = f" ({unchanged} of them unchanged, not done again)" if unchanged else ""
    terminal.line(", ".join(f"{count} {state}" for state, count in counts.items() if count) + note + ".")
    match waited.ending:
        case Ending.PARKED:
            times = [run.resume_at for run in waited.progress.runs.values() if run.resume_at]
            said = (
                f"What is parked goes on by itself; the next try is at {clock(min(times))}."
                if times
                else "What is parked waits without a time: for a target, a budget or another configuration."
            )
            terminal.note(f"{said} See why:  tidegate why DOC")
        case Ending.NO_WORKER | Ending.TIMEOUT if not waited.has_worker:
            queues = [queue.value for queue in waited.unattended]
            terminal.note(
                f"No worker takes from {', '.join(queues)}, so nothing moves; the documents wait.\n"
                f"start one:  tidegate worker --queues {','.join(queues)}   or all of them:  tidegate up"
            )
        case Ending.TIMEOUT:
            terminal.note("The time is up; the rest goes on. See:  tidegate status")
        case _:
            pass


def _documents(count: int) -> str:
    return one_line(f"{count:,} document" if count == 1 else f"{count:,} documents")
