"""A look at what the broker holds: the slices in its queues, and those delivered and not acknowledged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import redis
from kombu.transport.redis import PRIORITY_STEPS, Channel
from redis.backoff import NoBackoff
from redis.retry import Retry

from pipeline.domain.unit import QUEUES
from pipeline.observe.logging import get_logger

__all__ = ["BrokerContents"]

_TIMEOUT_S = 2.0


class BrokerContents:
    """Reads Celery's own keys; a ``BrokerLook``. Its cost is that of the window, which bounds how many messages wait.

    Args:
        url: As redis-py takes it.
        key_prefix: Of all the app's keys.
    """

    def __init__(self, url: str, key_prefix: str) -> None:
        self._redis = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        self._queues = [
            f"{key_prefix}{queue.value}{Channel.sep}{step}" if step else f"{key_prefix}{queue.value}"
            for queue in QUEUES
            for step in PRIORITY_STEPS
        ]
        self._unacked = f"{key_prefix}{Channel.unacked_key}"

    def __call__(self) -> set[int] | None:
        """The wakes of every slice that it holds; None when it does not answer."""
        try:
            # One moment: a message that goes back to its queue is seen at one place or the other.
            with self._redis.pipeline(transaction=True) as pipe:
                for queue in self._queues:
                    pipe.lrange(queue, 0, -1)
                pipe.hvals(self._unacked)
                *queues, unacked = pipe.execute()
        except redis.RedisError as error:
            get_logger("beat").debug("broker.not_read", error=str(error) or type(error).__name__)
            return None
        waiting = (json.loads(message) for queue in queues for message in queue)
        # Delivered ones are kept as (message, exchange, routing key).
        delivered = (json.loads(entry)[0] for entry in unacked)
        return {wake for messages in (waiting, delivered) for wake in _wakes(messages)}

    def close(self) -> None:
        """Let go of the connection."""
        self._redis.close()


def _wakes(messages: Iterable[dict[str, Any]]) -> Iterator[int]:
    """The wakes in the ids of slices (``worker.publish.slice_id``)."""
    for message in messages:
        wake = str(message.get("headers", {}).get("id", "")).rpartition(":")[2]
        if wake.isdecimal():
            yield int(wake)
