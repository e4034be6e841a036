"""The ledger under every order of events: two workers, a reconciler and people, one transaction at a time.

Rules start real use cases and let them go on step by step; between any two transactions something else may happen.
After each one ``watcher.py`` checks all that must always hold, and in the end everything is driven to rest.

At length: ``make machine``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
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
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.parked import make_parked_due
from pipeline.store.units import renew_leases
from tests.integration.ledger.actors import Order, Place
from tests.integration.ledger.fleet import UNIT, Fleet, Work
from tests.integration.ledger.world import World

pytestmark = pytest.mark.heavy

_PATHS = st.sampled_from(("a", "b", "c"))
_ORDERS = st.sampled_from((Order.GO,) * 12 + (Order.KILL, Order.AWAY, Order.UNHEARD))
_PICKS = st.integers(0, 7)
_STEPS = st.sampled_from((0, 1, 1, 2, 3, 99))
_CLAIMS = st.sampled_from((99, 99, 99, 3, 2, 1, 0))
_UNTIL = st.sampled_from((None, 1.0, 4_000_000_000.0))
_REQUEUES = st.sampled_from(
    (
        Wanted(),
        Wanted(failed=True),
        Wanted(parked=True),
        Wanted(degraded=True),
        *(Wanted(from_stage=stage) for stage in (Stage.PARSE, Stage.DESCRIBE, Stage.RETRIEVE, Stage.EMBED)),
    )
)
_WORTH_IT = (
    "pending to leased",
    "leased to pending",
    "leased to parked",
    "leased to failed",
    "leased to done",
    "parked to pending",
    "run queued to cancelled",
    "run running to parked",
    "run parked to running",
    "run running to done",
    "run running to failed",
    "run running to cancelled",
)
_CLOSED = st.sampled_from((ChainRoom(0, None), ChainRoom(0, 1.0), ChainRoom(0, 4_000_000_000.0), ChainRoom(1)))


def _on_page_failure(keep: bool) -> str:
    return "keep" if keep else "fail"


@dataclass(frozen=True)
class _Action:
    """Something that may happen; ``weight``: how often, beside the others that may."""

    weight: int
    name: str
    when: Callable[[Any], Any]
    how: st.SearchStrategy[dict[str, Any]]


_ACTIONS: dict[str, _Action] = {}


def _action(
    weight: int, *, when: Callable[[Any], Any] = lambda self: True, **how: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule that keeps its weight: of real rules, hypothesis leaves some out of each example, which needs many."""

    def note(method: Callable[..., None]) -> Callable[..., None]:
        _ACTIONS[method.__name__] = _Action(weight, method.__name__, when, st.fixed_dictionaries(how))
        return method

    return note


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

    @initialize(first=st.integers(0, 3), second=st.integers(0, 3), keep=st.booleans())
    def begins_with_two_that_are_parsed(self, first: int, second: int, keep: bool) -> None:
        for path, content in (("a", first), ("b", second)):
            self.fleet.run_out(self._enqueue(path, content, keep, 5))
        self.fleet.round()
        self.fleet.run_out(self.fleet.start_dispatch())

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        possible = [action for action in _ACTIONS.values() if action.when(self)]
        name = data.draw(st.sampled_from([action.name for action in possible for _ in range(action.weight)]))
        getattr(self, name)(**data.draw(_ACTIONS[name].how, label=name))

    # --- people -----------------------------------------------------------------------------------------------------

    @_action(
        2,
        when=lambda self: self.fleet.count("person") < 2,
        path=_PATHS,
        content=st.integers(0, 3),
        keep=st.booleans(),
        priority=st.sampled_from((5, 9)),
        steps=_STEPS,
    )
    def enqueues(self, path: str, content: int, keep: bool, priority: int, steps: int) -> None:
        self.fleet.go_on(self._enqueue(path, content, keep, priority), steps)

    @_action(
        2,
        when=lambda self: self.fleet.count("person") < 2 and self.fleet.rows.documents,
        path=_PATHS,
        wanted=_REQUEUES,
        keep=st.booleans(),
        steps=_STEPS,
    )
    def requeues(self, path: str, wanted: Wanted, keep: bool, steps: int) -> None:
        recipe = self.world.recipe(_on_page_failure(keep))
        documents = [str(self.world.file(path))]
        call = partial(requeue, self.fleet.turns, wanted, recipe_of=lambda _: recipe, documents=documents)
        self.fleet.go_on(self.fleet.start("person", call), steps)

    @_action(
        1, when=lambda self: self.fleet.count("person") < 2 and self.fleet.rows.documents, path=_PATHS, steps=_STEPS
    )
    def cancels(self, path: str, steps: int) -> None:
        call = partial(cancel, self.fleet.turns, documents=[str(self.world.file(path))])
        self.fleet.go_on(self.fleet.start("person", call), steps)

    @_action(
        1, when=lambda self: self.fleet.count("person") < 2 and self.fleet.rows.documents, path=_PATHS, steps=_STEPS
    )
    def deletes(self, path: str, steps: int) -> None:
        self.fleet.contents[path] = None
        call = partial(delete, self.fleet.turns, self.world.blobs, [str(self.world.file(path))])
        self.fleet.go_on(self.fleet.start("person", call, path=path), steps)

    # --- the fleet --------------------------------------------------------------------------------------------------

    @_action(
        4,
        when=lambda self: not self.fleet.count("dispatcher"),
        taken=st.sampled_from((None, None, None, 0, 1)),
        steps=_STEPS,
    )
    def dispatches(self, taken: int | None, steps: int) -> None:
        self.fleet.go_on(self.fleet.start_dispatch(taken), steps)

    @_action(6, when=lambda self: self.fleet.count("worker") < 2 and self.fleet.unread, pick=_PICKS, steps=_CLAIMS)
    def a_message_comes(self, pick: int, steps: int) -> None:
        self.fleet.go_on(self.fleet.deliver(self.fleet.unread[pick % len(self.fleet.unread)]), steps)

    @_action(
        2,
        when=lambda self: self.fleet.count("worker") < 2 and self.fleet.messages,
        back=st.integers(0, 9),
        steps=_CLAIMS,
    )
    def a_message_comes_again(self, back: int, steps: int) -> None:
        self.fleet.go_on(self.fleet.deliver(self.fleet.messages[-1 - back % len(self.fleet.messages)]), steps)

    @_action(2, when=lambda self: self.fleet.count("worker") < 2, steps=_CLAIMS)
    def a_quarantine_looks_for_suspects(self, steps: int) -> None:
        if (suspect := self.fleet.next_suspect()) is not None:
            self.fleet.go_on(self.fleet.deliver(suspect, suspects=True), steps)

    @_action(
        1,
        when=lambda self: self.fleet.count("worker") < 2 and not self.fleet.count("dispatcher"),
    )
    def a_good_while(self) -> None:
        """What is due is done, by workers that nothing happens to."""
        self.fleet.round()

    @_action(2, when=lambda self: self.fleet.count("reconciler") < 2, steps=_STEPS)
    def reconciles(self, steps: int) -> None:
        self.fleet.go_on(self.fleet.start_reconcile(), steps)

    @_action(6, when=lambda self: self.fleet.at(Place.BEFORE_TRANSACTION), pick=_PICKS, order=_ORDERS, steps=_STEPS)
    def goes_on(self, pick: int, order: Order, steps: int) -> None:
        """Somebody's next transactions, the first one with whatever happens to it."""
        work = self._picked(Place.BEFORE_TRANSACTION, pick)
        self.fleet.step(work, order)
        self.fleet.go_on(work, steps)

    @_action(
        6,
        when=lambda self: self.fleet.at(Place.WAITS_FOR_MODEL),
        pick=_PICKS,
        job=st.integers(0, 3),
        act=st.sampled_from(("ok", "ok", "degraded")),
        steps=_STEPS,
    )
    def a_job_ends(self, pick: int, job: int, act: str, steps: int) -> None:
        self._end_job(pick, job, act, None, steps)

    @_action(
        4,
        when=lambda self: self.fleet.at(Place.WAITS_FOR_MODEL),
        pick=_PICKS,
        job=st.integers(0, 3),
        act=st.sampled_from(("busy", "busy", "paid")),
        until=_UNTIL,
        steps=_STEPS,
    )
    def a_model_is_busy(self, pick: int, job: int, act: str, until: float | None, steps: int) -> None:
        self._end_job(pick, job, act, until, steps)

    @_action(
        3,
        when=lambda self: self.fleet.at(Place.WAITS_FOR_MODEL),
        pick=_PICKS,
        job=st.integers(0, 3),
        act=st.sampled_from(("rejected", "rejected", "bug", "cancelled", "permit", "away", "killed", "died")),
        steps=_STEPS,
    )
    def a_job_goes_wrong(self, pick: int, job: int, act: str, steps: int) -> None:
        self._end_job(pick, job, act, None, steps)

    @_action(1, when=lambda self: self.fleet.at(Place.WAITS_FOR_MODEL), pick=_PICKS)
    def renews(self, pick: int) -> None:
        units = self._picked(Place.WAITS_FOR_MODEL, pick).units
        with self.fleet.plain.begin() as session:
            renew_leases(session, units, lease_s=UNIT.lease_s, hard_deadline_s=UNIT.hard_deadline_s)
        self.fleet.look()

    @_action(1, when=lambda self: self.fleet.dead, pick=_PICKS, counts=st.booleans())
    def a_dead_workers_leases_are_taken_back(self, pick: int, counts: bool) -> None:
        dead = self.fleet.dead[pick % len(self.fleet.dead)]
        take_back(self.fleet.plain, dead, UNIT, counts=counts)
        self.fleet.look(f"the end of {dead}", may_lose=counts)

    @_action(
        4,
        when=lambda self: self.fleet.at(Place.WAITS_FOR_MODEL),
        pick=_PICKS,
        what=st.sampled_from(("dies", "freezes", "comes back")),
    )
    def a_worker_is_given_up(self, pick: int, what: str) -> None:
        """It dies, or freezes and may come back to find its units with a quarantine."""
        work = self._picked(Place.WAITS_FOR_MODEL, pick)
        if what == "dies":
            self.fleet.kill(work)
        self.fleet.pass_time("leases")
        self.fleet.run_out(self.fleet.start_reconcile())
        if self.fleet.count("worker") < 2 and (suspect := self.fleet.next_suspect()) is not None:
            self.fleet.go_on(self.fleet.deliver(suspect, suspects=True), 99)
        if what == "comes back":
            self.fleet.run_out(work)

    # --- time and models --------------------------------------------------------------------------------------------

    @_action(3, what=st.sampled_from(("leases", "leases", "one lease", "wakes", "parks", "patience")))
    def time_passes(self, what: str) -> None:
        self.fleet.pass_time(what)
        self.fleet.look()

    @_action(1, stage=st.sampled_from(MODEL_STAGES), room=_CLOSED)
    def a_chain_closes(self, stage: Stage, room: ChainRoom) -> None:
        self.fleet.chains.rooms[stage] = room

    @_action(1, when=lambda self: self.fleet.chains.rooms, pick=_PICKS)
    def a_chain_is_back(self, pick: int) -> None:
        stage = sorted(self.fleet.chains.rooms)[pick % len(self.fleet.chains.rooms)]
        del self.fleet.chains.rooms[stage]
        with self.fleet.plain.begin() as session:
            make_parked_due(session, [stage])
        self.fleet.look()

    def _enqueue(self, path: str, content: int, keep: bool, priority: int) -> Work:
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
        return self.fleet.start("person", call, path=path, content=data)

    def _end_job(self, pick: int, job: int, act: str, until: float | None, steps: int) -> None:
        work = self._picked(Place.WAITS_FOR_MODEL, pick)
        self.fleet.answer(work, work.actor.waits[job % len(work.actor.waits)], act, until)
        self.fleet.go_on(work, steps)

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

    short = settings(max_examples=14, stateful_step_count=50, derandomize=True)
    chosen = settings() if settings.get_current_profile_name() == "long" else short
    run_state_machine_as_test(
        Machine, settings=settings(chosen, deadline=None, suppress_health_check=list(HealthCheck))
    )
    missing = {move for move in _WORTH_IT if not world.moves[move]}
    assert not missing, f"the examples did not come to {missing}"
    assert world.dropped, "no late answer was dropped"
