"""Reconcile: put right what no message will. Every few seconds, by whoever holds the lock.

Lease time to live plus this job's period bound every delay after a death: the unit table is the outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product

from pipeline.adapters.watch import ChainRoom
from pipeline.advance import settle
from pipeline.dispatch import WAKE_TTL_S
from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.run import RunState
from pipeline.domain.unit import MODEL_STAGES, Stage, UnitState
from pipeline.endings import UnitPolicy, moment
from pipeline.ingest import ChainWatch
from pipeline.store.attempt_sink import close_lost_attempts
from pipeline.store.blob_rows import sweep_blobs
from pipeline.store.blobs import BlobStore
from pipeline.store.fleet import FRESH_S
from pipeline.store.losses import LostLease, expired_runs, lose_leases, release_leases, runs_held_by
from pipeline.store.parked import due_units, note_closed, note_open, pending_units, wake_units
from pipeline.store.reprieve import Reprieve
from pipeline.store.retention import RetentionPolicy, sweep
from pipeline.store.runs import give_up_parked, lock_run
from pipeline.store.session import Session, Sessions, transact
from pipeline.store.space_switch import Switched, drop_carried, switch_spaces
from pipeline.store.window import forget_stale_wakes, reconcile_lock
from pipeline.store.workers import forget_old_workers

__all__ = ["ReconcilePolicy", "Reconciled", "RunMove", "TakenBack", "reconcile", "take_back", "wake_parked_runs"]

_OLD_WORKER_S = 3600.0
_PORTION = 5000


@dataclass(frozen=True, slots=True)
class ReconcilePolicy:
    """What the reconciler goes by; ``most_units`` bounds the units that one pass wakes, and the runs it gives up."""

    unit: UnitPolicy = field(default_factory=UnitPolicy)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    give_up_after_s: float = 86_400.0
    wake_ttl_s: float = WAKE_TTL_S
    most_units: int = 1000


@dataclass(frozen=True, slots=True)
class RunMove:
    """A run that ended, or was parked, when its units' leases were taken back; ``poisoned``: one had lost too many."""

    run_id: int
    document_id: str
    state: RunState
    poisoned: bool


@dataclass(slots=True)
class TakenBack:
    """What became of a dead worker's leases: how many there were, and the runs that don't go on."""

    units: int = 0
    poisoned: int = 0
    moved: list[RunMove] = field(default_factory=list)


@dataclass(slots=True)
class Reconciled:
    """What one pass did.

    Attributes:
        lost: What became of the leases that ran out.
        resumed: Runs that went on.
        gave_up: Runs that were failed after waiting for too long.
        switched: Collections that are searched by another embedding space from now on.
    """

    lost: TakenBack = field(default_factory=TakenBack)
    lost_attempts: int = 0
    stale_wakes: int = 0
    resumed: list[int] = field(default_factory=list)
    gave_up: list[int] = field(default_factory=list)
    switched: list[Switched] = field(default_factory=list)
    swept: int = 0

    @property
    def expired(self) -> int:
        """Leases that ran out."""
        return self.lost.units


def reconcile(
    sessions: Sessions,
    blobs: BlobStore,
    chains: ChainWatch,
    policy: ReconcilePolicy,
    reprieve: Reprieve | None = None,
    *,
    sweeps: bool = True,
) -> Reconciled | None:
    """One pass; None when somebody else is at it (two beats are harmless).

    Args:
        reprieve: The caller's, from pass to pass: when leases that ran out are left alone; None for never.
        sweeps: Whether a portion of what has had its time is looked for and deleted, which takes the longer the more
            there is to look through.

    Raises:
        ServiceUnavailable: Postgres is away; the next pass does the same again.
    """
    spared = reprieve is not None and reprieve.holds(sessions)
    with sessions.begin() as guard:
        if not reconcile_lock(guard):
            return None
        done = Reconciled()
        try:
            if not spared:
                _expire(sessions, policy.unit, done.lost)
            _forget(sessions, policy, done)
        except ServiceUnavailable:
            if reprieve is not None:
                reprieve.was_away()
            raise
        done.resumed = wake_parked_runs(sessions, chains, MODEL_STAGES, policy.most_units)
        with sessions.begin() as session:
            # By now it is known which chains are closed.
            done.gave_up = give_up_parked(session, policy.give_up_after_s, policy.most_units)
        done.switched = transact(sessions, switch_spaces)
        if sweeps:
            done.swept = _sweep(sessions, blobs, policy.retention)
        return done


def take_back(sessions: Sessions, worker: str, unit: UnitPolicy, *, counts: bool) -> TakenBack:
    """Take back at once what a worker holds that is known to be dead, as if its leases had run out.

    Args:
        worker: Its name, as leases show it.
        counts: Whether that is a mark against its units; an end that somebody asked for is none.

    Raises:
        ServiceUnavailable: Postgres is away; what is left can be taken back later.
    """
    with sessions() as session:
        runs = runs_held_by(session, worker)

    def take(session: Session, run_id: int) -> list[LostLease]:
        return lose_leases(session, run_id, unit.max_lost, cause="its process died", worker=worker)

    taken = TakenBack()
    for run_id in runs:
        if counts:
            _take(sessions, run_id, take, taken)
        else:
            with sessions.begin() as session:
                if lock_run(session, run_id) is not None:
                    taken.units += release_leases(session, run_id, worker)
    return taken


def _sweep(sessions: Sessions, blobs: BlobStore, retention: RetentionPolicy) -> int:
    with sessions.begin() as session:
        carried = drop_carried(session, _PORTION)
    return carried + sweep(sessions, retention) + sweep_blobs(sessions, blobs)


def _expire(sessions: Sessions, unit: UnitPolicy, taken: TakenBack) -> None:
    with sessions() as session:
        runs = expired_runs(session)

    def take(session: Session, run_id: int) -> list[LostLease]:
        return lose_leases(session, run_id, unit.max_lost, cause="its lease ran out: the worker died, froze or hung")

    for run_id in runs:
        _take(sessions, run_id, take, taken)


def _forget(sessions: Sessions, policy: ReconcilePolicy, done: Reconciled) -> None:
    """Close what nobody will end any more."""
    with sessions.begin() as session:
        done.lost_attempts = close_lost_attempts(session, FRESH_S, policy.unit.hard_deadline_s)
        done.stale_wakes = sum(forget_stale_wakes(session, stage, policy.wake_ttl_s) for stage in Stage)
        forget_old_workers(session, _OLD_WORKER_S)


def _take(sessions: Sessions, run_id: int, take: Callable[[Session, int], list[LostLease]], taken: TakenBack) -> None:
    def commit(session: Session) -> tuple[list[LostLease], str, RunState] | None:
        run = lock_run(session, run_id)
        if run is None:
            return None
        lost = take(session, run_id)
        return lost, str(run.document_id), settle(session, run)

    done = transact(sessions, commit)
    if done is None:
        return
    lost, document_id, state = done
    poisoned = sum(one.state is UnitState.FAILED for one in lost)
    taken.units += len(lost)
    taken.poisoned += poisoned
    if lost and state is not RunState.RUNNING:
        taken.moved.append(RunMove(run_id, document_id, state, poisoned=poisoned > 0))


def wake_parked_runs(sessions: Sessions, chains: ChainWatch, stages: Sequence[Stage], most_units: int) -> list[int]:
    """Let due parked units go on, as many as their chains would take; returns the runs that they belong to.

    A half-open chain gets a single canary, a recovering one its ramp. What waits for a closed chain is not written:
    the chain's state decides when it is looked at, and until when that is stands in a row for the chain.
    """
    resumed: list[int] = []
    for stage, primary_only in product(stages, (False, True)):
        with sessions() as session:
            waiting = due_units(session, stage, primary_only=primary_only, limit=1)
        if not waiting:
            continue
        chain = chains.room(stage, primary_only=primary_only)
        if not _noted(sessions, stage, primary_only, chain):
            continue
        with sessions() as session:
            room = min(chain.room, most_units)
            if room < most_units:
                # Recovering: what was let go before and has not begun yet has its share of the ramp.
                room -= pending_units(session, stage, room)
            waiting = due_units(session, stage, primary_only=primary_only, limit=room) if room else {}
        resumed += transact(sessions, partial(wake_units, units=waiting)) if waiting else []
    return resumed


def _noted(sessions: Sessions, stage: Stage, primary_only: bool, chain: ChainRoom) -> bool:
    """Keep how a chain stands, for people; True when it has room."""
    with sessions.begin() as session:
        if chain.room:
            note_open(session, stage, primary_only=primary_only)
            return True
        note_closed(session, stage, primary_only=primary_only, until=moment(chain.until))
        return False
