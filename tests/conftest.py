"""Fixtures for tests that need real services: one Postgres and one Valkey a session, started when first asked for.

A fresh, migrated database costs a copy of a template (some 30 ms). Services that don't come up fail the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
import redis
from sqlalchemy import Engine, text
from sqlalchemy.engine import URL, make_url

from pipeline.store.blobs import FileBlobs
from pipeline.store.migrate import upgrade
from pipeline.store.session import Sessions, make_engine, make_sessions
from tests.services import Services
from tests.upstream.fixtures import upstream, upstream_process

__all__ = ["upstream", "upstream_process"]

_TEMPLATE = "tidegate_template"
_numbers = count(1)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    started = Services(tmp_path_factory.mktemp("services"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def template_database(services: Services) -> URL:
    """The server's own database's URL; the migrated template lies beside it."""
    server = make_url(services.database_url)
    _administer(server, f"create database {_TEMPLATE}")
    engine = make_engine(_beside(server, _TEMPLATE), pool_size=2)
    upgrade(engine)
    engine.dispose()
    return server


@pytest.fixture
def empty_database_url(services: Services) -> Iterator[str]:
    """A database without any schema."""
    server = make_url(services.database_url)
    name = f"empty_{next(_numbers)}"
    _administer(server, f"create database {name}")
    yield _beside(server, name)
    _administer(server, f"drop database {name} with (force)")


@pytest.fixture
def database_url(template_database: URL) -> Iterator[str]:
    """A fresh, migrated database, and an installation of its own in it."""
    name = f"test_{next(_numbers)}"
    _administer(template_database, f"create database {name} template {_TEMPLATE}")
    url = _beside(template_database, name)
    engine = make_engine(url, pool_size=1)
    with engine.begin() as connection:
        connection.execute(text("update installation set id = gen_random_uuid()"))
    engine.dispose()
    yield url
    _administer(template_database, f"drop database {name} with (force)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url, pool_size=20, application_name="tests")
    yield made
    made.dispose()


@pytest.fixture
def sessions(engine: Engine) -> Sessions:
    return make_sessions(engine)


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs")


@pytest.fixture
def redis_url(services: Services) -> str:
    """The session's Valkey, emptied."""
    client = redis.Redis.from_url(services.redis_url)
    client.flushall()
    client.close()
    return services.redis_url


def _administer(server: URL, statement: str) -> None:
    plain = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(statement.encode())


def _beside(server: URL, name: str) -> str:
    return server.set(database=name).render_as_string(hide_password=False)
