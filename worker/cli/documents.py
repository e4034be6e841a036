"""``requeue``, ``cancel`` and ``delete``: what people do to documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.example import example
from worker.cli.paths import near
from worker.cli.session import services
from worker.cli.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from worker.bootstrap import Container

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=example("tidegate requeue --batch handbook-2026 --failed", "tidegate requeue --document 7f3a --degraded")
    )(requeue)
    app.command(epilog=example("tidegate cancel --batch handbook-2026"))(cancel)
    app.command(epilog=example("tidegate delete 7f3a handbook/ch4.pdf"))(delete)


def requeue(
    context: typer.Context,
    batch: Annotated[str | None, typer.Option("--batch", metavar="B", help="The documents of that batch.")] = None,
    documents: Annotated[
        list[str] | None, typer.Option("--document", metavar="D", help="That document; may be given again.")
    ] = None,
    collection: Annotated[str | None, typer.Option("--collection", metavar="C", help="All of that collection.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="New runs of what failed; done units are reused.")] = False,
    parked: Annotated[bool, typer.Option("--parked", help="Wake what is parked, now.")] = False,
    degraded: Annotated[bool, typer.Option("--degraded", help="Redo what a fallback answered.")] = False,
    from_stage: Annotated[
        str | None, typer.Option("--from-stage", metavar="S", help="Redo everything from that stage on.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
) -> None:
    """Give documents another go, without doing again what is done. A run in progress is left alone.

    Without --failed, --parked, --degraded or --from-stage: whatever has failed or is parked.
    """
    from pipeline.domain.errors import UsageError
    from pipeline.domain.unit import Stage
    from pipeline.requeue import Wanted
    from pipeline.requeue import requeue as requeue_documents

    terminal = terminal_of(context)
    try:
        stage = Stage(from_stage) if from_stage is not None else None
    except ValueError:
        raise UsageError(f"{from_stage!r} is no stage", f"the stages are: {', '.join(Stage)}") from None
    wanted = Wanted(failed=failed, parked=parked, degraded=degraded, from_stage=stage)
    with services(terminal) as container:
        if not dry_run:
            container.remember_embedder()
        result = requeue_documents(
            container.sessions,
            wanted,
            recipe_of=container.recipe_for,
            batch=batch,
            documents=documents,
            collection=collection,
            dry_run=dry_run,
        )
        if result.runs and not dry_run:
            hand_out(terminal, container)
    terminal.emit(result.to_json())
    for one in result.refused:
        terminal.note(f"{near(one.path)}: {one.reason}")
    counts = result.counts
    will = "would" if dry_run else "will"
    said = [
        f"{_some(counts['queued'], 'document')} {will} run anew" if counts["queued"] else "",
        f"{_some(counts['woken'], 'document')} {will} go on" if counts["woken"] else "",
        f"{_some(counts['refused'], 'document')} left alone" if counts["refused"] else "",
    ]
    reused, todo = sum(run.reused_units for run in result.runs), sum(run.todo_units for run in result.runs)
    detail = f" ({_some(reused, 'unit')} reused, {todo:,} to do)" if result.runs else ""
    terminal.line((", ".join(part for part in said if part) or "nothing to requeue") + detail + ".")
    if not result.runs and not result.refused:
        terminal.note("What is done or was cancelled goes again by its name, or with --from-stage parse.")
    # Only where everything that was asked for was left alone did the command do nothing of its work.
    raise typer.Exit(1 if result.refused and not result.runs else 0)


def cancel(
    context: typer.Context,
    batch: Annotated[str | None, typer.Option("--batch", metavar="B", help="The documents of that batch.")] = None,
    documents: Annotated[
        list[str] | None, typer.Option("--document", metavar="D", help="That document; may be given again.")
    ] = None,
) -> None:
    """End runs that are on their way. What they have done is kept, and reused when the file is enqueued again."""
    from pipeline.cancel import cancel as cancel_runs

    terminal = terminal_of(context)
    with services(terminal) as container:
        result = cancel_runs(container.sessions, batch=batch, documents=documents)
    terminal.emit(result.to_json())
    ended = f"; {result.ended} had ended already" if result.ended else ""
    terminal.line(f"{_some(len(result.runs), 'document')} cancelled{ended}.")


def delete(
    context: typer.Context,
    documents: Annotated[list[str], typer.Argument(metavar="DOC", help="Ids, their starts, or enqueued paths.")],
) -> None:
    """Delete documents with everything that was made of them, a mail with its attachments.

    The name of an archive stands for what it held. The files themselves stay where they are.
    """
    from pipeline.delete import delete as delete_documents

    terminal = terminal_of(context)
    with services(terminal) as container:
        result = delete_documents(container.sessions, container.blobs, documents)
    terminal.emit(result.to_json())
    for one in result.documents:
        terminal.line(f"{near(one.path)} is deleted.")


def _some(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def hand_out(terminal: Terminal, container: Container) -> None:
    """Dispatch what was committed; while the broker is away the beat does it later."""
    from pipeline.domain.errors import ServiceUnavailable

    try:
        container.dispatch()
    except ServiceUnavailable as error:
        terminal.note(f"{error.fact}\nNothing is lost; it goes on when Redis is back.")
