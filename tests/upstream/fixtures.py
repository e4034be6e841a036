"""Pytest fixtures over the fakes; a conftest imports those that it wants."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.upstream.fake import FakeUpstream
from tests.upstream.remote import UpstreamProcess

UpstreamFactory = Callable[..., FakeUpstream]
ProcessFactory = Callable[..., UpstreamProcess]


@pytest.fixture
def upstream() -> Iterator[UpstreamFactory]:
    """Make hosts: `primary, good = upstream(), upstream(dim=1024)`; all end with the test, and none needs its loop."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(FakeUpstream(**options))


@pytest.fixture
def upstream_process() -> Iterator[ProcessFactory]:
    """Make hosts in processes of their own."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(UpstreamProcess(**options))
