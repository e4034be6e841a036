"""``up`` and ``down``: the whole stack under one supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.example import example
from worker.cli.session import set_up
from worker.cli.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.settings import Settings
    from worker.embedded import Stack
    from worker.flower import FlowerLogin
    from worker.stack import StackPlan

__all__ = ["START_TIMEOUT_S", "Where", "register", "start", "where_things_are"]

START_TIMEOUT_S = 300.0
"""A first start makes the database, a start after a crash replays its log; both take far less."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=example("tidegate up --detach", "tidegate up --stages parse,embed --threads 8"))(up)
    app.command(epilog=example("tidegate down"))(down)


def up(
    context: typer.Context,
    detach: Annotated[bool, typer.Option("--detach", help="Return once every part answers.")] = False,
    stages: Annotated[
        str | None, typer.Option("--stages", metavar="LIST", help="Only these workers, like parse,embed; else all.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", metavar="N", min=1, help="Slices at once in each worker.")] = 32,
    no_flower: Annotated[bool, typer.Option("--no-flower", help="Leave Flower out.")] = False,
    no_api: Annotated[bool, typer.Option("--no-api", help="Leave the API out.", hidden=True)] = False,
    leash: Annotated[int | None, typer.Option("--leash", metavar="PID", hidden=True)] = None,
) -> None:
    """Start the whole stack.

    That is Postgres, Redis, one worker a stage, beat and Flower. What dies is restarted; Ctrl-C stops everything.

    Postgres and Redis are embedded, with their data in TIDEGATE_HOME (./.tidegate), unless TIDEGATE_DATABASE_URL and
    TIDEGATE_REDIS_URL name others.
    """
    from pipeline.config.load import load_config
    from worker.processes import parse_queues

    del no_api  # there is none yet to leave out
    terminal = terminal_of(context)
    queues = parse_queues(_listed(stages))
    # A person is told what matters; a log keeps all of it.
    settings = set_up(terminal, level="warning" if detach or terminal.is_watched else "info")
    load_config(settings)
    if detach:
        words = [*(("--stages", stages) if stages else ()), "--threads", str(threads)]
        stack = start(terminal, settings, [*words, *(["--no-flower"] if no_flower else [])])
        _show(terminal, settings, stack, detached=True)
        return
    plan = _plan(settings, queues, threads, flower=not no_flower, leash=leash)
    if plan is not None:
        _run_here(terminal, settings, plan)


def down(context: typer.Context) -> None:
    """Stop the stack that runs under TIDEGATE_HOME. What is under way is finished or given back first."""
    from worker.embedded import stop_stack

    terminal = terminal_of(context)
    settings = set_up(terminal)
    stopped = stop_stack(settings.home)
    terminal.emit({"home": str(settings.home), "stopped": stopped})
    terminal.line("stopped." if stopped else f"nothing runs under {settings.home}.")


def start(terminal: Terminal, settings: Settings, words: Sequence[str] = ()) -> Stack:
    """Start a stack in the background and wait until it is ready.

    Args:
        words: Options for ``tidegate up``.
    """
    from worker.embedded import start_detached
    from worker.stack import program

    if terminal.is_watched:
        terminal.note("starting …")
    flags = ["--debug"] if terminal.debug else []
    return start_detached(program(*flags, "up", *words), settings.home, START_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Where:
    """Where the parts of a stack are.

    Attributes:
        flower: Its address; None where there is none.
        login: Who may look at it; None without it.
    """

    flower: str | None
    login: FlowerLogin | None
    data: Path
    logs: Path

    def to_json(self) -> dict[str, Any]:
        login = self.login and {"user": self.login.user, "password_file": self.login.file}
        return {"home": self.data, "logs": self.logs, "flower": self.flower, "flower_login": login}

    def rows(self, terminal: Terminal) -> list[tuple[str, object]]:
        """What to print. The password is for a person's eyes only: what is piped is kept somewhere."""
        rows: list[tuple[str, object]] = []
        if self.flower and self.login:
            if self.login.file is None:
                secret = "as in TIDEGATE_FLOWER_BASIC_AUTH"  # noqa: S105 - where it is, not what
            else:
                secret = self.login.password if terminal.is_tty else f"in {self.login.file}"
            rows.append(("flower", f"{self.flower}  (user {self.login.user}, password {secret})"))
        return [*rows, ("data", self.data), ("logs", self.logs)]


def where_things_are(settings: Settings, stack: Stack) -> Where:
    """Where to look at a stack that runs."""
    from worker.embedded import Home
    from worker.flower import flower_login

    home = Home(settings.home)
    port = next((part.port for part in stack.parts if part.role == "flower"), None)
    if port is None:
        return Where(None, None, home.path, home.logs)
    return Where(f"http://127.0.0.1:{port}", flower_login(settings), home.path, home.logs)


def _plan(
    settings: Settings, queues: Sequence[Any], threads: int, *, flower: bool, leash: int | None
) -> StackPlan | None:
    """What to run; None when the process that wanted it is gone already."""
    from worker.embedded import ProcessId
    from worker.stack import StackPlan, choose_port

    holder = ProcessId.of(leash) if leash is not None else None
    if leash is not None and holder is None:
        return None
    port = choose_port(settings.flower_port) if flower else None
    return StackPlan(queues, threads, port, holder)


def _run_here(terminal: Terminal, settings: Settings, plan: StackPlan) -> None:
    from worker.stack import make_supervisor

    def ready(stack: Stack) -> None:
        _show(terminal, settings, stack, detached=False)
        terminal.flush()

    if terminal.is_watched:
        terminal.note("starting …")
    with make_supervisor(settings, plan) as supervisor:
        supervisor.run(on_ready=ready)
    if terminal.is_watched:
        terminal.note("stopped.")


def _show(terminal: Terminal, settings: Settings, stack: Stack, *, detached: bool) -> None:
    where = where_things_are(settings, stack)
    terminal.emit(
        {
            **where.to_json(),
            "supervisor": stack.supervisor.pid,
            "parts": [
                {
                    "name": part.name,
                    "role": part.role,
                    "state": part.state,
                    "pid": part.process.pid if part.process else None,
                    "queues": list(part.queues),
                }
                for part in stack.parts
            ],
        }
    )
    workers = [part.queues[0] for part in stack.parts if part.role == "worker"]
    rows: list[tuple[str, object]] = [("up", f"{', '.join(_others(stack))}; workers for {', '.join(workers)}")]
    rows += where.rows(terminal)
    rows.append(
        ("next", "tidegate enqueue FILES --wait" + ("; to stop:  tidegate down" if detached else "; to stop:  Ctrl-C"))
    )
    terminal.facts(rows)


def _others(stack: Stack) -> list[str]:
    names = {"postgres": "Postgres", "redis": "Redis", "beat": "beat", "flower": "Flower"}
    return [names[part.role] for part in stack.parts if part.role in names]


def _listed(stages: str | None) -> list[str] | None:
    if stages is None:
        return None
    return [name for name in stages.replace(",", " ").split() if name]
