"""Chain exhausted, parked, resumed: over the real chain in simulated time, and by the thousand."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from PIL import Image, ImageDraw
from sqlalchemy import Engine, func, select, text, update

from pipeline.adapters.watch import ChainRoom
from pipeline.dispatch import DispatchPolicy, dispatch
from pipeline.domain.run import RunState
from pipeline.domain.unit import MODEL_STAGES, Stage
from pipeline.failover.breaker import FULL_RAMP
from pipeline.reconcile import ReconcilePolicy, reconcile, wake_parked_runs
from pipeline.requeue import Wanted, requeue
from pipeline.status import status
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.parked import make_parked_due, make_timeless_due, make_waiting_due
from pipeline.store.progress import read_progress
from pipeline.store.reader import Reads
from pipeline.store.schema import Attempt, ChainWait, Run, Unit
from pipeline.store.session import Sessions, make_sessions
from pipeline.store.window import Slice
from pipeline.store.workers import beat
from pipeline.why import why
from tests.integration.ledger.harness import Harness, ScriptedWatch, exhausted
from tests.integration.ledger.simulated import Outage, Writes, simulated_engine
from tests.integration.seed import Seed
from worker.dispatcher import Dispatcher

HOUR_S = 3600.0
MANY = 1000
WORKERS = 16


@pytest.fixture
def simulated(database_url: str) -> Iterator[Engine]:
    with simulated_engine(database_url) as engine:
        yield engine


@pytest.fixture
def outage(simulated: Engine, blobs: FileBlobs) -> Iterator[Outage]:
    sessions = make_sessions(simulated)
    harness = Harness(sessions, blobs, slice_units=1)
    made = Outage(harness, simulated, sessions)
    yield made
    made.close()
    harness.close()


def scan(folder: Path, name: str, pages: int) -> Path:
    """A PDF of pictures: every page needs the vision model."""
    drawn = []
    for number in range(pages):
        page = Image.new("RGB", (240, 160), "white")
        ImageDraw.Draw(page).text((20, 20), f"{name} {number}", fill="black")
        drawn.append(page)
    path = folder / f"{name}.pdf"
    drawn[0].save(path, save_all=True, append_images=drawn[1:])
    return path


def test_an_hour_of_outage_costs_a_probe_a_cooldown_and_no_document(
    outage: Outage, tmp_path: Path, reads: Reads
) -> None:
    harness, servers, clock = outage.harness, outage.servers, outage.clock
    files = [scan(tmp_path, "long", 3), scan(tmp_path, "short", 1)]
    servers.up = {"first"}
    documents = harness.enqueue(*files)
    outage.carry_out(*harness.dispatch())
    page, *others = harness.dispatch()
    outage.carry_out(page)
    assert len(servers.described) == 1, "a page was described before the outage"

    servers.up = set()
    outage.carry_out(*others)
    outage.settle()
    runs = [document.run for document in documents]
    assert [harness.run(run).state for run in runs] == [RunState.PARKED] * 2
    assert len(servers.calls) <= 1 + 2, "one call to each target found out"
    for document in documents:
        said = why(reads, str(document.id)).lines
        assert "is parked at describe" in said[0], said
        assert any("the next try is at" in line for line in said)

    until, began = outage.soonest, clock.now()
    assert until is not None
    cooldowns = 0
    while clock.now() - began < HOUR_S:
        until = outage.soonest
        calls, rows = len(servers.calls), _attempts(outage.sessions)
        if until is not None:
            clock.advance(max(0.0, until - clock.now()) / 2)
            outage.settle()
            assert (len(servers.calls), _attempts(outage.sessions)) == (calls, rows), "nothing while all are cooling"
            clock.advance(max(0.0, until - clock.now()) + 0.1)
        outage.settle()
        cooldowns += 1
        assert len(servers.calls) - calls <= 2, "one canary: a probe of each target at most"
    assert len(servers.calls) <= 3 + 2 * cooldowns
    assert [harness.run(run).state for run in runs] == [RunState.PARKED] * 2
    done = reconcile(outage.sessions, harness.blobs, harness.watch, ReconcilePolicy())
    assert done is not None
    assert (done.gave_up, done.expired) == ([], 0)

    servers.up = {"second"}
    for _ in range(2 + 4):
        until = outage.soonest
        if until is not None:
            clock.advance(until - clock.now() + 0.1)
        outage.settle()
    assert [harness.run(run).state for run in runs] == [RunState.DONE] * 2
    assert status(reads).counts[RunState.FAILED] == 0
    assert sorted(servers.described) == sorted(set(servers.described)), "no page was described twice"
    assert len(servers.described) == 4


def test_a_thousand_parked_runs_write_a_row_a_cooldown(
    seed: Seed, sessions: Sessions, engine: Engine, reads: Reads
) -> None:
    run_ids = _park_many(seed, sessions, MANY, Stage.DESCRIBE, pages=3)
    watch = ScriptedWatch()
    now = datetime.now(UTC)
    cooldowns = [now + timedelta(seconds=30 * 2**n) for n in range(5)]
    with Writes(engine) as writes:
        for until in cooldowns:
            watch.rooms[Stage.DESCRIBE] = ChainRoom(0, until.timestamp())
            for _ in range(6):
                assert wake_parked_runs(sessions, watch, MODEL_STAGES, 1000) == []
        watch.rooms[Stage.DESCRIBE] = ChainRoom(0, None)
        wake_parked_runs(sessions, watch, MODEL_STAGES, 1000)
    assert writes.rows == {"chain_wait": len(cooldowns) + 1}
    with sessions() as session:
        progress = read_progress(session, run_ids)
    assert not any(run.due for run in progress.runs.values())
    assert {one.resume_at for one in status(reads, limit=50).documents} == {None}, "disabled: nobody knows a time"

    watch.rooms[Stage.DESCRIBE] = ChainRoom(0, cooldowns[-1].timestamp())
    wake_parked_runs(sessions, watch, MODEL_STAGES, 1000)
    assert {one.resume_at for one in status(reads, limit=50).documents} == {cooldowns[-1]}

    watch.rooms[Stage.DESCRIBE] = ChainRoom(1)
    with Writes(engine) as writes:
        assert len(wake_parked_runs(sessions, watch, MODEL_STAGES, 1000)) == 1, "one canary"
    assert writes.rows == {"chain_wait": 1, "unit": 1, "run": 1}
    watch.rooms[Stage.DESCRIBE] = ChainRoom(10)
    wake_parked_runs(sessions, watch, MODEL_STAGES, 1000)
    with sessions() as session:
        assert session.scalar(select(func.count()).where(Unit.state == "pending")) == 10, "the canary counts"
        assert session.scalar(select(func.count()).select_from(ChainWait)) == 0
        assert session.scalar(select(func.count()).select_from(Attempt)) == 0


def test_a_thousand_parked_runs_come_back_by_the_ramp(outage: Outage, tmp_path: Path) -> None:
    """Many workers at once; after every answer they look for what else may go on."""
    harness, servers, sessions = outage.harness, outage.servers, outage.sessions
    model = harness.enqueue(scan(tmp_path, "model", 1))[0]
    servers.up = set()
    outage.settle()
    _copy_parked(sessions, model.run, MANY)
    servers.up, servers.took_s = {"second"}, 0.5
    servers.calls.clear()
    servers.peaks.clear()
    until = outage.soonest
    assert until is not None
    outage.clock.advance(until - outage.clock.now() + 0.1)

    wanted, slices, released = 60, SimpleQueue[Slice](), list[tuple[int, int]]()

    def hand_out(found: Sequence[Slice]) -> None:
        for piece in found:
            slices.put(piece)

    def dispatch_now() -> int:
        with sessions.begin() as session:
            beat(session, "many", role="worker", host="here", pid=2, queues=["describe"], slots=WORKERS, cpu_slots=0)
        return dispatch(sessions, hand_out, DispatchPolicy())

    def wake_stage(stage: Stage) -> None:
        wake_parked_runs(sessions, harness.watch, [stage], 1000)
        with sessions() as session:
            parked = session.scalar(select(func.count()).where(Unit.state == "parked", Unit.stage == "describe")) or 0
        released.append((len(servers.described), MANY + 1 - parked))

    def work(_: int) -> None:
        deadline = time.monotonic() + 60
        while len(servers.described) < wanted and time.monotonic() < deadline:
            with suppress(Empty):
                piece = slices.get(timeout=0.05)
                report = harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
                if report.made_work:
                    dispatcher.wake(piece.stage if report.counts["done"] and piece.stage in MODEL_STAGES else None)

    dispatcher = Dispatcher(dispatch_now, wake_stage, lambda _: None)
    with sessions.begin() as session:
        # Of the stages that follow, nothing is handed out.
        session.execute(text("delete from worker"))
    with dispatcher.running(), ThreadPoolExecutor(WORKERS) as pool:
        wake_stage(Stage.DESCRIBE)
        dispatcher.wake()
        list(pool.map(work, range(WORKERS)))
    assert len(servers.described) >= wanted

    assert max(running for _, running in servers.peaks) > 2, "or nothing was put to the test"
    # The two probes that are out together when the first target is tried again are the exception that is meant.
    beyond = [(answered, running) for answered, running in servers.peaks if running > answered + 1 + 1]
    assert beyond == []
    # Until it has recovered, no more are let go than it takes: what was answered, what may be under way, a canary.
    recovering = [(answered, let_go) for answered, let_go in released if answered < FULL_RAMP - WORKERS]
    assert [one for one in recovering if one[1] > 2 * (one[0] + 1) + WORKERS] == []


def test_what_waits_without_a_time_goes_on_when_somebody_acts(seed: Seed, sessions: Sessions) -> None:
    run_ids = _park_many(seed, sessions, 3, Stage.FORMAT, pages=1)
    with sessions.begin() as session:
        session.execute(text("update unit set resume_at = null where state = 'parked'"))
        session.execute(text("update run set resume_at = null"))
    watch = ScriptedWatch()
    assert wake_parked_runs(sessions, watch, MODEL_STAGES, 1000) == [], "its own chain has room: it waits for a person"

    with sessions.begin() as session:
        assert make_timeless_due(session) == 3
    assert sorted(wake_parked_runs(sessions, watch, MODEL_STAGES, 1000)) == sorted(run_ids)


def test_a_target_that_recovers_early_is_waited_for_no_longer(seed: Seed, sessions: Sessions, engine: Engine) -> None:
    """A unit that met a probe waits for the probe's end, half a minute; that may succeed at once."""
    early = _park_many(seed, sessions, 2, Stage.FORMAT, pages=1, due_in_s=30)
    timeless = _park_many(seed, sessions, 1, Stage.FORMAT, pages=1)
    elsewhere = _park_many(seed, sessions, 1, Stage.RETRIEVE, pages=1, due_in_s=30)
    with sessions.begin() as session:
        session.execute(update(Unit).where(Unit.run_id.in_(timeless)).values(resume_at=None))
    watch = ScriptedWatch()
    assert wake_parked_runs(sessions, watch, MODEL_STAGES, 1000) == []
    with Writes(engine) as writes, sessions.begin() as session:
        assert make_waiting_due(session, [Stage.FORMAT]) == len(early)
        assert make_waiting_due(session, [Stage.FORMAT]) == 0, "what is due is not written again"
    assert writes.rows == {"unit": 2, "run": 2}
    assert sorted(wake_parked_runs(sessions, watch, MODEL_STAGES, 1000)) == early
    with sessions() as session:
        assert {session.get_one(Run, run).state for run in (*timeless, *elsewhere)} == {RunState.PARKED}


def test_who_stands_in_line_for_a_chain_that_takes_calls_is_not_given_up(
    seed: Seed, sessions: Sessions, blobs: FileBlobs
) -> None:
    in_line, first = (
        _park_many(seed, sessions, 3, Stage.FORMAT, pages=1),
        _park_many(seed, sessions, 1, Stage.DESCRIBE, pages=1),
    )
    later = _park_many(seed, sessions, 1, Stage.FORMAT, pages=1, due_in_s=HOUR_S)
    with sessions.begin() as session:
        session.execute(update(Run).values(parked_since=func.now() - text("interval '2 days'")))
    watch = ScriptedWatch({Stage.FORMAT: ChainRoom(1), Stage.DESCRIBE: ChainRoom(0, 4e9)})
    done = reconcile(sessions, blobs, watch, ReconcilePolicy())
    assert done is not None
    assert len(done.resumed) == 1, "the canary"
    assert sorted(done.gave_up) == sorted([*first, *later])
    watch.rooms[Stage.FORMAT] = ChainRoom(0, 4e9)
    done = reconcile(sessions, blobs, watch, ReconcilePolicy())
    assert done is not None
    assert set(done.gave_up) < set(in_line), "what waits for a closed chain"


def test_a_reset_writes_only_what_is_not_due_yet(seed: Seed, sessions: Sessions, engine: Engine) -> None:
    _park_many(seed, sessions, 5, Stage.FORMAT, pages=1)
    later = _park_many(seed, sessions, 2, Stage.FORMAT, pages=1, due_in_s=HOUR_S)
    with Writes(engine) as writes, sessions.begin() as session:
        assert make_parked_due(session, [Stage.FORMAT, Stage.DESCRIBE]) == len(later)
    assert writes.rows == {"unit": 2, "run": 2, "chain_wait": 0}


def test_high_priority_goes_first_and_redone_fallbacks_wait_for_the_primary(seed: Seed, sessions: Sessions) -> None:
    ordinary = _park_many(seed, sessions, 2, Stage.FORMAT, pages=1)
    urgent = _park_many(seed, sessions, 1, Stage.FORMAT, pages=1, priority=9)
    redone = _park_many(seed, sessions, 1, Stage.FORMAT, pages=1, priority=9, primary_only=True)

    class PrimaryIsAway(ScriptedWatch):
        def room(self, stage: Stage, *, primary_only: bool = False, **_: object) -> ChainRoom:
            return ChainRoom(0, 4e9) if primary_only else ChainRoom(room)

    room = 1
    assert wake_parked_runs(sessions, PrimaryIsAway(), MODEL_STAGES, 1000) == urgent
    assert wake_parked_runs(sessions, PrimaryIsAway(), MODEL_STAGES, 1000) == [], "the first has not begun yet"
    room = 2
    assert wake_parked_runs(sessions, PrimaryIsAway(), MODEL_STAGES, 1000) == ordinary[:1]
    with sessions() as session:
        assert session.get_one(Run, redone[0]).state == RunState.PARKED
        assert [(one.stage, one.primary_only) for one in session.scalars(select(ChainWait))] == [("format", True)]


def test_exhausted_at_the_last_stage_and_requeued_asks_the_embedder_alone(harness: Harness, note: Path) -> None:
    harness.embedder.always = exhausted("embedder", retry_at=4e9)
    (document,) = harness.enqueue(note)
    harness.drive()
    assert harness.run(document.run).state == RunState.PARKED
    formats, cues = len(harness.formatter.calls), len(harness.retriever.calls)
    assert formats
    assert cues

    # Given up at last, and requeued: a new run.
    with harness.sessions.begin() as session:
        session.execute(text("update run set parked_since = now() - interval '2 days'"))
    harness.watch.rooms[Stage.EMBED] = ChainRoom(0, 4e9)
    done = reconcile(harness.sessions, harness.blobs, harness.watch, ReconcilePolicy())
    assert done is not None
    assert done.gave_up == [document.run]
    harness.watch.rooms.clear()
    harness.embedder.always = None
    result = requeue(
        harness.sessions, Wanted(failed=True), recipe_of=lambda _: harness.recipe(), documents=[str(document.id)]
    )
    harness.drive()

    (again,) = result.runs
    assert harness.run(again.run).state == RunState.DONE
    assert (len(harness.formatter.calls), len(harness.retriever.calls)) == (formats, cues)
    assert all(unit.reused for unit in harness.units(again.run) if unit.stage in ("parse", "format", "retrieve"))
    with harness.sessions() as session:
        old = session.get_one(Run, document.run)
        assert (old.state, old.failure_kind) == (RunState.FAILED, "chain_exhausted"), "its history stays"


def _attempts(sessions: Sessions) -> int:
    with sessions() as session:
        return session.scalar(select(func.count()).select_from(Attempt)) or 0


@pytest.fixture
def seed(sessions: Sessions) -> Seed:
    return Seed(sessions)


def _park_many(
    seed: Seed,
    sessions: Sessions,
    count: int,
    stage: Stage,
    *,
    pages: int,
    due_in_s: float = 0,
    priority: int = 5,
    primary_only: bool = False,
) -> list[int]:
    """Parked runs, written directly."""
    first = seed.document(f"/model-{stage.value}-{count}-{priority}-{primary_only}-{due_in_s:g}")
    model = seed.run(first, "parked", priority=priority, primary_only=primary_only)
    seed.units(model, stage.value, range(1, pages + 1), "parked")
    with sessions.begin() as session:
        for statement in (
            "update run set resume_at = now() + make_interval(secs => :late), parked_since = now() where id = :run",
            "update unit set resume_at = now() + make_interval(secs => :late) where run_id = :run",
        ):
            session.execute(text(statement), {"late": due_in_s, "run": model})
    return [model, *_copy_parked(sessions, model, count - 1)]


def _copy_parked(sessions: Sessions, run_id: int | None, count: int) -> list[int]:
    """More documents like the one of a parked run, each with a copy of its rows."""
    with sessions.begin() as session:
        return list(
            session.scalars(
                text(
                    """
                    with model as (select * from run where id = :run), documents as (
                        insert into document (collection_id, batch_id, source_uri, blob_digest, media_type, size_bytes)
                        select document.collection_id, document.batch_id, document.source_uri || '/' || n,
                               document.blob_digest, document.media_type, document.size_bytes
                        from model join document on document.id = model.document_id, generate_series(1, :count) n
                        returning id
                    ), runs as (
                        insert into run (document_id, collection_id, batch_id, blob_digest, media_type, recipe,
                                         recipe_digest, space_id, priority, state, page_count, resume_at, parked_since,
                                         primary_only)
                        select documents.id, model.collection_id, model.batch_id, model.blob_digest, model.media_type,
                               model.recipe, model.recipe_digest, model.space_id, model.priority, model.state,
                               model.page_count, model.resume_at, model.parked_since, model.primary_only
                        from documents, model returning id
                    ), pages as (
                        insert into page (run_id, number, text_layer, text_format, text_quality, has_figures, blank,
                                          width_pt, height_pt, image_digest, image_media_type)
                        select runs.id, number, text_layer, text_format, text_quality, has_figures, blank, width_pt,
                               height_pt, image_digest, image_media_type
                        from runs, page where page.run_id = :run
                    ), units as (
                        insert into unit (run_id, collection_id, priority, queued_at, stage, ordinal, state,
                                          input_digest, output, resume_at, finished_at)
                        select runs.id, collection_id, priority, queued_at, stage, ordinal, state,
                               case when state = 'parked' then input_digest || runs.id else input_digest end, output,
                               resume_at, finished_at
                        from runs, unit where unit.run_id = :run
                    )
                    select id from runs order by id
                    """
                ),
                {"run": run_id, "count": count},
            )
        )
