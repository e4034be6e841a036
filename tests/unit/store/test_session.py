"""An address is read as SQLAlchemy reads it, Postgres' errors become ours in one table, and JSON is made storable."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy.engine import make_url

from pipeline.domain.errors import ConfigError, ServiceUnavailable
from pipeline.store.postgres import NOT_THE_SERVICE, UNAVAILABLE, read_address, translated
from pipeline.store.session import make_engine, safe_json


def _subclasses(root: type[psycopg.Error]) -> Iterator[type[psycopg.Error]]:
    for child in root.__subclasses__():
        yield child
        yield from _subclasses(child)


def test_every_operational_error_of_the_driver_has_been_decided_on() -> None:
    undecided = {
        f"{error.sqlstate} {error.__name__}"
        for error in _subclasses(psycopg.OperationalError)
        if error.sqlstate
        and error.sqlstate not in UNAVAILABLE
        and error.sqlstate[:2] not in UNAVAILABLE
        and error.sqlstate[:2] not in NOT_THE_SERVICE
    }
    assert undecided == set()


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.UniqueViolation("x"),
        psycopg.errors.DeadlockDetected("x"),
        psycopg.ProgrammingError("x"),
        ValueError(),
    ],
)
def test_what_says_nothing_about_the_service_passes(error: Exception) -> None:
    assert translated(error, "db") is None


def test_a_lost_connection_is_a_missing_service() -> None:
    error = translated(psycopg.OperationalError("server closed the connection\nunexpectedly"), "db:5432/x")
    assert isinstance(error, ServiceUnavailable)
    assert "Postgres at db:5432/x does not answer: server closed the connection" in str(error)
    assert "tidegate up" in error.remedy


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("starting up", "is starting"),
        ("not yet accepting connections", "is starting"),
        ("in recovery mode", "is starting"),
        ("shutting down", "is shutting down"),
    ],
)
def test_a_server_that_is_on_its_way_is_not_called_silent(said: str, fact: str) -> None:
    words = f'connection to server at "db", port 5432 failed: FATAL:  the database system is {said}'
    found = translated(psycopg.OperationalError(words), "db:5432/x")
    assert isinstance(found, ServiceUnavailable)
    assert found.fact.startswith(f"Postgres at db:5432/x {fact}: ")
    assert (found.remedy == "try again in a moment") is (fact == "is starting")


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), "statement_timeout"),
        (psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"), "lock_timeout"),
    ],
)
def test_what_the_server_had_no_more_patience_for_is_worth_another_try(error: psycopg.Error, setting: str) -> None:
    found = translated(error, "db:5432/x")
    assert isinstance(found, ServiceUnavailable)
    assert str(error) in found.fact
    assert setting in found.remedy


def test_an_unreachable_server_is_named_without_its_password() -> None:
    engine = make_engine("postgres://someone:sekret@127.0.0.1:1/base", connect_timeout_s=2)
    with pytest.raises(ServiceUnavailable) as caught:
        engine.connect()
    assert "127.0.0.1:1/base" in str(caught.value)
    assert "sekret" not in str(caught.value)
    assert "sekret" not in repr(engine)
    engine.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:pass@host:5433/base",
        "postgres://user@host/base",
        "postgresql+psycopg://user:p%40ss%2Fw%20rd@/base?host=%2Frun%2Fpg&port=5432",
        "postgresql://us%3Aer:a/b?c#d:e@host/ba%20se",
        "postgresql://:only@host",
        "postgresql://[::1]:5432/base?sslmode=require&connect_timeout=3",
        "postgresql:///base?host=a,b&port=1,2",
        "postgresql:///base?host=a:1&host=b:2",
        "postgresql:///base?host=a&host=b:2",
        "postgresql:///base?host=a.example:6432",
        "postgresql:///base?host=/run/with:colon",
        "postgresql:///base?passfile=/x&empty=",
        "postgresql://",
    ],
)
def test_an_address_has_the_parts_that_sqlalchemy_finds(url: str) -> None:
    plain = make_url(url.replace("postgres://", "postgresql://"))
    _, expected = plain.get_dialect()().create_connect_args(plain.set(drivername="postgresql+psycopg"))
    assert read_address(url).arguments == {name: str(value) for name, value in expected.items()}


def test_a_database_is_named_without_who_asks() -> None:
    assert read_address("postgresql://me:sekret@host:5433/base").name == "host:5433/base"
    assert read_address("postgresql://me:sekret@/base?host=/run/pg&port=1").name == "/run/pg:1/base"
    assert read_address("postgresql:///base").name == "the local socket/base"
    assert "sekret" not in repr(read_address("postgresql://me:sekret@host/base"))


@pytest.mark.parametrize("url", ["mysql://u:sekret@h/d", "sekret", "postgresql://u:sekret@h:port/d"])
def test_a_bad_url_is_a_configuration_error_that_tells_no_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_engine(url)
    assert "TIDEGATE_DATABASE_URL" in caught.value.fact
    assert "sekret" not in str(caught.value)


def test_json_is_made_storable_keys_included() -> None:
    assert safe_json({"a\x00": ["\ud800", 1.5, float("nan")], "n": None}) == {"a": ["\ufffd", 1.5, None], "n": None}


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        ("sorry, too many clients already", "is out of resources"),
        ("remaining connection slots are reserved for roles with the SUPERUSER attribute", "is out of resources"),
        ('too many connections for role "tidegate"', "is out of resources"),
        ('password authentication failed for user "me"', "refused the login"),
        ('no pg_hba.conf entry for host "10.0.0.7", user "me"', "refused the login"),
        ('role "me" does not exist', "refused the login"),
        ('database "tides" does not exist', "has no such database"),
        ("the database system is starting up", "is starting"),
        ("the database system is shutting down", "is shutting down"),
    ],
)
def test_a_login_that_is_refused_has_no_code_and_is_told_by_its_words(words: str, fact: str) -> None:
    error = psycopg.OperationalError(
        f'connection failed: connection to server at "db", port 5432 failed: FATAL:  {words}'
    )
    found = translated(error, "db:5432/x")
    assert isinstance(found, ServiceUnavailable)
    assert found.fact.startswith(f"Postgres at db:5432/x {fact}: ")
