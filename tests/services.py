"""Real Postgres and Valkey for a test session, embedded, with nothing to install."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from worker.embedded import EmbeddedPostgres, EmbeddedValkey, Home

__all__ = ["Services", "replica_of_nobody"]


class Services:
    """One Postgres and one Valkey under a temporary folder of their own; not durable, so fast.

    Start and stop it from the main thread: the servers die with the thread that started them. Make one a session:

        services = Services()
        services.start()
        yield services
        services.stop()
    """

    def __init__(self, home: Path | None = None) -> None:
        # Not below pytest's own folder: root closes that to others, and the servers never run as root.
        home = Path(tempfile.mkdtemp(prefix="tidegate-tests-")) if home is None else home
        self._home = Home(home)
        self.postgres = EmbeddedPostgres(home, max_connections=100, durable=False)
        self.valkey = EmbeddedValkey(home, durable=False)

    @property
    def database_url(self) -> str:
        """For SQLAlchemy; the database is empty at first."""
        return self.postgres.url

    @property
    def redis_url(self) -> str:
        """For redis-py; ``worker.embedded.broker_url`` turns it into Celery's form."""
        return self.valkey.url

    def start(self) -> None:
        """Start both; about a second.

        Raises:
            ServiceUnavailable: One does not come up. Tests must fail then, not skip.
        """
        try:
            self.postgres.start()
            self.valkey.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both and remove their folder."""
        self.valkey.stop()
        self.postgres.stop()
        self._home.remove_stand_in()
        if self._home.path.exists():
            shutil.rmtree(self._home.path)


@contextmanager
def replica_of_nobody(redis_url: str) -> Iterator[None]:
    """Make a Redis one that takes no writes, as the one that was the master is for a while after a failover."""
    with redis.Redis.from_url(redis_url) as client:
        client.replicaof("127.0.0.1", 1)
        try:
            yield
        finally:
            client.replicaof("no", "one")
