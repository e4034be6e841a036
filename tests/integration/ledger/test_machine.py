"""The ledger under every order of events: two workers, a reconciler and people, one transaction at a time.

Rules start real use cases and let them go on step by step; between any two transactions something else may happen.
After each one ``watcher.py`` checks all that must always hold, and in the end everything is driven to rest.

At length: ``make machine``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from sqlalchemy import Engine

from pipeline.adapters.watch import ChainRoom
from pipeline.cancel import cancel
from pipeline.delete import delete
from pipeline.documents.sniff import sniff
from pipeline.domain.document import Limits
from pipeline.domain.unit import MODEL_STAGES, Stage
from pipeline.enqueue import enqueue
from pipeline.reconcile import take_back
from pipeline.requeue import Wanted, requeue
from pipeline.store.blobs import FileBlobs
from pipeline.store.parked import make_parked_due
from pipeline.store.units import renew_leases
from tests.integration.ledger.actors import Order, Place
from tests.integration.ledger.fleet import UNIT, Fleet, Work
from tests.integration.ledger.world import World

_PATHS = st.sampled_from(("a", "b", "c"))
_ACTS = st.sampled_from(
    ("ok",) * 6
    + ("busy",) * 2
    + ("degraded", "paid", "rejected", "bug", "cancelled", "permit", "away", "killed", "died")
)
_ORDERS = st.sampled_from((Order.GO,) * 12 + (Order.KILL, Order.AWAY, Order.UNHEARD))
_PICKS = st.integers(0, 7)
_FAR_OFF = 4_000_000_000.0
_REQUEUES = st.sampled_from(
    (
        Wanted(),
        Wanted(failed=True),
        Wanted(parked=True),
        Wanted(degraded=True),
        *(Wanted(from_stage=stage) for stage in (Stage.PARSE, Stage.DESCRIBE, Stage.RETRIEVE, Stage.EMBED)),
    )
)
_CLOSED = st.sampled_from((ChainRoom(0, None), ChainRoom(0, 1.0), ChainRoom(0, _FAR_OFF), ChainRoom(1)))


def _on_page_failure(keep: bool) -> str:
    return "keep" if keep else "fail"


class Ledger(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.fleet = Fleet(world)

    def teardown(self) -> None:
        try:
            if self.fleet.sound:
                self.fleet.come_to_rest()
                self.fleet.check_end()
        finally:
            self.fleet.close()

    # --- people -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.fleet.count("person") < 2)
    @rule(path=_PATHS, content=st.integers(0, 3), keep=st.booleans(), priority=st.sampled_from((5, 9)))
    def enqueues(self, path: str, content: int, keep: bool, priority: int) -> None:
        data, file = self.world.contents[content], self.world.file(path)
        file.write_bytes(data)
        others = any(work.path == path for work in self.fleet.works)
        self.fleet.contents[path] = None if others else data
        call = partial(
            enqueue,
            self.fleet.turns,
            self.world.blobs,
            [file],
            recipe=self.world.recipe(_on_page_failure(keep)),
            limits=Limits(),
            sniff=sniff,
            priority=priority,
        )
        self.fleet.start("person", call, path=path, content=data)

    @precondition(lambda self: self.fleet.count("person") < 2 and self.fleet.rows.documents)
    @rule(path=_PATHS, wanted=_REQUEUES, keep=st.booleans())
    def requeues(self, path: str, wanted: Wanted, keep: bool) -> None:
        recipe = self.world.recipe(_on_page_failure(keep))
        documents = [str(self.world.file(path))]
        self.fleet.start(
            "person", partial(requeue, self.fleet.turns, wanted, recipe_of=lambda _: recipe, documents=documents)
        )

    @precondition(lambda self: self.fleet.count("person") < 2 and self.fleet.rows.documents)
    @rule(path=_PATHS)
    def cancels(self, path: str) -> None:
        self.fleet.start("person", partial(cancel, self.fleet.turns, documents=[str(self.world.file(path))]))

    @precondition(lambda self: self.fleet.count("person") < 2 and self.fleet.rows.documents)
    @rule(path=_PATHS)
    def deletes(self, path: str) -> None:
        self.fleet.contents[path] = None
        call = partial(delete, self.fleet.turns, self.world.blobs, [str(self.world.file(path))])
        self.fleet.start("person", call, path=path)

    # --- the fleet --------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.fleet.count("dispatcher"))
    @rule(taken=st.sampled_from((None, None, None, 0, 1)))
    def dispatches(self, taken: int | None) -> None:
        self.fleet.start_dispatch(taken)

    @precondition(lambda self: self.fleet.count("worker") < 2 and self.fleet.messages)
    @rule(back=st.integers(0, 9))
    def a_message_comes(self, back: int) -> None:
        """For the first time or once more, in whatever order."""
        self.fleet.deliver(self.fleet.messages[-1 - back % len(self.fleet.messages)])

    @precondition(lambda self: self.fleet.count("worker") < 2 and self.fleet.unread)
    @rule()
    def the_oldest_message_comes(self) -> None:
        self.fleet.deliver(self.fleet.unread[0])

    @precondition(lambda self: self.fleet.count("worker") < 2)
    @rule()
    def a_quarantine_looks_for_suspects(self) -> None:
        if (suspect := self.fleet.next_suspect()) is not None:
            self.fleet.deliver(suspect, suspects=True)

    @precondition(lambda self: self.fleet.count("worker") < 2 and not self.fleet.count("dispatcher"))
    @rule(rounds=st.integers(1, 4))
    def a_good_while(self, rounds: int) -> None:
        """What is due is done, by workers that nothing happens to."""
        for _ in range(rounds):
            self.fleet.round()

    @precondition(lambda self: self.fleet.count("reconciler") < 2)
    @rule()
    def reconciles(self) -> None:
        self.fleet.start_reconcile()

    @precondition(lambda self: self.fleet.at(Place.BEFORE_TRANSACTION))
    @rule(pick=_PICKS, order=_ORDERS, steps=st.integers(1, 4))
    def goes_on(self, pick: int, order: Order, steps: int) -> None:
        """Somebody's next transactions, the first one with whatever happens to it."""
        work = self._picked(Place.BEFORE_TRANSACTION, pick)
        self.fleet.step(work, order)
        for _ in range(steps - 1):
            if work.actor.place is Place.BEFORE_TRANSACTION:
                self.fleet.step(work)

    @precondition(lambda self: self.fleet.at(Place.BEFORE_TRANSACTION))
    @rule(pick=_PICKS)
    def goes_on_to_its_end(self, pick: int) -> None:
        self.fleet.run_out(self._picked(Place.BEFORE_TRANSACTION, pick))

    @precondition(lambda self: self.fleet.at(Place.WAITS_FOR_MODEL))
    @rule(pick=_PICKS, job=st.integers(0, 3), act=_ACTS, until=st.sampled_from((None, 1.0, _FAR_OFF)))
    def a_job_ends(self, pick: int, job: int, act: str, until: float | None) -> None:
        work = self._picked(Place.WAITS_FOR_MODEL, pick)
        self.fleet.answer(work, work.actor.waits[job % len(work.actor.waits)], act, until)

    @precondition(lambda self: self.fleet.at(Place.WAITS_FOR_MODEL))
    @rule(pick=_PICKS)
    def renews(self, pick: int) -> None:
        units = self._picked(Place.WAITS_FOR_MODEL, pick).units
        with self.fleet.plain.begin() as session:
            renew_leases(session, units, lease_s=UNIT.lease_s, hard_deadline_s=UNIT.hard_deadline_s)
        self.fleet.look()

    @precondition(lambda self: self.fleet.dead)
    @rule(pick=_PICKS, counts=st.booleans())
    def a_dead_workers_leases_are_taken_back(self, pick: int, counts: bool) -> None:
        dead = self.fleet.dead[pick % len(self.fleet.dead)]
        take_back(self.fleet.plain, dead, UNIT, counts=counts)
        self.fleet.look(may_lose=counts)

    # --- time and models --------------------------------------------------------------------------------------------

    @rule(what=st.sampled_from(("leases", "leases", "one lease", "wakes", "parks", "patience")))
    def time_passes(self, what: str) -> None:
        self.fleet.pass_time(what)
        self.fleet.look()

    @rule(stage=st.sampled_from(MODEL_STAGES), room=_CLOSED)
    def a_chain_closes(self, stage: Stage, room: ChainRoom) -> None:
        self.fleet.chains.rooms[stage] = room

    @precondition(lambda self: self.fleet.chains.rooms)
    @rule(pick=_PICKS)
    def a_chain_is_back(self, pick: int) -> None:
        stage = sorted(self.fleet.chains.rooms)[pick % len(self.fleet.chains.rooms)]
        del self.fleet.chains.rooms[stage]
        with self.fleet.plain.begin() as session:
            make_parked_due(session, [stage])
        self.fleet.look()

    def _picked(self, place: Place, pick: int) -> Work:
        there = self.fleet.at(place)
        return there[pick % len(there)]


@pytest.fixture
def world(engine: Engine, blobs: FileBlobs, tmp_path: Path) -> Iterator[World]:
    loop = asyncio.new_event_loop()
    yield World(engine, tmp_path, blobs, loop)
    loop.close()


def test_the_ledger_holds_in_every_order_of_events(world: World) -> None:
    class Machine(Ledger):
        def __init__(self) -> None:
            super().__init__(world)

    short = settings(max_examples=12, stateful_step_count=50, derandomize=True)
    chosen = settings() if settings.get_current_profile_name() == "long" else short
    run_state_machine_as_test(
        Machine, settings=settings(chosen, deadline=None, suppress_health_check=list(HealthCheck))
    )
