"""The awkward real files, end to end: each ends as it should, with its text where search and ``show`` find it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.corpus import Outcome, expected, misses, stack, take_in

_RIGHT = expected()

pytestmark = pytest.mark.skipif(not _RIGHT, reason="the corpus is not here")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    with stack(tmp_path_factory.mktemp("corpus")) as tidegate:
        yield dict(take_in(tidegate, sorted(_RIGHT)))


@pytest.mark.parametrize("name", sorted(_RIGHT))
def test_a_corpus_file_ends_as_it_should(name: str, outcomes: dict[str, Outcome]) -> None:
    assert misses(outcomes[name], _RIGHT[name]) == []
