"""What commands work with: the environment, logging, and the services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from worker.cli.terminal import Terminal

if TYPE_CHECKING:
    from pipeline.settings import Settings
    from worker.bootstrap import Container

__all__ = ["services", "set_up"]


def set_up(terminal: Terminal, level: str = "warning") -> Settings:
    """Read the environment, and log to stderr from ``level`` on (everything with ``--debug``)."""
    from pipeline.observe.logging import configure_logging
    from pipeline.settings import read_settings

    settings = read_settings()
    configure_logging("debug" if terminal.debug else level, settings.log_format)
    return settings


@contextmanager
def services(terminal: Terminal) -> Iterator[Container]:
    """A container for the time of a command.

    Raises:
        ServiceUnavailable: None run, and none are named; or later, when one does not answer.
    """
    from pipeline.observe.logging import mask_secrets
    from worker.services import find_services

    settings = set_up(terminal)
    # Before the container and its second of imports: without services there is nothing to wait for.
    find_services(settings)
    from worker.bootstrap import open_container

    with open_container(settings, name="tidegate command") as container:
        mask_secrets(container.passwords())
        yield container
