"""The awkward real files, end to end: each ends as it should, with its text where search and ``show`` find it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.corpus import Outcome, expected, misses, stack, take_in

# Their pages are read by OCR for a minute and more: `make corpus` takes in these too, and integration tests read the
# same pages with the OCR alone.
_LONG = {
    "borderless-table.pdf",
    "four-orientations.pdf",
    "indirect-rotation.pdf",
    "rotations.pdf",
    "text-rotated-90.pdf",
}
# How long a file took is for `make corpus`, which has the machine for itself.
_RIGHT = {
    name: {what: value for what, value in right.items() if what != "seconds"}
    for name, right in expected().items()
    if name not in _LONG
}

pytestmark = pytest.mark.skipif(not _RIGHT, reason="the corpus is not here")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    with stack(tmp_path_factory.mktemp("corpus")) as tidegate:
        yield dict(take_in(tidegate, sorted(_RIGHT)))


@pytest.mark.parametrize("name", sorted(_RIGHT))
def test_a_corpus_file_ends_as_it_should(name: str, outcomes: dict[str, Outcome]) -> None:
    assert misses(outcomes[name], _RIGHT[name]) == []
