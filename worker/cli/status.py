"""``status``, ``why`` and ``attempts``: where documents are, and how they got there."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from worker.cli.example import example
from worker.cli.paths import near
from worker.cli.session import services
from worker.cli.terminal import Column, Terminal, one_line, terminal_of
from worker.cli.times import duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pipeline.budgets import BudgetStanding
    from pipeline.domain.unit import Stage
    from pipeline.settings import Settings
    from pipeline.spaces import SpaceStanding
    from pipeline.status import Status
    from pipeline.store.attempts import AttemptRow
    from pipeline.why import ChainLink
    from worker.bootstrap import Container

__all__ = ["register"]

T = TypeVar("T")

_WATCH_S = 1.0
_SHOWN = 20
_LISTED = 1000


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=example("tidegate status", "tidegate status --batch handbook-2026 --failed"))(status)
    app.command(epilog=example("tidegate why 7f3a", "tidegate why handbook/ch4.pdf"))(why)
    app.command(epilog=example("tidegate attempts 7f3a --stage describe"))(attempts)


Document = Annotated[str, typer.Argument(metavar="DOC", help="Its id, the start of one, or the path enqueued.")]


def status(
    context: typer.Context,
    collection: Annotated[str | None, typer.Option("--collection", metavar="C", help="Only that one's.")] = None,
    batch: Annotated[str | None, typer.Option("--batch", metavar="B", help="Only that batch's.")] = None,
    document: Annotated[str | None, typer.Option("--document", metavar="D", help="Only that document.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="List only those that failed.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and show it anew every second.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="List so many; else 1,000 with --json and 20 without."),
    ] = None,
) -> None:
    """Say where documents are: in all, by stage, and one by one."""
    from pipeline.domain.errors import UsageError
    from pipeline.status import status as read_status

    terminal = terminal_of(context)
    if watch and terminal.as_json:
        raise UsageError("--watch and --json don't go together", "ask for the JSON as often as you need it")
    with services(terminal) as container:

        def look() -> Status:
            return read_status(
                container.reads,
                collection=collection,
                batch=batch,
                document=document,
                failed=failed,
                # For people what is urgent among many comes first, however few are shown.
                limit=limit or _LISTED if terminal.as_json else max(limit or 0, _LISTED),
            )

        def standing() -> list[SpaceStanding]:
            return _standing(container, collection)

        def draw(found: Status) -> RenderableType:
            from worker.cli.status_view import picture

            links, width = _links(container, found), terminal.console.width
            said = [one.note for one in standing()] + [one.note for one in _budgets(container, collection)]
            found = replace(found, notes=[*found.notes, *filter(None, said)])
            return picture(found, links, limit or _SHOWN, width, batch=batch, only_failed=failed)

        if watch:
            _watch(terminal, lambda: draw(look()))
            return
        found = look()
        if not terminal.as_json:
            terminal.print(draw(found))
            return
        shown = found.to_json()
        shown["processes"] += _stack_processes(container.settings)
        spaces, budgets = standing(), _budgets(container, collection)
        shown["spaces"] = [one.to_json() for one in spaces]
        shown["budgets"] = [one.to_json() for one in budgets]
        shown["notes"] += filter(None, [one.note for one in spaces] + [one.note for one in budgets])
        terminal.emit(shown)


def why(context: typer.Context, document: Document) -> None:
    """Say why a document is where it is, and the command that helps."""
    from pipeline.why import why as explain

    terminal = terminal_of(context)
    with services(terminal) as container:
        budgets = {one.collection: one for one in _budgets(container, None)}
        found = explain(container.reads, document, chains=_all_links(container), budgets=budgets)
    terminal.emit(found.to_json())
    for line in found.lines:
        terminal.line(line)
    for command in found.commands:
        terminal.print(f"  {one_line(command)}")


def attempts(
    context: typer.Context,
    document: Document,
    stage: Annotated[str | None, typer.Option("--stage", metavar="S", help="Only that stage's.")] = None,
) -> None:
    """List every model call for a document. The targets left out on the way are named."""
    from pipeline.attempts import attempts as read_attempts

    terminal = terminal_of(context)
    chosen = None if stage is None else _stage(stage)
    with services(terminal) as container:
        found = read_attempts(container.reads, document, stage=chosen)
        # For people alone; rows may outlive the configuration that their targets came from.
        names = {} if terminal.as_json else target_names(container)
    terminal.emit(found.to_json())
    if not found.attempts:
        terminal.line(f"{near(found.path)}: no model was called.")
        return
    _say_attempts(terminal, found.attempts, names, with_stage=stage is None)


def _stage(name: str) -> Stage:
    from pipeline.domain.errors import UsageError
    from pipeline.domain.unit import Stage

    try:
        return Stage(name)
    except ValueError:
        raise UsageError(f"{name!r} is no stage", f"the stages are: {', '.join(Stage)}") from None


def _watch(terminal: Terminal, draw: Callable[[], RenderableType]) -> None:
    """Show it again and again until Ctrl-C, which is the way to end this and no error."""
    from rich.live import Live

    pause = threading.Event()
    try:
        if not terminal.is_tty:
            while True:
                terminal.print(draw())
                terminal.print()
                terminal.flush()
                pause.wait(_WATCH_S)
        with Live(console=terminal.console, auto_refresh=False, screen=False) as live:
            while True:
                live.update(draw(), refresh=True)
                pause.wait(_WATCH_S)
    except KeyboardInterrupt:
        return


def _standing(container: Container, collection: str | None) -> list[SpaceStanding]:
    """By which embedding model collections are searched."""
    from pipeline.spaces import space_standing

    return _if_configured(lambda: space_standing(container.reads, lambda: container.space, collection))


def _budgets(container: Container, collection: str | None) -> list[BudgetStanding]:
    """What collections have spent."""
    from pipeline.budgets import budget_standing

    return _if_configured(lambda: budget_standing(container.reads, container.budget_usd, collection))


def _if_configured(read: Callable[[], list[T]]) -> list[T]:
    """Nothing where the configuration can't say what is wanted: what Postgres knows is shown all the same."""
    from pipeline.domain.errors import ConfigError

    try:
        return read()
    except ConfigError:
        return []


def _links(container: Container, found: Status) -> Mapping[Stage, Sequence[ChainLink]]:
    """The chains' states, where something waits for them."""
    return _all_links(container) if found.parked else {}


def _all_links(container: Container) -> Mapping[Stage, Sequence[ChainLink]]:
    """The targets of each stage with their states; nothing while they can't be read."""
    from pipeline.domain.errors import TidegateError
    from pipeline.why import ChainLink
    from worker.bootstrap import ROLE_OF_STAGE
    from worker.cli.models import calls_of

    try:
        with calls_of(container) as made:
            states = made.statuses()
        names = target_names(container)
        return {
            stage: [ChainLink(names[target.key], ROLE_OF_STAGE[stage], states[target.key]) for target in chain.targets]
            for stage, chain in container.stage_chains.items()
        }
    except TidegateError:
        # What Postgres knows is shown all the same.
        return {}


def target_names(container: Container) -> dict[str, str]:
    """What to call each target: its preset's name where that names it alone, else its key."""
    presets: defaultdict[str, set[str]] = defaultdict(set)
    for known in container.chains.known:
        for preset in known.presets:
            presets[preset].add(known.target.key)
    return {
        known.target.key: known.target.preset if len(presets[known.target.preset]) == 1 else known.target.key
        for known in container.chains.known
    }


def _stack_processes(settings: Settings) -> list[dict[str, Any]]:
    """The processes of the embedded stack that write no row: the supervisor and the servers."""
    import socket

    from worker.embedded import read_stack

    stack = read_stack(settings.home)
    if stack is None:
        return []
    host = socket.gethostname()
    found = [{"pid": stack.supervisor.pid, "host": host, "role": "supervisor", "queues": []}]
    found += [
        {"pid": part.process.pid, "host": host, "role": part.role, "queues": []}
        for part in stack.parts
        if part.role in ("postgres", "redis") and part.process is not None
    ]
    return found


def _say_attempts(
    terminal: Terminal, rows: Sequence[AttemptRow], names: Mapping[str, str], *, with_stage: bool
) -> None:
    columns = [
        *([Column("stage")] if with_stage else []),
        Column("page" if all(row.stage in ("describe", "format") for row in rows) else "unit", right=True),
        Column("try", right=True),
        Column("target", cut="end"),
        Column("outcome"),
        Column("why", cut="end"),
        Column("first", right=True),
        Column("took", right=True),
        Column("tokens", right=True),
        Column("cost", right=True),
    ]
    tries: defaultdict[str, int] = defaultdict(int)
    shown = []
    for row in rows:
        tries[row.call_id] += 1
        name = "" if row.target is None else row.target if row.preset in (None, row.target) else _named(row)
        shown.append(
            [
                *([row.stage or ""] if with_stage else []),
                "" if row.ordinal is None else row.ordinal,
                tries[row.call_id],
                name,
                row.outcome,
                _why(row, names),
                "–" if row.ttft_ms is None else duration(row.ttft_ms / 1000),
                "–" if row.duration_ms is None else duration(row.duration_ms / 1000),
                f"{row.tokens_in:,}/{row.tokens_out:,}" if row.tokens_in or row.tokens_out else "–",
                f"${row.cost_usd:.4f}" if row.cost_usd else "–",
            ]
        )
    terminal.table(columns, shown)


def _named(row: AttemptRow) -> str:
    return f"{row.preset} ({row.target})"


def _why(row: AttemptRow, names: Mapping[str, str]) -> str:
    skips = [(str(skip.get("target")), skip.get("reason")) for skip in row.skipped]
    said = [f"{names.get(target, target)} {reason}" for target, reason in skips]
    if row.kind:
        said.insert(0, f"{row.kind}{f' {row.status}' if row.status else ''}")
    return ", ".join(said)
