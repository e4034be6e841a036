"""Flower, read-only and behind a password, with rows that say which document and pages they are.

It listens on loopback unless ``TIDEGATE_FLOWER_ADDRESS`` says otherwise; it asks for the password either way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from celery import Celery
from flower.app import Flower
from flower.options import default_options
from flower.urls import settings as web_settings

from pipeline.domain.errors import ServiceUnavailable
from pipeline.settings import Settings
from worker.embedded import Home

__all__ = ["FlowerLogin", "flower_login", "make_flower", "serve_flower"]

_USER = "tidegate"
_PASSWORD_FILE = "flower.password"  # noqa: S105 - the file's name
_COOKIE_FILE = "flower.cookie"
_MAX_TASKS = 20_000
_SAVE_EVERY_MS = 30_000
_FORGET_WORKERS_S = 86_400
_COLUMNS = "name,uuid,state,args,result,received,started,runtime,worker"


@dataclass(frozen=True, slots=True)
class FlowerLogin:
    """Who may look.

    Attributes:
        file: Where the password lies when it was drawn here; None when the environment gave it.
    """

    user: str
    password: str = field(repr=False)
    file: Path | None


def flower_login(settings: Settings) -> FlowerLogin:
    """The login from ``TIDEGATE_FLOWER_BASIC_AUTH``, else one that is drawn once and kept in the home.

    Raises:
        ServiceUnavailable: The home can't be written.
    """
    if settings.flower_basic_auth is not None:
        user, _, password = settings.flower_basic_auth.get_secret_value().partition(":")
        return FlowerLogin(user, password, None)
    home = Home(settings.home)
    home.prepare()
    return FlowerLogin(_USER, home.secret(_PASSWORD_FILE), home.path / _PASSWORD_FILE)


def make_flower(app: Celery, settings: Settings, port: int) -> Flower:
    """Flower's web application, not started.

    Its options are set here and not on a command line, which every user of the host could read.
    """
    # It warns of every worker that was asked while it started.
    logging.getLogger("flower.inspector").setLevel(logging.ERROR)
    home = Home(settings.home)
    home.prepare()
    login = flower_login(settings)
    default_options.port = port
    default_options.address = settings.flower_address
    default_options.basic_auth = [f"{login.user}:{login.password}"]
    default_options.read_only = True
    default_options.max_tasks = _MAX_TASKS
    default_options.persistent = True
    default_options.db = str(home.path / "flower.db")
    default_options.state_save_interval = _SAVE_EVERY_MS
    default_options.tasks_columns = _COLUMNS
    default_options.purge_offline_workers = _FORGET_WORKERS_S
    # Fixed, or every restart would end all sessions.
    return Flower(capp=app, options=default_options, **{**web_settings, "cookie_secret": home.secret(_COOKIE_FILE)})


def serve_flower(flower: Flower, on_ready: Callable[[int], None]) -> None:
    """Serve until the loop is stopped.

    Raises:
        ServiceUnavailable: The port is taken.
    """
    try:
        port = flower.start_http_server()
    except OSError as error:
        raise ServiceUnavailable(
            f"Flower can't listen on {flower.options.address}:{flower.options.port}: {error.strerror}",
            "free that port, or set TIDEGATE_FLOWER_PORT",
        ) from error
    on_ready(port)
    try:
        flower.start()
    finally:
        flower.stop()
