from uuid import UUID

import pytest

from pipeline.domain.unit import Stage
from pipeline.store.window import Slice
from worker.publish import ordinals_text, slice_id, slice_text

_DOCUMENT = UUID("7f3a90bc-0000-4000-8000-000000000000")


def _slice(stage: Stage, *ordinals: int) -> Slice:
    return Slice(run_id=12, document_id=_DOCUMENT, stage=stage, ordinals=ordinals, wake=17)


@pytest.mark.parametrize(
    ("ordinals", "text"),
    [((0,), "0"), ((3, 4, 5), "3-5"), ((1, 3, 4, 9), "1,3-4,9"), ((), "")],
)
def test_ordinals_are_drawn_together(ordinals: tuple[int, ...], text: str) -> None:
    assert ordinals_text(ordinals) == text


def test_a_task_id_says_stage_document_ordinals_and_wake() -> None:
    assert slice_id(_slice(Stage.DESCRIBE, 3, 4, 5)) == "describe:7f3a90bc:3-5:17"


def test_arguments_are_written_for_people() -> None:
    assert slice_text(_slice(Stage.FORMAT, 1, 2)) == "document 7f3a90bc, run 12, pages 1-2"
    assert slice_text(_slice(Stage.EMBED, 8)) == "document 7f3a90bc, run 12, chunks 8"
    assert slice_text(_slice(Stage.PARSE, 0)) == "document 7f3a90bc, run 12"
