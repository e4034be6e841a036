"""Structured logs on stderr, for our own events and for the libraries', through one formatter.

Event names are ``noun.past_participle``. Prompts and outputs are never logged; secrets are taken out of every line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TextIO
from urllib.parse import quote

# structlog imports rich, a tenth of the time of a command that has nothing to log: only what writes a line imports it.
if TYPE_CHECKING:
    import structlog
    from structlog.typing import EventDict, Processor, ProcessorReturnValue, WrappedLogger

__all__ = ["LogFormat", "configure_logging", "get_logger", "mask_secrets"]

LogFormat = Literal["auto", "json", "console"]

_MASK = "**********"
_SHORTEST_SECRET = 4
"""Below this a value is no secret worth the name, and masking it would garble every line."""
# What these say at INFO is said better by our own events; what they warn of is passed on. Our own loggers begin with
# "tidegate": SQLAlchemy names that of our connection pool after its class.
_QUIET = (
    "celery",
    "kombu",
    "amqp",
    "redis",
    "asyncio",
    "aiohttp",
    "tornado",
    "urllib3",
    "botocore",
    "alembic",
    "pipeline",
)


def configure_logging(
    level: str = "info", fmt: LogFormat = "auto", *, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Set logging up for this process; calling it again replaces what was set.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        fmt: ``auto`` writes JSON where the stream is no terminal.
        secrets: Values that are masked wherever they appear; see ``mask_secrets`` for those that come later.
        stream: stderr unless given; stdout belongs to the commands' results.
    """
    out = stream if stream is not None else sys.stderr
    as_json = fmt == "json" or (fmt == "auto" and not out.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(out)
    _mask.forget()
    _mask.add(secrets)
    handler.setFormatter(_Formatter(as_json=as_json, colors=out.isatty()))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    for name in _QUIET:
        logging.getLogger(name).setLevel(number if number < logging.INFO else max(number, logging.WARNING))
    logging.captureWarnings(True)


def mask_secrets(secrets: Iterable[str]) -> None:
    """Mask these values as well from now on, wherever they appear."""
    _mask.add(secrets)


def get_logger(name: str, **bound: Any) -> structlog.stdlib.BoundLogger:
    """A logger named ``tidegate.<name>``."""
    import structlog

    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                *_shared(),
                structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
            ],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
            cache_logger_on_first_use=False,
        )
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(f"tidegate.{name}", **bound)
    return logger


def _shared() -> list[Processor]:
    """What is done to our own events and to the libraries' records."""
    import structlog

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


class _Formatter(logging.Formatter):
    """structlog's formatter, made when there is a line to write."""

    def __init__(self, *, as_json: bool, colors: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        return self._made.format(record)

    @cached_property
    def _made(self) -> logging.Formatter:
        import structlog

        # Locals in tracebacks are prompts, pages and keys.
        renderer: list[Processor] = (
            [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
            if self._as_json
            else [
                structlog.dev.ConsoleRenderer(
                    colors=self._colors, exception_formatter=structlog.dev.plain_traceback, pad_event_to=24
                )
            ]
        )
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer, _mask],
        )


class _Mask:
    """Takes secrets out of the finished line, wherever in it they got: a message, a URL, a traceback."""

    def __init__(self) -> None:
        self._forms: list[str] = []

    def forget(self) -> None:
        self._forms = []

    def add(self, secrets: Iterable[str]) -> None:
        forms = set(self._forms)
        for secret in secrets:
            value = secret.strip()
            if len(value) >= _SHORTEST_SECRET:
                escaped = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
                forms |= {value, *escaped, quote(value, safe="")}
        # The longest first: one secret may be part of another.
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(
        self, _logger: WrappedLogger, _name: str, line: EventDict | MutableMapping[str, Any] | str
    ) -> ProcessorReturnValue:
        text = line if isinstance(line, str) else json.dumps(line, default=str)
        for form in self._forms:
            text = text.replace(form, _MASK)
        return text


_mask = _Mask()
