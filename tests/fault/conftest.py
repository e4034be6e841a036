from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fault.member import Setup
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
