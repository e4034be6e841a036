"""A reader answers the same over a connection of its own and within a session, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store.reader import Reader, Reads, make_reads, reader_of
from pipeline.store.session import Sessions


@pytest.fixture(params=["connection", "session"])
def either(request: pytest.FixtureRequest, reads: Reads, sessions: Sessions) -> Reads:
    @contextmanager
    def within() -> Iterator[Reader]:
        with sessions() as session:
            yield reader_of(session)

    return reads if request.param == "connection" else within


def test_rows_have_their_columns_as_attributes_and_as_a_tuple(either: Reads) -> None:
    statement = "select name, n from unnest(cast(%(names)s as text[])) with ordinality as one (name, n) order by n"
    with either() as reader:
        rows = reader.rows(statement, {"names": ["a\x00", "b\udc80"]})
    assert [row.name for row in rows] == ["a", "b\ufffd"], "text is made storable on its way"
    assert [tuple(row) for row in rows] == [("a", 1), ("b\ufffd", 2)]
    assert rows[0]._asdict() == {"name": "a", "n": 1}


def test_times_are_utc_and_json_is_read(either: Reads) -> None:
    with either() as reader:
        (row,) = reader.rows("""select now() as now, '[{"a": 1}]'::jsonb as parts, null::text as nothing""")
    assert (row.now.utcoffset().total_seconds(), row.parts, row.nothing) == (0, [{"a": 1}], None)


def test_what_is_wrong_with_a_statement_is_no_missing_service(reads: Reads) -> None:
    with reads() as reader, pytest.raises(psycopg.errors.DivisionByZero):
        reader.rows("select 1 / 0 as n")


def test_a_connection_of_its_own_can_not_write(reads: Reads) -> None:
    with reads() as reader, pytest.raises(ServiceUnavailable, match="read-only"):
        reader.rows("delete from run returning id")


def test_a_server_that_is_away_or_goes_away_is_a_missing_service(reads: Reads) -> None:
    with (
        pytest.raises(ServiceUnavailable, match=r"127\.0\.0\.1:1/base") as caught,
        make_reads("postgresql://someone:sekret@127.0.0.1:1/base", connect_timeout_s=2)(),
    ):
        pass
    assert "sekret" not in str(caught.value)
    with reads() as reader, pytest.raises(ServiceUnavailable, match="Postgres at"):
        reader.rows("select pg_terminate_backend(pg_backend_pid()) as ended")
