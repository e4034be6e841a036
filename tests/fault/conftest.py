from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fault.member import Setup
from tests.fault.servers import Servers
from tests.fault.stack import Stack
from tests.upstream import UpstreamProcess
from tests.upstream.fixtures import ProcessFactory, upstream_process

__all__ = ["upstream_process"]


@pytest.fixture
def primary(upstream_process: ProcessFactory) -> UpstreamProcess:
    return upstream_process()


@pytest.fixture
def fallback(upstream_process: ProcessFactory) -> UpstreamProcess:
    return upstream_process()


@pytest.fixture
def setup(redis_url: str, primary: UpstreamProcess, fallback: UpstreamProcess) -> Callable[..., Setup]:
    """A fleet's setup over an empty registry, with the settings that a test gives."""

    def make(**settings: Any) -> Setup:
        return Setup(redis_url, primary.base_url, fallback.base_url, **settings)

    return make


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """A Postgres and a Valkey of the module's own, to be broken."""
    made = Servers()
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def models() -> Iterator[UpstreamProcess]:
    with UpstreamProcess() as process:
        yield process


@pytest.fixture
def make_stack(servers: Servers, models: UpstreamProcess, tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Makes stacks with a database of their own and settings of the test's own; they end with the test."""
    with ExitStack() as closing:

        def make(**settings: Any) -> Stack:
            folder = tmp_path / f"stack-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            models.reset()
            servers.flush_redis()
            made = Stack(servers, models, folder, **settings)
            closing.callback(made.close)
            return made

        yield make


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Stack:
    """A stack in which nothing runs yet."""
    return make_stack()
