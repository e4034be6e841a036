"""Everyone locks a run before its units: who came second waits, and nobody is ended for a deadlock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import select, text

from pipeline.store.parked import wake_units
from pipeline.store.runs import lock_run, make_due
from pipeline.store.schema import Unit
from pipeline.store.session import Sessions
from tests.integration.seed import Seed

_WAIT_S = 20.0
_WAITING = text("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")


def test_a_parked_run_is_made_due_while_its_units_are_woken(sessions: Sessions) -> None:
    seed = Seed(sessions)
    run = seed.run(seed.document("/a.pdf"), "parked")
    seed.units(run, "describe", [1], state="parked")

    def ask_for_another_look() -> None:
        with sessions.begin() as session:
            make_due(session, [run])

    with ThreadPoolExecutor(1) as pool:
        with sessions.begin() as waking:
            assert lock_run(waking, run) is not None
            other, pause = pool.submit(ask_for_another_look), threading.Event()
            while not _waiting(sessions):
                assert not other.done()
                pause.wait(0.01)
            assert wake_units(waking, {run: waking.scalars(select(Unit.id)).all()}) == [run]
        other.result(_WAIT_S)


def _waiting(sessions: Sessions) -> int:
    with sessions() as session:
        return int(session.execute(_WAITING).scalar_one())
