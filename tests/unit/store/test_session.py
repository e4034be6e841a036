"""Postgres' errors become ours in one table, and what is stored is safe text."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pipeline.domain.errors import ConfigError, ServiceUnavailable
from pipeline.store.session import NOT_THE_SERVICE, UNAVAILABLE, make_engine, safe_json, translated


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


def test_an_unreachable_server_is_named_without_its_password() -> None:
    engine = make_engine("postgres://someone:sekret@127.0.0.1:1/base", connect_timeout_s=2)
    with pytest.raises(ServiceUnavailable) as caught:
        engine.connect()
    assert "127.0.0.1:1/base" in str(caught.value)
    assert "sekret" not in str(caught.value)
    assert "sekret" not in repr(engine)
    engine.dispose()


@pytest.mark.parametrize("url", ["mysql://u:sekret@h/d", "sekret", "postgresql://u:sekret@h:port/d"])
def test_a_bad_url_is_a_configuration_error_that_tells_no_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_engine(url)
    assert "TIDEGATE_DATABASE_URL" in caught.value.fact
    assert "sekret" not in str(caught.value)


def test_json_is_made_storable_keys_included() -> None:
    assert safe_json({"a\x00": ["\ud800", 1.5, float("nan")], "n": None}) == {"a": ["\ufffd", 1.5, None], "n": None}
