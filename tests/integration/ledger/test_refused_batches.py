"""A text that no embedder takes fails alone: those that were asked for with it are asked for in smaller calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pipeline.domain.call import Answer, Outcome, Skip, SkipReason, TryRecord
from pipeline.domain.errors import ChainExhausted
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage, UnitState
from pipeline.failover.kinds import FailureKind
from pipeline.failover.records import CallContext
from pipeline.store.schema import Embedding
from pipeline.store.session import Sessions
from tests.integration.ledger.harness import Harness, ScriptedEmbedder, exhausted
from tests.integration.ledger.test_leases import expire, pass_once

DONE, FAILED, PARKED = UnitState.DONE, UnitState.FAILED, UnitState.PARKED


@dataclass
class PickyEmbedder(ScriptedEmbedder):
    """Refuses every call in which one of the words stands, and skips nobody who has not refused the text before."""

    words: tuple[str, ...] = ()
    kind: FailureKind = FailureKind.INVALID_REQUEST
    busy_too: bool = False
    answered: list[str] = field(default_factory=list)
    contexts: list[CallContext] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], context: CallContext) -> Answer[list[list[float]]]:
        self.contexts.append(context)
        bad = [word for word in self.words if any(word in text for text in texts)]
        if "picky" in context.rejected_by:
            raise ChainExhausted("embedder", (), (Skip("picky", SkipReason.REJECTED),), None, False)
        if bad:
            self.calls.append(texts)
            record = TryRecord("picky", 0, Outcome.FAILED, kind=self.kind.value, message=f"no {bad[0]}", ttft_s=None)
            skipped = (Skip("other", SkipReason.COOLING),) if self.busy_too else ()
            raise ChainExhausted("embedder", (record,), skipped, 4e9 if self.busy_too else None, self.busy_too)
        answer = await super().embed(texts, context)
        self.answered += texts
        return answer


def paper(folder: Path, chunks: int, name: str = "paper") -> Path:
    path = folder / f"{name}.md"
    path.write_text("\n\n".join(f"# {name} {n}\n\nword{n:03} stands here by itself and alone." for n in range(chunks)))
    return path


def picky(harness: Harness, *numbers: int) -> PickyEmbedder:
    made = PickyEmbedder(words=tuple(f"word{n:03}" for n in numbers))
    harness.embedder = made
    return made


def vectors(harness: Harness) -> int:
    with harness.sessions() as session:
        return session.query(Embedding).count()


@pytest.mark.parametrize("bad", range(8))
def test_one_bad_text_among_eight_fails_alone_for_six_calls_more(harness: Harness, tmp_path: Path, bad: int) -> None:
    embedder = picky(harness, bad)
    (document,) = harness.enqueue(paper(tmp_path, 8), recipe=harness.recipe(on_page_failure="keep"))
    harness.drive()
    states = harness.states(document.run, Stage.EMBED)
    assert states == [FAILED if n == bad else DONE for n in range(8)]
    assert len(embedder.calls) == 7
    assert len(embedder.answered) == len(set(embedder.answered)) == vectors(harness) == 7
    guilty = harness.units(document.run, Stage.EMBED)[bad]
    assert (guilty.failure_kind, guilty.failure_detail) == ("invalid_request", f"picky: no word{bad:03}")
    assert guilty.rejected_by == ["picky"]
    assert len({context.call_id for context in embedder.contexts}) == 7
    assert embedder.contexts[-1].unit_id in {unit.id for unit in harness.units(document.run, Stage.EMBED)}
    run = harness.run(document.run)
    assert (run.state, run.incomplete) == (RunState.DONE, True)


def test_bad_texts_of_different_halves_fail_alone(harness: Harness, tmp_path: Path) -> None:
    picky(harness, 0, 2, 4)
    (document,) = harness.enqueue(paper(tmp_path, 8))
    harness.drive()
    states = harness.states(document.run, Stage.EMBED)
    assert [n for n, state in enumerate(states) if state == FAILED] == [0, 2, 4]
    run = harness.run(document.run)
    assert (run.state, run.failure_kind) == (RunState.FAILED, "invalid_request")


def test_who_takes_nothing_at_all_is_not_asked_for_each_text(harness: Harness, tmp_path: Path) -> None:
    embedder = picky(harness, *range(40))
    (document,) = harness.enqueue(paper(tmp_path, 40))
    harness.drive()
    assert set(harness.states(document.run, Stage.EMBED)) == {FAILED}
    # Seven for the first slice, one for each of the other four.
    assert len(embedder.calls) == 7 + 4
    detail = harness.units(document.run, Stage.EMBED)[0].failure_detail or ""
    assert "picky: no word" in detail
    assert detail.endswith("(asked for with 1 more, of which none was answered)")


@pytest.mark.parametrize("kind", [FailureKind.OVERLOADED, FailureKind.AUTH, FailureKind.QUOTA])
def test_a_busy_embedder_is_asked_once(harness: Harness, tmp_path: Path, kind: FailureKind) -> None:
    harness.embedder.always = exhausted("embedder", retry_at=4e9, kind=kind)
    (document,) = harness.enqueue(paper(tmp_path, 8))
    harness.drive()
    assert set(harness.states(document.run, Stage.EMBED)) == {PARKED}
    assert len(harness.embedder.calls) == 1


def test_a_bad_text_waits_alone_for_a_replica_that_is_busy(harness: Harness, tmp_path: Path) -> None:
    embedder = picky(harness, 3)
    embedder.busy_too = True
    (document,) = harness.enqueue(paper(tmp_path, 8))
    harness.drive()
    units = harness.units(document.run, Stage.EMBED)
    assert [unit.state for unit in units] == [PARKED if n == 3 else DONE for n in range(8)]
    assert [unit.rejected_by for unit in units] == [["picky"] if n == 3 else [] for n in range(8)]


def test_who_rejected_one_text_is_still_asked_for_the_others(
    harness: Harness, sessions: Sessions, tmp_path: Path
) -> None:
    """Also when they wake and are claimed together."""
    harness.embedder.always = exhausted("embedder", retry_at=4e9)
    (document,) = harness.enqueue(paper(tmp_path, 8), recipe=harness.recipe(on_page_failure="keep"))
    harness.drive()
    with sessions.begin() as session:
        unit = session.merge(harness.units(document.run, Stage.EMBED)[0])
        unit.rejected_by = ["picky"]
    embedder = picky(harness)
    assert document.run is not None
    harness.make_due(document.run)
    harness.wake()
    harness.drive()
    assert harness.states(document.run, Stage.EMBED) == [FAILED] + [DONE] * 7
    assert [len(texts) for texts in embedder.calls] == [7]


class Killed(BaseException):
    """The process ends here."""


class DiesAt(PickyEmbedder):
    """Kills its worker at a call."""

    dies_at = 4

    async def embed(self, texts: Sequence[str], context: CallContext) -> Answer[list[list[float]]]:
        if len(self.contexts) + 1 == self.dies_at:
            self.contexts.append(context)
            raise Killed
        return await super().embed(texts, context)


def test_a_worker_that_dies_between_loses_and_pays_nothing_twice(harness: Harness, tmp_path: Path) -> None:
    embedder = DiesAt(words=("word000",))
    harness.embedder = embedder
    (document,) = harness.enqueue(paper(tmp_path, 8), recipe=harness.recipe(on_page_failure="keep"))
    with pytest.raises(Killed):
        harness.drive()
    stored = vectors(harness)
    assert stored in (4, 6)
    del embedder.calls[:]
    expire(harness)
    assert pass_once(harness).expired == 8 - stored
    harness.drive()
    assert harness.states(document.run, Stage.EMBED) == [FAILED] + [DONE] * 7
    # Each alone, as of any that die.
    assert [len(texts) for texts in embedder.calls] == [1] * (8 - stored)
    assert vectors(harness) == 7


@dataclass
class LeavesOut(PickyEmbedder):
    """Makes no vector of the texts in which one of the words stands."""

    async def embed(self, texts: Sequence[str], context: CallContext) -> Answer[list[list[float]]]:
        if len(texts) == 1:
            return await super().embed(texts, context)
        answer = await ScriptedEmbedder.embed(self, texts, context)
        bad = [any(word in text for word in self.words) for text in texts]
        self.answered += [text for text, is_bad in zip(texts, bad, strict=True) if not is_bad]
        return replace(answer, value=[[] if is_bad else v for v, is_bad in zip(answer.value, bad, strict=True)])


def test_the_good_vectors_of_an_answer_are_stored_and_the_others_asked_for_alone(
    harness: Harness, tmp_path: Path
) -> None:
    embedder = LeavesOut(words=("word003", "word006"), kind=FailureKind.INVALID_OUTPUT)
    harness.embedder = embedder
    (document,) = harness.enqueue(paper(tmp_path, 8), recipe=harness.recipe(on_page_failure="keep"))
    harness.drive()
    assert harness.states(document.run, Stage.EMBED) == [FAILED if n in (3, 6) else DONE for n in range(8)]
    assert [len(texts) for texts in embedder.calls] == [8, 1, 1]
    assert len(embedder.answered) == vectors(harness) == 6
    assert harness.units(document.run, Stage.EMBED)[3].failure_detail == "picky: no word003"
