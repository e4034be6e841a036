"""What ``tidegate doctor`` says of services that answer and take no writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from sqlalchemy import text
from sqlalchemy.engine import make_url

from pipeline.store.session import Sessions
from pipeline.store.spaces import ensure_space
from tests.integration.seed import Seed
from tests.integration.worker.conftest import Fleet
from tests.services import replica_of_nobody


def _found(check: str) -> dict[str, str]:
    """One finding of ``tidegate doctor`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "worker", "doctor", "--json"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    (found,) = (one for one in json.loads(done.stdout)["checks"] if one["check"] == check)
    assert found["state"] == "ok" or done.returncode == 1
    return dict(found)


@contextmanager
def _full(redis_url: str) -> Iterator[None]:
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextmanager
def _read_only(sessions: Sessions, database_url: str) -> Iterator[None]:
    setting = f"alter database {make_url(database_url).database} set default_transaction_read_only"
    with sessions.begin() as session:
        session.execute(text(f"{setting} = on"))
    try:
        yield
    finally:
        with sessions.begin() as session:
            session.execute(text("set transaction read write"))
            session.execute(text(f"{setting} = off"))


def test_a_redis_that_is_full_is_no_healthy_one(fleet: Fleet, redis_url: str) -> None:
    with _full(redis_url):
        found = _found("redis")
    assert found["state"] == "failed"
    assert "takes no writes: command not allowed when used memory" in found["detail"]
    assert "maxmemory" in found["remedy"]
    assert _found("redis")["state"] == "ok"


def test_a_postgres_that_is_read_only_is_no_healthy_one(fleet: Fleet, sessions: Sessions, database_url: str) -> None:
    with _read_only(sessions, database_url):
        found = _found("postgres")
    assert (found["state"], found["detail"]) == ("failed", "it is read-only")
    assert "TIDEGATE_DATABASE_URL" in found["remedy"]


def test_a_reset_that_redis_refuses_says_what_it_said(fleet: Fleet, redis_url: str) -> None:
    def targets(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-P", "-m", "worker", "targets", *words, "--json"]
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=120)
        assert done.returncode == (4 if words else 0)
        return dict(json.loads(done.stdout))

    key = targets()["targets"][0]["target"]
    with replica_of_nobody(redis_url):
        error = targets("reset", key)["error"]
    assert "refuses to be asked: You can't write against a read only replica" in error["message"]
    assert "does not answer" not in error["message"]
    assert "tidegate doctor" in error["remedy"]


def test_collections_of_one_model_are_named_together(fleet: Fleet, sessions: Sessions) -> None:
    space = ensure_space(sessions, "local/wordllama", 256)
    seed = Seed(sessions)
    for collection in ("land", "sea"):
        run = seed.run(seed.document(f"/{collection}", collection=collection), "done", live=True)
        seed.chunk(run, 1, "tide", [0.0] * 256, space)
    assert _found("spaces")["detail"] == "land, sea by local/wordllama (256)"
