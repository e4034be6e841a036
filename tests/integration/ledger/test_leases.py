"""Leases, the window and the reconciler: what a message, a death or a second worker may and may not do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError

from pipeline.adapters.watch import ChainRoom
from pipeline.domain.call import Outcome
from pipeline.domain.errors import Draining
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage, UnitState
from pipeline.reconcile import Reconciled, ReconcilePolicy, reconcile, take_back
from pipeline.store.runs import cancel_active_runs, lock_run, lock_running
from pipeline.store.schema import Attempt, Run, Unit
from pipeline.store.units import Claimed, Result, claim_units, finish_units, renew_leases, seconds_from_now
from tests.integration.ledger.harness import Harness, exhausted


def claim(harness: Harness, run_id: int, stage: Stage, ordinals: list[int], worker: str = "w") -> list[Claimed]:
    with harness.sessions.begin() as session:
        if not lock_running(session, run_id):
            return []
        return claim_units(session, run_id, stage, ordinals, token=uuid4(), worker=worker, lease_s=30)


def expire(harness: Harness) -> None:
    with harness.sessions.begin() as session:
        session.execute(
            update(Unit).values(lease_expires_at=text("now() - interval '1 second'")).where(Unit.state == "leased")
        )


def pass_once(harness: Harness) -> Reconciled:
    done = reconcile(harness.sessions, harness.blobs, harness.watch, ReconcilePolicy(unit=harness.unit))
    assert done is not None
    return done


@pytest.fixture
def run_id(harness: Harness, note: Path) -> int:
    (document,) = harness.enqueue(note)
    assert document.run is not None
    return document.run


def test_a_duplicate_message_claims_nothing(harness: Harness, run_id: int) -> None:
    assert len(claim(harness, run_id, Stage.PARSE, [0])) == 1
    assert claim(harness, run_id, Stage.PARSE, [0]) == []


def test_eight_claimers_get_each_unit_once(harness: Harness, run_id: int) -> None:
    with ThreadPoolExecutor(8) as pool:
        claimed = [
            unit for units in pool.map(lambda _: claim(harness, run_id, Stage.PARSE, [0]), range(8)) for unit in units
        ]
    assert len(claimed) == 1


def test_a_late_answer_of_an_expired_lease_is_dropped(harness: Harness, run_id: int) -> None:
    (old,) = claim(harness, run_id, Stage.PARSE, [0])
    expire(harness)
    assert pass_once(harness).expired == 1
    (new,) = claim(harness, run_id, Stage.PARSE, [0])
    assert new.lost_leases == 1
    with harness.sessions.begin() as session:
        lock_run(session, run_id)
        assert not finish_units(session, [(old, Result())])
        assert renew_leases(session, [old, new], lease_s=30, hard_deadline_s=3600) == {new.id}
        assert finish_units(session, [(new, Result())]) == {new.id}


def test_a_lease_is_never_renewed_past_its_hard_deadline(harness: Harness, run_id: int) -> None:
    (unit,) = claim(harness, run_id, Stage.PARSE, [0])
    with harness.sessions.begin() as session:
        session.execute(update(Unit).values(leased_at=text("now() - interval '2 hours'")).where(Unit.id == unit.id))
    with harness.sessions.begin() as session:
        renew_leases(session, [unit], lease_s=30, hard_deadline_s=3600)
    assert pass_once(harness).expired == 1


def test_a_unit_that_kills_its_worker_each_time_is_poison(harness: Harness, run_id: int) -> None:
    for _ in range(3):
        (unit,) = claim(harness, run_id, Stage.PARSE, [0])
        expire(harness)
        pass_once(harness)
    run = harness.run(run_id)
    assert (run.state, run.failure_kind) == (RunState.FAILED, "poison")
    assert harness.units(run_id)[0].lost_leases == 3
    assert unit.lost_leases == 2


@pytest.mark.parametrize("suspect", [False, True])
def test_drains_in_the_middle_of_a_unit_leave_no_mark_however_many(harness: Harness, note: Path, suspect: bool) -> None:
    (document,) = harness.enqueue(note)
    for piece in harness.dispatch():
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    with harness.sessions.begin() as session:
        session.execute(update(Unit).where(Unit.stage == Stage.FORMAT.value).values(lost_leases=int(suspect)))
    started = threading.Event()

    async def hang(*_: object) -> None:
        started.set()
        await asyncio.Event().wait()

    answer, harness.formatter.chat = harness.formatter.chat, hang  # type: ignore[method-assign, assignment]
    for _ in range(harness.unit.max_lost + 2):
        harness.stopping.clear()
        started.clear()
        piece = harness.next_suspect() if suspect else harness.dispatch()[0]  # type: ignore[assignment]
        ingest = harness.ingest(suspects=suspect)
        worker = threading.Thread(target=ingest.run_slice, args=(piece.run_id, piece.stage, piece.ordinals))
        worker.start()
        assert started.wait(20)
        harness.stopping.set()
        worker.join(20)
        assert not worker.is_alive()
        (unit,) = harness.units(document.run, Stage.FORMAT)
        assert (unit.state, unit.lost_leases, unit.dispatched_at) == (UnitState.PENDING, int(suspect), None)
    harness.stopping.clear()
    harness.formatter.chat = answer  # type: ignore[method-assign]
    harness.drive()
    assert harness.run(document.run).state == RunState.DONE


def test_a_call_that_a_drain_keeps_from_beginning_leaves_its_unit_as_it_was(harness: Harness, note: Path) -> None:
    (document,) = harness.enqueue(note)
    for piece in harness.dispatch():
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    answer = harness.formatter.chat

    async def refuse(*_: object) -> None:
        raise Draining("vlm_formatter")

    harness.formatter.chat = refuse  # type: ignore[method-assign, assignment]
    (piece,) = harness.dispatch()
    report = harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    (unit,) = harness.units(document.run, Stage.FORMAT)
    assert (unit.state, unit.lost_leases, unit.dispatched_at, unit.calls) == (UnitState.PENDING, 0, None, 0)
    assert report.made_work
    harness.formatter.chat = answer  # type: ignore[method-assign]
    harness.drive()
    assert harness.run(document.run).state == RunState.DONE


def test_a_cancelled_run_drops_the_answer_that_comes_after(harness: Harness, run_id: int) -> None:
    (unit,) = claim(harness, run_id, Stage.PARSE, [0])
    with harness.sessions.begin() as session:
        assert cancel_active_runs(session, Run.id == run_id, "by hand") == [run_id]
    with harness.sessions.begin() as session:
        assert not finish_units(session, [(unit, Result())])
    assert harness.run(run_id).state == RunState.CANCELLED
    assert claim(harness, run_id, Stage.PARSE, [0]) == []


def test_the_window_holds_no_more_than_two_slices_a_slot(harness: Harness, tmp_path: Path) -> None:
    paths = []
    for n in range(30):
        path = tmp_path / f"{n}.md"
        path.write_text(f"# {n}\n\ntext {n}")
        paths.append(path)
    harness.enqueue(*paths)
    assert len(harness.dispatch()) == 8
    assert harness.dispatch() == []


def test_slices_that_the_broker_did_not_take_go_out_with_the_next_dispatch(harness: Harness, run_id: int) -> None:
    harness.lost_broker = True
    with pytest.raises(ConnectionError):
        harness.dispatch()
    harness.lost_broker = False
    assert [piece.run_id for piece in harness.dispatch()] == [run_id]


def test_a_lost_message_is_sent_again_when_its_wake_runs_out(harness: Harness, run_id: int) -> None:
    assert len(harness.dispatch()) == 1
    with harness.sessions.begin() as session:
        session.execute(update(Unit).values(dispatched_at=text("now() - interval '1 hour'")))
    assert pass_once(harness).stale_wakes == 1
    assert [piece.run_id for piece in harness.dispatch()] == [run_id]


def test_priority_goes_first_and_collections_take_turns(harness: Harness, tmp_path: Path) -> None:
    def files(prefix: str, n: int) -> list[Path]:
        made = []
        for i in range(n):
            path = tmp_path / f"{prefix}{i}.md"
            path.write_text(f"{prefix} {i}")
            made.append(path)
        return made

    first = harness.enqueue(*files("a", 6), collection="a")
    second = harness.enqueue(*files("b", 6), collection="b")
    (urgent,) = harness.enqueue(*files("c", 1), collection="a", priority=9)
    order = [piece.run_id for piece in harness.dispatch()]
    assert order[0] == urgent.run
    a, b = {one.run for one in first}, {one.run for one in second}
    assert abs(len(a & set(order)) - len(b & set(order))) <= 1


def test_two_last_units_that_end_together_meet_in_one_chunk_unit(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "two.md"
    path.write_text("\n\n".join(f"# Part {n}\n\n{'word ' * 900}" for n in range(4)))
    (document,) = harness.enqueue(path)
    for piece in harness.dispatch():
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    numbers = [unit.ordinal for unit in harness.units(document.run, Stage.FORMAT)]
    assert len(numbers) > 1
    with ThreadPoolExecutor(len(numbers)) as pool:
        list(pool.map(lambda n: harness.ingest().run_slice(document.run or 0, Stage.FORMAT, [n]), numbers))
    assert harness.states(document.run, Stage.CHUNK) == [UnitState.PENDING]


def test_work_that_was_begun_is_called_off_when_the_rest_of_its_slice_cant_be(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "two.md"
    path.write_text("\n\n".join(f"# Part {n}\n\n{'word ' * 900}" for n in range(4)))
    harness.enqueue(path)
    for piece in harness.dispatch():
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    begun: list[Future[Any]] = []

    def submit(coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        coroutine.close()
        if begun:
            raise RuntimeError("Event loop is closed")
        begun.append(Future())
        return begun[0]

    (piece,) = harness.dispatch()
    assert len(piece.ordinals) > 1
    with pytest.raises(RuntimeError):
        replace(harness.ingest(), submit=submit).run_slice(piece.run_id, piece.stage, piece.ordinals)
    assert begun[0].cancelled()


def test_nothing_is_claimed_while_every_target_cools(harness: Harness, note: Path) -> None:
    harness.watch.rooms[Stage.FORMAT] = ChainRoom(0, 4_000_000_000.0)
    (document,) = harness.enqueue(note)
    harness.drive()
    assert harness.run(document.run).state == RunState.PARKED
    assert harness.formatter.calls == []
    with harness.sessions() as session:
        assert session.scalars(select(Attempt)).all() == []


def test_a_half_open_chain_gets_one_canary_and_then_the_rest(harness: Harness, tmp_path: Path) -> None:
    paths = []
    for n in range(5):
        path = tmp_path / f"{n}.md"
        path.write_text(f"# {n}\n\ntext {n}")
        paths.append(path)
    harness.watch.rooms[Stage.FORMAT] = ChainRoom(0, 1.0)
    runs = [one.run for one in harness.enqueue(*paths)]
    harness.drive()
    assert {harness.run(run).state for run in runs} == {"parked"}

    harness.watch.rooms[Stage.FORMAT] = ChainRoom(1)
    assert len(harness.wake()) == 1
    assert [harness.run(run).state for run in runs].count("running") == 1
    harness.watch.rooms[Stage.FORMAT] = ChainRoom(1_000_000)
    harness.wake()
    harness.drive()
    assert {harness.run(run).state for run in runs} == {"done"}


def test_a_run_that_was_parked_for_too_long_is_given_up(harness: Harness, note: Path) -> None:
    harness.formatter.always = exhausted("vlm_formatter", retry_at=4_000_000_000.0)
    (document,) = harness.enqueue(note)
    harness.drive()
    with harness.sessions.begin() as session:
        session.execute(update(Run).values(parked_since=text("now() - interval '2 days'")))
    harness.watch.rooms[Stage.FORMAT] = ChainRoom(0, 4e9)
    done = pass_once(harness)
    assert done.gave_up == [document.run]
    run = harness.run(document.run)
    assert (run.state, run.failure_kind) == (RunState.FAILED, "chain_exhausted")


def test_however_many_were_parked_for_too_long_one_pass_gives_up_a_portion(harness: Harness, tmp_path: Path) -> None:
    harness.formatter.always = exhausted("vlm_formatter", retry_at=4_000_000_000.0)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nHigh water is at six.")
    harness.enqueue(*(tmp_path / f"{name}.md" for name in ("a", "b", "c")))
    harness.drive()
    with harness.sessions.begin() as session:
        session.execute(update(Run).values(parked_since=text("now() - interval '2 days'")))
    harness.watch.rooms[Stage.FORMAT] = ChainRoom(0, 4e9)
    policy = ReconcilePolicy(unit=harness.unit, most_units=2)
    passes = [reconcile(harness.sessions, harness.blobs, harness.watch, policy) for _ in range(2)]
    assert [len(done.gave_up) for done in passes if done] == [2, 1]


def test_a_dead_workers_attempt_is_closed_as_lost(harness: Harness, run_id: int) -> None:
    (unit,) = claim(harness, run_id, Stage.PARSE, [0], worker="dead")
    with harness.sessions.begin() as session:
        for age_s in (600, 0):
            session.add(
                Attempt(
                    run_id=run_id,
                    unit_id=unit.id,
                    role="vlm",
                    call_id="c",
                    position=0,
                    target="t",
                    worker="dead",
                    outcome=Outcome.RUNNING.value,
                    started_at=seconds_from_now(-age_s),
                )
            )
    assert pass_once(harness).lost_attempts == 0, "the lease still stands"
    expire(harness)
    pass_once(harness)
    with harness.sessions() as session:
        rows = list(session.scalars(select(Attempt)))
    assert [(row.outcome, row.worker) for row in rows] == [(Outcome.LOST, "dead")] * 2


def test_a_lease_that_is_lost_without_a_call_is_an_attempt_all_the_same(harness: Harness, run_id: int) -> None:
    for _ in range(3):
        claim(harness, run_id, Stage.PARSE, [0], worker="dead")
        expire(harness)
        pass_once(harness)
    with harness.sessions() as session:
        rows = list(session.scalars(select(Attempt)))
    assert [(row.outcome, row.worker, row.stage, row.target) for row in rows] == [("lost", "dead", "parse", None)] * 3


def test_a_unit_that_has_lost_a_lease_is_claimed_by_a_quarantine_alone(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "parts.md"
    path.write_text("\n\n".join(f"# Part {n}\n\n{'word ' * 900}" for n in range(4)))
    (document,) = harness.enqueue(path)
    run_id = document.run or 0
    for piece in harness.dispatch():
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    numbers = [unit.ordinal for unit in harness.units(run_id, Stage.FORMAT)]
    (suspect,) = claim(harness, run_id, Stage.FORMAT, numbers[:1], worker="dead")
    expire(harness)
    pass_once(harness)

    # Neither a message from before the death nor a new one brings it to an ordinary worker.
    assert suspect.ordinal not in {n for piece in harness.dispatch() for n in piece.ordinals}
    harness.ingest().run_slice(run_id, Stage.FORMAT, numbers)
    assert harness.states(run_id, Stage.FORMAT) == [UnitState.PENDING] + [UnitState.DONE] * (len(numbers) - 1)

    taken = harness.next_suspect()
    assert taken is not None
    assert taken.ordinals == (suspect.ordinal,)
    assert harness.next_suspect() is None, "one quarantine has it"
    assert harness.quarantine(taken).counts["done"] == 1
    assert harness.quarantine(taken).counts["done"] == 0
    harness.drive()
    assert harness.run(run_id).state == RunState.DONE


def test_a_dead_quarantines_lease_is_taken_back_at_once_and_one_that_was_ended_leaves_no_mark(
    harness: Harness, run_id: int
) -> None:
    claim(harness, run_id, Stage.PARSE, [0], worker="ended")
    assert take_back(harness.sessions, "another", harness.unit, counts=True).units == 0
    assert take_back(harness.sessions, "ended", harness.unit, counts=False).units == 1
    assert [(unit.state, unit.lost_leases) for unit in harness.units(run_id)] == [(UnitState.PENDING, 0)]
    for _ in range(3):
        claim(harness, run_id, Stage.PARSE, [0], worker="killed")
        taken = take_back(harness.sessions, "killed", harness.unit, counts=True)
    assert (taken.units, taken.poisoned) == (1, 1)
    assert [(move.run_id, move.state) for move in taken.moved] == [(run_id, RunState.FAILED)]
    assert harness.run(run_id).failure_kind == "poison"


def test_innocent_suspects_go_before_the_one_that_has_killed_twice(harness: Harness, tmp_path: Path) -> None:
    runs = []
    for n in range(3):
        path = tmp_path / f"{n}.md"
        path.write_text(f"text {n}")
        runs.append(harness.enqueue(path)[0].run or 0)
    with harness.sessions.begin() as session:
        session.execute(update(Unit).where(Unit.run_id == runs[0]).values(lost_leases=2))
        session.execute(update(Unit).where(Unit.run_id != runs[0]).values(lost_leases=1))
    order = [harness.next_suspect() for _ in range(4)]
    assert [one and one.run_id for one in order] == [runs[1], runs[2], runs[0], None]
    with harness.sessions.begin() as session:
        session.execute(update(Unit).values(dispatched_at=text("now() - interval '11 seconds'")))
    assert harness.next_suspect() is not None, "whoever took it has not claimed it"


def test_a_second_reconciler_leaves_at_once(harness: Harness) -> None:
    with harness.sessions.begin() as session:
        session.execute(text("select pg_advisory_xact_lock(x) from (values (x'71DE6A7E03'::bigint)) as v(x)"))
        assert reconcile(harness.sessions, harness.blobs, harness.watch, ReconcilePolicy()) is None


def test_claimers_of_a_queued_run_never_lock_each_other_out(harness: Harness, tmp_path: Path) -> None:
    runs = []
    for n in range(15):
        path = tmp_path / f"{n}.md"
        path.write_text(f"text {n}")
        runs.append(harness.enqueue(path)[0].run or 0)
    for run in runs:
        with ThreadPoolExecutor(4) as pool:
            claimed = list(pool.map(lambda _, run=run: claim(harness, run, Stage.PARSE, [0]), range(4)))
        assert sum(map(len, claimed)) == 1


def test_a_known_result_does_not_take_a_unit_from_the_worker_that_is_paying_for_it(
    harness: Harness, run_id: int, note: Path, tmp_path: Path
) -> None:
    twin = tmp_path / "twin.md"
    twin.write_bytes(note.read_bytes())
    (other,) = harness.enqueue(twin)
    for piece in harness.dispatch():
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    (paying,) = claim(harness, run_id, Stage.FORMAT, [1], worker="paying")
    harness.drive()
    assert harness.run(other.run).state == RunState.DONE
    # A duplicate message of the unit that is being worked on finds its result known by now.
    harness.watch.rooms[Stage.FORMAT] = ChainRoom(0, None)
    harness.ingest().run_slice(run_id, Stage.FORMAT, [1])
    with harness.sessions.begin() as session:
        assert finish_units(session, [(paying, Result({"markdown": "paid for"}))])


def test_a_deadlock_at_the_end_of_a_unit_does_not_lose_its_result(harness: Harness, note: Path) -> None:
    (document,) = harness.enqueue(note)
    holding = threading.Event()
    crossed: list[str] = []

    def cross() -> None:
        with harness.sessions.begin() as session:
            session.execute(text("set local deadlock_timeout = '10s'"))
            session.execute(text("select 1 from document for update"))
            holding.set()
            try:
                session.execute(text("select 1 from run for update"))
                crossed.append("held both")
            except DBAPIError:
                crossed.append("gave way")

    _drive_beside(harness, cross, holding)
    assert crossed == ["held both"], "the unit's transaction was the one that gave way, and was run again"
    assert harness.run(document.run).state == RunState.DONE
    assert len(harness.embedder.calls) == 1


def test_a_statement_that_is_cancelled_at_the_end_of_a_unit_does_not_lose_its_result(
    harness: Harness, tmp_path: Path
) -> None:
    path = tmp_path / "one-chunk.md"
    path.write_text("# Sluice\n\nIt opens at half tide.\n", encoding="utf-8")
    (document,) = harness.enqueue(path)
    holding = threading.Event()
    cancelled: list[int] = []

    def hold_the_run_and_cancel_who_waits() -> None:
        who_waits = text(
            "select pid from pg_locks where not granted and pg_blocking_pids(pid) @> array[pg_backend_pid()]"
        )
        with harness.sessions.begin() as session:
            session.execute(text("select 1 from run for update"))
            holding.set()
            while not (found := session.scalars(who_waits).all()):
                threading.Event().wait(0.01)
            for pid in found:
                session.execute(text("select pg_cancel_backend(:pid)"), {"pid": pid})
            cancelled.extend(found)

    _drive_beside(harness, hold_the_run_and_cancel_who_waits, holding)
    assert cancelled
    assert harness.run(document.run).state == RunState.DONE
    assert len(harness.embedder.calls) == 1


def _drive_beside(harness: Harness, hold: Callable[[], None], holding: threading.Event) -> None:
    """Drive with ``hold`` in a thread beside, begun by the first embedding, which waits until it is ``holding``."""
    slices = harness.dispatch()
    answer, thread = harness.embedder.embed, threading.Thread(target=hold)

    async def embed_while_held(*args: Any) -> Any:
        if not holding.is_set():
            thread.start()
            holding.wait()
        return await answer(*args)

    harness.embedder.embed = embed_while_held  # type: ignore[method-assign, assignment]
    for piece in slices:
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    harness.drive()
    thread.join()
