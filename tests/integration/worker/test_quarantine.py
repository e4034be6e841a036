"""How a worker keeps its quarantine; ``tests/fault/test_poison.py`` has the real one, and its deaths."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from pipeline.domain.unit import Queue, Stage
from pipeline.endings import UnitPolicy
from pipeline.reconcile import TakenBack
from pipeline.store.session import Sessions
from tests.fault.stack import wait_for
from tests.integration.seed import Seed
from worker.passes import PassReport
from worker.quarantine import Quarantine

CHILD = Path(__file__).with_name("scripted_quarantine.py")


class Kept:
    """A quarantine with a scripted child, and what it told."""

    def __init__(self, sessions: Sessions, act: str, *, idle_s: float) -> None:
        self.sessions = sessions
        self.answered: list[Stage | None] = []
        self.taken: list[TakenBack] = []
        self.told: list[PassReport] = []
        self.stopping = threading.Event()
        self.quarantine = Quarantine(
            sessions,
            [Queue.DESCRIBE],
            UnitPolicy(lease_s=1, drain_s=0.1),
            self.stopping,
            on_work=self.answered.append,
            on_taken_back=self.taken.append,
            tell=self.told.append,
            argv=[sys.executable, str(CHILD), act],
            idle_s=idle_s,
        )

    @property
    def pid(self) -> int | None:
        """Of the child that it keeps now."""
        child = self.quarantine._child
        return None if child is None else child.link.pid


@pytest.fixture
def keep(sessions: Sessions) -> Iterator[Callable[..., Kept]]:
    with ExitStack() as closing:

        def make(act: str, *, idle_s: float = 60.0) -> Kept:
            kept = Kept(sessions, act, idle_s=idle_s)
            closing.enter_context(kept.quarantine.running())
            return kept

        yield make


def suspects(sessions: Sessions, stage: str, ordinals: list[int]) -> None:
    seed = Seed(sessions)
    run = seed.run(seed.document(f"/{stage}"), "running")
    seed.units(run, stage, ordinals, "pending", lost_leases=1)


def test_one_child_takes_the_suspects_of_its_queues_one_after_the_other_and_ends_with_its_worker(
    sessions: Sessions, keep: Callable[..., Kept]
) -> None:
    suspects(sessions, "describe", [1, 2, 3])
    suspects(sessions, "format", [1])
    kept = keep("answers")
    assert wait_for(lambda: len(kept.answered) == 3)
    pid = kept.pid
    assert pid is not None
    assert kept.answered == [Stage.DESCRIBE] * 3
    assert [report.outcome.split(", pages ")[1][0] for report in kept.told] == ["1", "2", "3"]
    assert {report.name for report in kept.told} == {"tidegate.describe"}
    with sessions() as session:
        waiting = session.execute(text("select stage from unit where dispatched_at is null")).scalars().all()
    assert waiting == ["format"]

    kept.stopping.set()
    assert wait_for(lambda: kept.pid is None)
    assert not Path(f"/proc/{pid}").exists()


def test_a_child_without_work_is_ended_and_the_next_suspect_gets_a_new_one(
    sessions: Sessions, keep: Callable[..., Kept]
) -> None:
    suspects(sessions, "describe", [1])
    kept = keep("answers", idle_s=0.0)
    assert wait_for(lambda: len(kept.answered) == 1)
    assert wait_for(lambda: kept.pid is None)
    with sessions.begin() as session:
        session.execute(text("update unit set dispatched_at = null"))
    assert wait_for(lambda: len(kept.answered) == 2)


def test_no_child_is_started_while_there_is_no_suspect_of_its_queues(
    sessions: Sessions, keep: Callable[..., Kept]
) -> None:
    seed = Seed(sessions)
    seed.units(seed.run(seed.document("/a"), "running"), "describe", [1], "pending")
    suspects(sessions, "format", [1])
    kept = keep("answers")
    looked = threading.Event()
    # A look is over when the next one begins: three begun are two without a child.
    looks = iter(range(3))
    is_wanted = kept.quarantine._is_wanted

    def wanted() -> bool:
        if next(looks, None) is None:
            looked.set()
        return is_wanted()

    kept.quarantine._is_wanted = wanted  # type: ignore[method-assign]
    assert looked.wait(60)
    assert kept.pid is None
    suspects(sessions, "describe", [1])
    assert wait_for(lambda: len(kept.answered) == 1)


def test_a_suspect_whose_child_ended_without_a_lease_waits_no_longer_than_for_the_next_child(
    sessions: Sessions, keep: Callable[..., Kept]
) -> None:
    suspects(sessions, "describe", [1])
    kept = keep("ends")
    assert wait_for(lambda: len(kept.taken) >= 2)
    assert [taken.units for taken in kept.taken[:2]] == [0, 0], "nobody held it, so nobody lost it"
    assert all(report.error is not None for report in kept.told)
    with sessions() as session:
        assert session.execute(text("select lost_leases from unit")).scalar_one() == 1


def test_a_child_that_does_not_start_is_tried_again_later_and_takes_no_suspect(
    sessions: Sessions, keep: Callable[..., Kept]
) -> None:
    suspects(sessions, "describe", [1])
    with capture_logs() as said:
        kept = keep("fails")
        assert wait_for(lambda: any(line.get("reason") == "exit code 3" for line in said))
        began = time.monotonic()
    assert kept.quarantine._not_before > began
    with sessions() as session:
        assert session.execute(text("select count(*) from unit where dispatched_at is null")).scalar_one() == 1
