"""A unit remembers who rejected its input, however it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.domain.call import Answer, Outcome, TryRecord
from pipeline.domain.errors import ChainExhausted
from pipeline.domain.unit import Stage, UnitState
from pipeline.failover.kinds import FailureKind
from tests.integration.ledger.harness import Harness, ScriptedChat


def bad(target: str, kind: FailureKind) -> TryRecord:
    return TryRecord(target, 0, Outcome.FAILED, kind=kind.value, message="no", ttft_s=0.1)


class SecondBest(ScriptedChat):
    """Answers after the first targets have failed in the given ways."""

    before_it: tuple[TryRecord, ...] = ()

    async def chat(self, *asked: Any, **more: Any) -> Answer[Any]:
        answer = await super().chat(*asked, **more)
        return Answer(answer.value, answer.target, 1, True, (*self.before_it, *answer.tries))


def second_best(harness: Harness, *before_it: TryRecord) -> None:
    made = SecondBest(harness.formatter.role, harness.formatter.answer)
    made.before_it = before_it
    harness.formatter = made


def rejected_by(harness: Harness, run: int | None) -> list[list[str]]:
    return [sorted(unit.rejected_by) for unit in harness.units(run, Stage.FORMAT)]


def test_who_rejected_what_another_took_is_remembered_and_who_was_only_busy_is_not(
    harness: Harness, note: Path
) -> None:
    second_best(harness, bad("picky", FailureKind.INVALID_OUTPUT), bad("busy", FailureKind.OVERLOADED))
    (document,) = harness.enqueue(note)
    harness.drive()
    assert harness.states(document.run, Stage.FORMAT) == [UnitState.DONE]
    assert rejected_by(harness, document.run) == [["picky"]]


@pytest.mark.parametrize("retryable", [True, False])
def test_who_rejected_is_remembered_where_nobody_answered(harness: Harness, note: Path, *, retryable: bool) -> None:
    tries = (bad("picky", FailureKind.INVALID_OUTPUT), bad("strict", FailureKind.CONTENT_POLICY))
    harness.formatter.always = ChainExhausted("vlm_formatter", tries, (), None, retryable)
    (document,) = harness.enqueue(note)
    harness.drive()
    assert harness.states(document.run, Stage.FORMAT) == [UnitState.PARKED if retryable else UnitState.FAILED]
    assert rejected_by(harness, document.run) == [["picky", "strict"]]
