from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from worker.embedded import EmbeddedValkey


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[str]:
    """A Valkey of this folder's own, since these tests freeze, flush and restart it; its URL."""
    home = Path(tempfile.mkdtemp(prefix="tidegate-registry-"))
    server = EmbeddedValkey(home, durable=False)
    server.start()
    yield server.url
    server.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def valkey_url(valkey_server: str) -> str:
    """The server's URL; it is empty."""
    with redis.Redis.from_url(valkey_server) as client:
        client.flushall()
        client.script_flush()
    return valkey_server
