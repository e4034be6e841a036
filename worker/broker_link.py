"""A worker's connection to the broker: how it comes back, and what is said of it when it is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from celery.app.amqp import AMQP
from celery.exceptions import Reject
from kombu import Connection
from kombu.transport.redis import Channel, Transport
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from pipeline.observe.logging import get_logger

__all__ = ["PromptAmqp", "losses_said_once"]

_RETRY_S = 2
_NOTHING = "nothing"
"""A key that nobody sets."""
_CONSUMER = "celery.worker.consumer.consumer"
_CONNECTED = "celery.worker.consumer.connection"
_REQUEST = "celery.worker.request"
_TRACE = "celery.app.trace"
_REMEDY = "work under way goes on, and it is tried again by itself; check TIDEGATE_REDIS_URL if that takes long"


class _WritingChannel(Channel):
    """Is there only where Redis takes writes.

    A replica, or a master that can't save, answers and refuses to hand out a message, which is a write. Celery would
    ask again at once, and for ever.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        try:
            # Not refused by one that is full: handing out messages is what makes room there.
            self.client.delete(_NOTHING)
        except ResponseError as error:
            self.close()
            raise RedisConnectionError(str(error)) from error


class _WritingTransport(Transport):
    Channel = _WritingChannel


class _PromptConnection(Connection):
    """Tries again every two seconds; Kombu's waits grow to half a minute, in which a healthy broker goes unused."""

    def get_transport_cls(self) -> Any:
        """See ``_WritingChannel``."""
        found = super().get_transport_cls()
        return _WritingTransport if found is Transport else found

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """See the class."""
        return super().ensure_connection(*args, **{"interval_start": _RETRY_S, "interval_step": 0, **options})


class PromptAmqp(AMQP):
    """Makes the app's connections."""

    Connection = _PromptConnection


@contextmanager
def losses_said_once() -> Iterator[None]:
    """While the block runs, a lost broker is one warning, and its return one line.

    Celery says the same with a traceback of its own insides, and again at each try. A message that can't be
    acknowledged comes back, and finds nothing to do: no failure, and no sign that the connection is lost, which may
    outlive a Redis that stood still. Nor is a message a failure that a worker hands back because it is about to end.
    """
    loggers = [logging.getLogger(name) for name in (_CONSUMER, _CONNECTED, _REQUEST, _TRACE)]
    said = _Losses({logger.name: logger.getEffectiveLevel() for logger in loggers})
    with ExitStack() as undo:
        for logger in loggers:
            level = logger.level
            # The return is told at INFO.
            logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
            logger.addFilter(said)
            undo.callback(logger.setLevel, level)
            undo.callback(logger.removeFilter, said)
        yield


class _Losses(logging.Filter):
    """Takes out what Celery says of the connection, and says it in our own words.

    Args:
        levels: Of each logger, before it was lowered to hear of the return.
    """

    def __init__(self, levels: Mapping[str, int]) -> None:
        super().__init__()
        self._levels = levels
        self._lost = False
        self._log = get_logger("worker")

    def filter(self, record: logging.LogRecord) -> bool:
        """See ``logging.Filter``; False leaves the record out."""
        message = str(record.msg)
        if record.name == _CONNECTED:
            if self._lost:
                self._log.info("broker.restored")
            self._lost = False
            return False
        if record.name == _CONSUMER and ("Connection to broker lost" in message or "Cannot connect to" in message):
            self._say(record)
            return False
        if record.name == _REQUEST and message.startswith(("Couldn't ack", "Couldn't reject")):
            self._log.info("slice.not_acknowledged", error=f"Redis: {_reason(record)}")
            return False
        if record.name == _TRACE and record.exc_info and isinstance(record.exc_info[1], Reject):
            self._log.info("slice.handed_back", slice=record.args.get("id") if isinstance(record.args, dict) else "")
            return False
        return record.levelno >= self._levels[record.name]

    def _say(self, record: logging.LogRecord) -> None:
        if self._lost:
            return
        self._lost = True
        self._log.warning("broker.lost", error=f"Redis: {_reason(record)}", remedy=_REMEDY)


def _reason(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        given = record.args if isinstance(record.args, tuple) else ()
        error = next((value for value in given if isinstance(value, BaseException)), None)
    return str(error or record.getMessage()).strip().splitlines()[0]
