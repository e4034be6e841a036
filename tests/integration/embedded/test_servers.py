from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
import sqlalchemy as sa
from kombu import Connection

from pipeline.domain.errors import ServiceUnavailable
from tests.services import Services
from worker.embedded import EmbeddedPostgres, EmbeddedValkey, Home, ProcessId, broker_url
from worker.embedded.process import command_line


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tidegate-test-"))
    yield folder
    Home(folder).remove_stand_in()
    shutil.rmtree(folder)


@pytest.fixture
def postgres(home: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(home, durable=False)
    server.start()
    yield server
    server.stop()


def _conninfo(server: EmbeddedPostgres) -> str:
    return server.url.replace("postgresql+psycopg://", "postgresql://")


def test_postgres_is_reachable_by_sqlalchemy_and_has_vectors(postgres: EmbeddedPostgres) -> None:
    engine = sa.create_engine(postgres.url)
    with engine.begin() as connection:
        connection.execute(sa.text("create extension vector"))
        distance = connection.execute(sa.text("select '[1,2]'::vector <-> '[1,4]'::vector")).scalar_one()
    engine.dispose()
    assert distance == 2.0


def test_postgres_syncs_to_disk_unless_told_otherwise(home: Path) -> None:
    server = EmbeddedPostgres(home)
    server.start()
    with psycopg.connect(_conninfo(server)) as connection:
        assert connection.execute("show fsync").fetchone() == ("on",)
    server.stop()


def test_postgres_listens_on_no_port_and_wants_its_password(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(_conninfo(postgres)) as connection:
        assert connection.execute("show listen_addresses").fetchone() == ("",)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(_conninfo(postgres).replace(postgres.home.secret("postgres.password"), "guess"))


def test_postgres_never_runs_as_root(postgres: EmbeddedPostgres) -> None:
    assert postgres.pid is not None
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


def test_a_killed_postgres_comes_back_with_its_data_while_a_backend_was_busy(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(_conninfo(postgres), autocommit=True) as connection:
        connection.execute("create table kept (n int)")
        connection.execute("insert into kept values (42)")
    busy = psycopg.connect(_conninfo(postgres), autocommit=True)
    backend = ProcessId.of(busy.info.backend_pid)
    assert backend is not None
    # Held in a computation, it does not notice that its postmaster is gone.
    busy.pgconn.send_query(b"select count(*) from generate_series(1, 200000000)")
    first = postgres.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    killed = ProcessId.of(first)
    assert killed is None or killed.wait_gone(10)

    postgres.start()

    assert postgres.pid not in (None, first)
    assert not backend.is_alive()
    busy.close()
    with psycopg.connect(_conninfo(postgres)) as connection:
        assert connection.execute("select n from kept").fetchone() == (42,)


def test_a_pid_file_that_names_an_unrelated_process_is_no_obstacle(postgres: EmbeddedPostgres) -> None:
    pid_file = postgres.data / "postmaster.pid"
    text = pid_file.read_text()
    postgres.stop()
    # A process of the same user with the recorded number, as after a container's restart.
    stranger = subprocess.Popen(postgres.account.command(["sleep", "60"], signal.SIGKILL))
    try:
        pid_file.write_text(text.replace(text.split("\n", 1)[0], str(stranger.pid), 1))
        postgres.account.give(pid_file)
        postgres.start()
        assert postgres.is_ready()
        assert stranger.poll() is None, "it was left alone"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_half_made_data_folder_is_made_anew(home: Path) -> None:
    (home / "postgres.new").mkdir()
    (home / "postgres.new" / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(home, durable=False)
    server.start()
    assert server.is_ready()
    server.stop()


def test_data_of_another_version_are_refused(home: Path) -> None:
    (home / "postgres").mkdir()
    (home / "postgres" / "PG_VERSION").write_text("15\n")
    with pytest.raises(ServiceUnavailable, match="PostgreSQL 15"):
        EmbeddedPostgres(home).start()


def test_a_folder_that_is_not_postgres_is_refused_and_left_alone(home: Path) -> None:
    (home / "postgres").mkdir()
    (home / "postgres" / "letter.txt").write_text("dear")
    with pytest.raises(ServiceUnavailable, match="holds no Postgres data"):
        EmbeddedPostgres(home).start()
    assert (home / "postgres" / "letter.txt").read_text() == "dear"


def test_a_second_start_on_the_same_home_is_refused(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(ServiceUnavailable, match="already runs") as caught:
        EmbeddedPostgres(postgres.home.path).start()
    assert "tidegate down" in caught.value.remedy
    assert postgres.is_ready()


def test_a_start_that_fails_says_what_postgres_said(home: Path) -> None:
    server = EmbeddedPostgres(home, durable=False)
    server.start()
    server.stop()
    with (server.data / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = on\n")
    with pytest.raises(ServiceUnavailable, match="no_such_setting"):
        server.start()


def test_a_long_and_odd_home_works(home: Path) -> None:
    odd = home / ("long " * 20) / "a,b"
    services = Services(odd)
    services.start()
    try:
        with psycopg.connect(_conninfo(services.postgres)) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        client = redis.Redis.from_url(services.redis_url)
        assert client.ping()
        client.close()
    finally:
        services.stop()


def test_valkey_keeps_its_data_over_a_restart_and_opens_no_port(home: Path) -> None:
    server = EmbeddedValkey(home)
    server.start()
    client = redis.Redis.from_url(server.url, decode_responses=True)
    client.set("window", "12")
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert client.config_get("port") == {"port": "0"}
    client.close()
    server.stop()
    server.start()
    client = redis.Redis.from_url(server.url, decode_responses=True)
    assert client.get("window") == "12"
    client.close()
    server.stop()


def test_valkey_carries_celerys_messages_over_its_socket(home: Path) -> None:
    server = EmbeddedValkey(home, durable=False)
    server.start()
    try:
        with Connection(broker_url(server.url)) as connection:
            queue = connection.SimpleQueue("parse")
            queue.put({"run": 1})
            message = queue.get(timeout=5)
            message.ack()
            assert message.payload == {"run": 1}
            queue.close()
    finally:
        server.stop()


def test_valkey_data_that_cannot_be_read_are_put_aside(home: Path) -> None:
    server = EmbeddedValkey(home)
    server.start()
    server.stop()
    for file in (server.data / "appendonlydir").glob("*.manifest"):
        file.write_text("nonsense\n")
    server.start()
    assert server.is_ready()
    assert (home / "redis.unreadable").is_dir()
    server.stop()


def test_services_for_tests_start_and_leave_nothing() -> None:
    services = Services()
    services.start()
    pid = services.postgres.pid
    assert pid is not None
    assert any(word.startswith("cluster_name=tidegate-") for word in command_line(pid))
    folder = services.postgres.home.path
    services.stop()
    assert ProcessId.of(pid) is None
    assert not folder.exists()
