"""Where Postgres, Redis and the blobs are: what the environment says, else the embedded stack that runs here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.domain.errors import ServiceUnavailable
from pipeline.settings import Settings
from worker.embedded import read_stack

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["Addresses", "find_services", "redis_info", "redis_refusal"]

_REDIS_TIMEOUT_S = 3.0
_TRIAL_KEY = "tidegate:doctor"
_TRIAL_LIFE_S = 1
_REMEDY = "start the embedded services: tidegate up; or set TIDEGATE_DATABASE_URL and TIDEGATE_REDIS_URL"


@dataclass(frozen=True, slots=True)
class Addresses:
    """URLs, passwords included.

    Attributes:
        redis_url: As redis-py takes it; ``worker.embedded.broker_url`` makes it Celery's.
        embedded: Whether any of the services is the embedded stack's.
    """

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    blob_url: str
    embedded: bool


def find_services(settings: Settings) -> Addresses:
    """Look where the services are. Nothing is connected to.

    Raises:
        ServiceUnavailable: A URL is not set, and no embedded stack runs under ``TIDEGATE_HOME``.
    """
    database_url = settings.database_url.get_secret_value() if settings.database_url else None
    redis_url = settings.redis_url.get_secret_value() if settings.redis_url else None
    blob_url = settings.blob_url or (settings.home / "blobs").as_uri()
    if database_url is not None and redis_url is not None:
        return Addresses(database_url, redis_url, blob_url, embedded=False)
    stack = read_stack(settings.home)
    if stack is None:
        raise ServiceUnavailable(f"no services run under {str(settings.home)!r}", _REMEDY)
    database_url = database_url or stack.database_url
    redis_url = redis_url or stack.redis_url
    if database_url is None or redis_url is None:
        missing = "Postgres" if database_url is None else "Redis"
        raise ServiceUnavailable(f"the stack under {str(settings.home)!r} runs without {missing}", _REMEDY)
    return Addresses(database_url, redis_url, blob_url, embedded=True)


def redis_info(url: str) -> dict[str, Any]:
    """Ask Redis once about itself: its ``INFO``.

    Raises:
        ServiceUnavailable: It does not answer within 3 s.
    """
    with _redis_at(url) as client:
        info: dict[str, Any] = client.info()
        return info


def redis_refusal(url: str) -> str | None:
    """What Redis says to a write; None when it takes it. A full one, a replica and one that can't save answer all else.

    Raises:
        ServiceUnavailable: It does not answer within 3 s.
    """
    from redis.exceptions import ResponseError

    with _redis_at(url) as client:
        try:
            client.set(_TRIAL_KEY, "", ex=_TRIAL_LIFE_S)
        except ResponseError as error:
            return str(error)
    return None


@contextmanager
def _redis_at(url: str) -> Iterator[Redis]:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    client = redis.Redis.from_url(
        url,
        socket_timeout=_REDIS_TIMEOUT_S,
        socket_connect_timeout=_REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )
    try:
        yield client
    except redis.RedisError as error:
        remedy = "start the embedded services: tidegate up; or check TIDEGATE_REDIS_URL"
        raise ServiceUnavailable(f"Redis does not answer: {error}", remedy) from error
    finally:
        client.close()
