"""``targets``: who is busy, switching one off and on, and trying one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.example import example
from worker.cli.session import services
from worker.cli.terminal import Column, Terminal, one_line, terminal_of
from worker.cli.times import clock

if TYPE_CHECKING:
    from pipeline.adapters.chains import KnownTarget
    from pipeline.failover.registry import TargetStatus
    from worker.bootstrap import Container
    from worker.cli.models import CommandCalls

__all__ = ["register", "target_rows"]

_HOUR_S = 3600.0
_SHORT_ROLES = {"vlm_formatter": "format", "retrieval_llm": "retrieve", "answer_llm": "answer", "vlm": "vlm"}
_STYLES = {"closed": "green", "open": "red", "half_open": "yellow", "disabled": "magenta"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    targets = typer.Typer(
        help="See which model endpoints are busy. Each has its state, until when and why, and its last hour.",
        rich_markup_mode=None,
        epilog=example("tidegate targets", "tidegate targets reset vision", "tidegate targets check"),
    )
    targets.callback(invoke_without_command=True)(_targets)
    targets.command("disable", epilog=example("tidegate targets disable vision"))(disable)
    targets.command("enable", epilog=example("tidegate targets enable vision"))(enable)
    targets.command("reset", epilog=example("tidegate targets reset vision"))(reset)
    targets.command("check", epilog=example("tidegate targets check", "tidegate targets check vision"))(check)
    app.add_typer(targets, name="targets")


Target = Annotated[str, typer.Argument(metavar="T", help="A target's key, or the name of its preset.")]


def _targets(context: typer.Context) -> None:
    if context.invoked_subcommand is not None:
        return
    from worker.cli.models import calls_of

    terminal = terminal_of(context)
    with services(terminal) as container, calls_of(container) as made:
        rows = target_rows(container, made)
    terminal.emit({"targets": rows})
    say_targets(terminal, rows)


def disable(context: typer.Context, target: Target) -> None:
    """Switch a target off. Nobody calls it until it is enabled again."""
    _switch(terminal_of(context), target, disabled=True)


def enable(context: typer.Context, target: Target) -> None:
    """Switch a target on again. Work that waited for it goes on."""
    _switch(terminal_of(context), target, disabled=False)


def reset(context: typer.Context, target: Target) -> None:
    """Forget a target's failures and cooldown. Work that waited for it goes on."""
    from worker.cli.models import calls_of

    terminal = terminal_of(context)
    with services(terminal) as container, calls_of(container) as made:
        found = container.chains.resolve_target(target)
        made.run(lambda calls: calls.registry.reset(found.key))
        made.refuse_alone()
        resumed = _wake(terminal, container, made, found.key)
    terminal.emit({"target": found.key, "reset": True, "resumed_runs": resumed})
    terminal.line(f"{found.key} starts anew{_resumed(resumed)}.")


def check(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(metavar="[T]", help="A target's key or preset; else all.")] = None,
) -> None:
    """Make one small real call to each target. There are no retries and no fallbacks."""
    from worker.cli.models import calls_of
    from worker.cli.trial import try_target

    terminal = terminal_of(context)
    with services(terminal) as container, calls_of(container) as made:
        wanted = container.chains.resolve_target(target).key if target else None
        known = [one for one in container.chains.known if wanted in (None, one.target.key)]
        results = made.run(lambda calls: try_target(calls.providers, known))
    terminal.emit({"checks": [result.to_json() for result in results]})
    terminal.table(
        [Column("target"), Column("as"), Column("result"), Column("took", right=True), Column("", cut="end")],
        [
            (result.target, result.role, "ok" if result.ok else result.kind, f"{result.seconds:.1f} s", result.message)
            for result in results
        ],
    )
    raise typer.Exit(0 if all(result.ok for result in results) else 1)


def target_rows(container: Container, made: CommandCalls) -> list[dict[str, Any]]:
    """Every target as ``targets --json`` shows it."""
    from pipeline.store.switches import disabled_targets
    from pipeline.store.tally import Tally, tally_by_target

    with container.sessions() as session:
        disabled = disabled_targets(session)
        tallies = tally_by_target(session, _HOUR_S)
    statuses = made.statuses()
    return [
        _row(known, statuses[known.target.key], known.target.key in disabled, tallies.get(known.target.key, Tally()))
        for known in container.chains.known
    ]


def _row(known: KnownTarget, status: TargetStatus, disabled: bool, tally: Any) -> dict[str, Any]:
    until = None if status.until is None or disabled else datetime.fromtimestamp(status.until, UTC)
    return {
        "target": known.target.key,
        "preset": known.target.preset,
        "presets": list(known.presets),
        "model": known.target.model,
        "roles": list(known.roles),
        # The truth of a switch is in Postgres; the registry reads it again in a minute.
        "state": "disabled" if disabled else status.state.value,
        "probing": status.probing,
        "until": until,
        "kind": None if disabled else status.kind,
        "failures": status.failures,
        "in_flight": status.in_flight,
        "max_parallel": known.target.max_parallel,
        "ok_1h": tally.ok,
        "failed_1h": tally.failed,
    }


def say_targets(terminal: Terminal, rows: list[dict[str, Any]]) -> None:
    """A line for each of ``target_rows``."""
    from rich.text import Text

    columns = [
        Column("target", cut="end"),
        Column("roles", cut="end"),
        Column("state"),
        Column("why", cut="end"),
        Column("in flight", right=True),
        Column("last hour"),
    ]
    shown = []
    for row in rows:
        name = row["target"] if row["preset"] == row["target"] else f"{row['preset']}  {row['target']}"
        flight = f"{row['in_flight']}/{row['max_parallel']}" if row["max_parallel"] else str(row["in_flight"])
        failed = f" · {row['failed_1h']:,} failed" if row["failed_1h"] else ""
        shown.append(
            (
                name,
                ", ".join(_SHORT_ROLES.get(role, role) for role in row["roles"]),
                Text(_state(row), style=_STYLES[row["state"]] if terminal.is_tty else ""),
                row["kind"] or "",
                flight,
                f"{row['ok_1h']:,} ok{failed}" if row["ok_1h"] or failed else "–",
            )
        )
    terminal.table(columns, shown)


def _state(row: dict[str, Any]) -> str:
    if row["state"] == "half_open":
        return "probing" if row["probing"] else "to be probed"
    return f"open until {clock(row['until'])}" if row["until"] else one_line(row["state"])


def _switch(terminal: Terminal, name: str, *, disabled: bool) -> None:
    from pipeline.store.switches import set_switch
    from worker.cli.models import calls_of

    with services(terminal) as container, calls_of(container) as made:
        target = container.chains.resolve_target(name)
        with container.sessions.begin() as session:
            set_switch(session, target.key, disabled=disabled)
        # Without Redis the truth is written all the same, and read within a minute of its return.
        made.run(lambda calls: calls.registry.set_disabled(target.key, disabled))
        resumed = 0 if disabled else _wake(terminal, container, made, target.key)
    terminal.emit({"target": target.key, "disabled": disabled, "resumed_runs": resumed})
    terminal.line(f"{target.key} is {'disabled' if disabled else 'enabled'}{_resumed(resumed)}.")


def _wake(terminal: Terminal, container: Container, made: CommandCalls, key: str) -> int:
    """Let parked work of a target's chains be tried now; returns how many runs went on at once."""
    from pipeline.adapters.watch import RegistryWatch
    from pipeline.domain.errors import ServiceUnavailable
    from pipeline.reconcile import wake_parked_runs
    from pipeline.store.parked import make_parked_due
    from pipeline.store.session import transact

    stages = container.stages_of(key)
    if not stages:
        return 0
    transact(container.sessions, lambda session: make_parked_due(session, stages))
    watch = RegistryWatch(made.calls.registry, container.stage_chains, made.loop.submit)
    resumed = wake_parked_runs(container.sessions, watch, stages, container.reconcile_policy.most_units)
    try:
        container.dispatch()
    except ServiceUnavailable as error:
        terminal.note(f"{error.fact}\nWhat waits goes on when it is back.")
    return len(set(resumed))


def _resumed(runs: int) -> str:
    return f"; {runs} parked document{'s go' if runs != 1 else ' goes'} on" if runs else ""
