"""Fixtures for tests that need real services: one Postgres and one Valkey a session, started when first asked for.

Services that don't come up fail the tests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
import redis
import structlog
from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url

from pipeline.store.file_blobs import FileBlobs
from pipeline.store.migrate import upgrade
from pipeline.store.reader import Reads, make_reads
from pipeline.store.session import Sessions, make_engine, make_sessions
from tests.services import Services
from tests.upstream.fixtures import upstream, upstream_process

__all__ = ["upstream", "upstream_process"]

_numbers = count(1)
_TESTS = Path(__file__).parent
_LONGEST_FIRST = {folder: place for place, folder in enumerate(("acceptance", "fault", "fuzz", "integration"))}

# Emptying takes some 20 ms; a copy of a template database 100 to 300.
_EMPTY = """
    do $$
    declare
        found record;
    begin
        perform pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid();
        for found in select indexname from pg_indexes where indexname like 'hnsw\\_space\\_%' loop
            execute format('drop index %I', found.indexname);
        end loop;
        execute (
            select format('truncate %s restart identity cascade', string_agg(quote_ident(tablename), ', '))
            from pg_tables
            where schemaname = 'public' and tablename not in ('alembic_version', 'installation')
        );
        update installation set id = gen_random_uuid();
    end
    $$
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes is begun first; begun last, it would be waited for by itself while other cores are idle."""
    items.sort(key=lambda item: _LONGEST_FIRST.get(item.path.relative_to(_TESTS).parts[0], len(_LONGEST_FIRST)))


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What a test or the command it runs sets up for logging ends with it: another's lines would go elsewhere."""
    root = logging.getLogger()
    before, level = structlog.get_config() if structlog.is_configured() else None, root.level
    yield
    for handler in list(root.handlers):
        # pytest's own come and go with each phase of a test.
        if not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(False)
    if before is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**before)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    started = Services(tmp_path_factory.mktemp("services"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def migrated_database(services: Services) -> str:
    """The URL of the session's migrated database; tests take ``database_url``, which is emptied for each."""
    url = services.database_url
    engine = make_engine(url, pool_size=2)
    upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture
def empty_database_url(services: Services) -> Iterator[str]:
    """A database without any schema."""
    server = make_url(services.database_url)
    name = f"empty_{next(_numbers)}"
    _administer(server, f"create database {name}")
    yield _beside(server, name)
    _administer(server, f"drop database {name} with (force)")


@pytest.fixture
def database_url(migrated_database: str) -> str:
    """The migrated database, empty but for an installation of its own; whoever still holds a connection loses it."""
    with psycopg.connect(_plain(make_url(migrated_database)), autocommit=True) as connection:
        connection.execute(_EMPTY)
    return migrated_database


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url, pool_size=20, application_name="tests")
    yield made
    made.dispose()


@pytest.fixture
def sessions(engine: Engine) -> Sessions:
    return make_sessions(engine)


@pytest.fixture
def reads(database_url: str) -> Reads:
    """For what commands look at, as ``Container.reads`` has it."""
    return make_reads(database_url, application_name="tests")


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
    with psycopg.connect(_plain(server), autocommit=True) as connection:
        connection.execute(statement.encode())


def _plain(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _beside(server: URL, name: str) -> str:
    return server.set(database=name).render_as_string(hide_password=False)
