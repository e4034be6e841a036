"""``tidegate``'s commands, put together. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from worker.cli import (
    demo,
    doctor,
    documents,
    enqueue,
    processes,
    reading,
    setup,
    stack,
    status,
    targets,
)

__all__ = ["command"]


def command() -> TyperGroup:
    """The whole command line."""
    app = typer.Typer(
        name="tidegate",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(_root)
    # In the order of the help.
    for family in (stack, demo, doctor, enqueue, status, documents, targets, reading, setup, processes):
        family.register(app)
    made = get_command(app)
    if not isinstance(made, TyperGroup):
        msg = "the commands make no group"
        raise TypeError(msg)
    return made


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Say the version, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With any command: one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="With any command: tracebacks and debug logs.")] = False,
) -> None:
    """Take documents in through busy models, and search them.

    \b
    First steps:
      tidegate up --detach                 start Postgres, Redis, workers, beat and Flower under ./.tidegate
      tidegate enqueue docs/ --wait        take the files in
      tidegate search 'how many guests?'   look for something
      tidegate down                        stop everything
    """  # noqa: D301 - the backspace is Typer's mark for text that is not to be wrapped
    del as_json, debug  # taken out of the command line before; they are here for the help
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"tidegate {version_of('tidegate')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
