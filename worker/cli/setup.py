"""``config check``, ``db upgrade`` and ``db check``: what is looked at before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.example import example
from worker.cli.session import services
from worker.cli.terminal import terminal_of

if TYPE_CHECKING:
    from pipeline.settings import Settings

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    config = typer.Typer(help="Look at the configuration.", rich_markup_mode=None)
    config.command("check", epilog=example("tidegate config check", "tidegate config check tidegate.yaml"))(
        config_check
    )
    app.add_typer(config, name="config")
    db = typer.Typer(help="Look at the database's schema, or bring it up to date.", rich_markup_mode=None)
    db.command("upgrade", epilog=example("tidegate db upgrade"))(db_upgrade)
    db.command("check", epilog=example("tidegate db check"))(db_check)
    app.add_typer(db, name="db")


def config_check(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The configuration; TIDEGATE_CONFIG or ./tidegate.yaml.")] = None,
) -> None:
    """Say everything that is wrong with a configuration, each with its line and its remedy."""
    from pipeline.config.load import ConfigProblems, load_config
    from pipeline.settings import read_settings

    terminal = terminal_of(context)
    settings = read_settings()
    try:
        loaded = load_config(settings, file, missing_keys="warn")
    except ConfigProblems as error:
        for problem in error.problems:
            terminal.note(problem)
        terminal.emit(
            {"ok": False, "file": str(file) if file else None, "problems": list(error.problems), "warnings": []}
        )
        raise typer.Exit(error.exit_code) from None
    for warning in loaded.warnings:
        terminal.note(f"warning: {warning}")
    found = str(loaded.file) if loaded.file else None
    terminal.emit({"ok": True, "file": found, "problems": [], "warnings": list(loaded.warnings)})
    words = f"{found} is fine" if found else f"no configuration file: {_without_file(settings)}"
    count = len(loaded.warnings)
    terminal.line(words + (f", with {count} warning{'' if count == 1 else 's'}" if count else ""))


def _without_file(settings: Settings) -> str:
    if settings.model_name or settings.model_fallback_chain:
        return "MODEL_NAME and MODEL_FALLBACK_CHAIN serve the text roles, local models the others"
    return "the built-in local chains are used"


def db_upgrade(context: typer.Context) -> None:
    """Bring the database to the schema that this version needs."""
    from pipeline.store.migrate import upgrade
    from pipeline.store.revisions import schema_revision

    terminal = terminal_of(context)
    with services(terminal) as container:
        before = schema_revision(container.engine)
        upgrade(container.engine)
        after = schema_revision(container.engine)
    terminal.emit({"before": before, "revision": after})
    terminal.line(f"the schema is at {after} already" if before == after else f"the schema is now at {after}")


def db_check(context: typer.Context) -> None:
    """See whether the database has the schema that this version needs.

    Tables that have drifted from it are an error too.
    """
    from pipeline.store.migrate import schema_drift
    from pipeline.store.revisions import check_schema, schema_revision

    terminal = terminal_of(context)
    with services(terminal) as container:
        check_schema(container.engine)
        revision, drift = schema_revision(container.engine), schema_drift(container.engine)
    terminal.emit({"revision": revision, "drift": drift})
    if drift:
        terminal.note(f"the schema is at {revision}, but its tables differ: {drift}")
        raise typer.Exit(1)
    terminal.line(f"the schema is at {revision}, as this version needs it")
