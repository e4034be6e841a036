"""``worker``, ``beat`` and ``flower``: one process each, in the foreground, for real deployments."""

from __future__ import annotations

from typing import Annotated

import typer

from worker.cli.example import example
from worker.cli.session import set_up
from worker.cli.terminal import terminal_of

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=example("tidegate worker --queues describe,format --threads 64"))(worker)
    app.command(epilog=example("tidegate beat"))(beat)
    app.command(epilog=example("TIDEGATE_FLOWER_BASIC_AUTH=me:secret tidegate flower"))(flower)


def worker(
    context: typer.Context,
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="LIST", help="Like describe,format; all five without.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", metavar="N", min=1, help="Slices at once.")] = 32,
) -> None:
    """Run one worker until it is told to end.

    On SIGTERM or Ctrl-C, what it has is finished or given back.
    """
    from worker.processes import run_worker

    settings = set_up(terminal_of(context), level="info")
    run_worker(settings, None if queues is None else queues.replace(",", " ").split(), threads)


def beat(context: typer.Context) -> None:
    """Run the reconciler and the dispatcher. One is enough, more are harmless."""
    from worker.processes import run_beat

    run_beat(set_up(terminal_of(context), level="info"))


def flower(
    context: typer.Context,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", help="On loopback; else TIDEGATE_FLOWER_PORT, else 5555.")
    ] = None,
) -> None:
    """Run Flower, read-only and behind a password, on loopback."""
    from worker.flower import flower_login
    from worker.processes import run_flower

    terminal = terminal_of(context)
    settings = set_up(terminal, level="info")
    login = flower_login(settings)
    where = f"its password is in {login.file}" if login.file else "its password is that of TIDEGATE_FLOWER_BASIC_AUTH"

    def ready(url: str) -> None:
        terminal.note(f"Flower is at {url}; the user is {login.user}, {where}")

    run_flower(settings, port, ready)
