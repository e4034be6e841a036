"""A Postgres and a Valkey that a test may kill, freeze and start again, each by itself."""

from __future__ import annotations

import signal
from itertools import count
from pathlib import Path

import psycopg
import redis
from sqlalchemy.engine import make_url

from pipeline.store.migrate import upgrade
from pipeline.store.session import make_engine
from tests.fault.kin import children_of
from tests.services import Services
from worker.embedded.process import ProcessId
from worker.embedded.server import EmbeddedServer

__all__ = ["Server", "Servers"]

_TEMPLATE = "blueprint"
_GONE_S = 10.0


class Server:
    """One of the two servers, with what may befall it. ``restart`` keeps its address."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server

    @property
    def pid(self) -> int:
        """Of the server's first process (Postgres: the postmaster)."""
        pid = self._server.pid
        assert pid is not None, f"{self._server.name} does not run"
        return pid

    def kill(self) -> None:
        """SIGKILL; returns when no process of it is left."""
        family = self._family()
        family[0].send(signal.SIGKILL)
        for process in family:
            # Postgres' backends notice the death of their postmaster by themselves.
            assert process.wait_gone(_GONE_S), f"process {process.pid} of {self._server.name} outlives its server"

    def freeze(self) -> None:
        """SIGSTOP to every process of it: connections stay open, and nothing is answered."""
        for process in self._family():
            process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT to every process of it."""
        for process in self._family():
            process.send(signal.SIGCONT)

    def thaw_if_it_runs(self) -> None:
        """For the end of a test, whatever it did."""
        if self._server.pid is not None:
            self.thaw()

    def start(self) -> None:
        """Start it after ``kill`` or ``stop``, at the same address; returns when it answers."""
        self._server.start()

    def stop(self) -> None:
        """End it in good order."""
        self._server.stop()

    def restart(self) -> None:
        """``stop`` and ``start``."""
        self.stop()
        self.start()

    def _family(self) -> list[ProcessId]:
        first = ProcessId.of(self.pid)
        assert first is not None, f"{self._server.name} has ended"
        return [first, *children_of(first.pid)]


class Servers:
    """Both servers, and a new migrated database for whoever asks.

    Start and stop from the main thread. Make one a module: a second or two.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._services = Services(folder)
        self.postgres = Server(self._services.postgres)
        self.redis = Server(self._services.valkey)
        self._numbers = count(1)

    @property
    def redis_url(self) -> str:
        return self._services.redis_url

    def start(self) -> None:
        """Start both, and make the database that the others are copies of."""
        self._services.start()
        try:
            self._administer(f"create database {_TEMPLATE}")
            engine = make_engine(self._beside(_TEMPLATE), pool_size=2)
            upgrade(engine)
            engine.dispose()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both, whatever has been done to them, and remove their folder."""
        for server in (self.postgres, self.redis):
            server.thaw_if_it_runs()
        self._services.stop()

    def new_database(self) -> str:
        """The URL of a migrated database of an installation of its own, so that Redis' keys are its own too."""
        name = f"fault_{next(self._numbers)}"
        self._administer(f"create database {name} template {_TEMPLATE}")
        url = self._beside(name)
        with psycopg.connect(_plain(url), autocommit=True) as connection:
            connection.execute("update installation set id = gen_random_uuid()")
        return url

    def flush_redis(self) -> None:
        """FLUSHALL."""
        client = redis.Redis.from_url(self.redis_url)
        try:
            client.flushall()
        finally:
            client.close()

    def _beside(self, database: str) -> str:
        return make_url(self._services.database_url).set(database=database).render_as_string(hide_password=False)

    def _administer(self, statement: str) -> None:
        with psycopg.connect(_plain(self._services.database_url), autocommit=True) as connection:
            connection.execute(statement.encode())


def _plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
