"""What must hold of the ledger's rows after every transaction, whatever happened in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from pipeline.domain.run import ACTIVE_RUN_STATES, ENDED_RUN_STATES, RUN_MOVES, RunState
from pipeline.domain.unit import OPEN_UNIT_STATES, UNIT_MOVES, Stage, UnitState

__all__ = ["Rows", "Watcher"]

_LIVE = (RunState.DONE, RunState.EMPTY)
# What an ended unit is for good; the window's columns are nobody's result.
_RESULT = ("output", "input_digest", "answered_by", "degraded", "reused", "calls", "failure_kind", "finished_at")

# The next transaction that writes, or locks a row, has another number.
_WRITTEN = text("select pg_snapshot_xmax(pg_current_snapshot())::text")
_UNITS = text("select *, coalesce(lease_expires_at < now(), false) as overdue from unit order by id")
_RUNS = text(
    "select id, document_id, state, blob_digest, primary_only, redo_from, finished_at, resume_at, incomplete,"
    " failure_kind, recipe ->> 'on_page_failure' as on_page_failure from run order by id"
)
_DOCUMENTS = text("select id, source_uri, live_run_id, blob_digest from document")
_CHUNKS = text(
    """
    select chunk.run_id, count(*) as chunks, max(chunk.ordinal) as last, count(embedding.chunk_id) as vectors,
           md5(string_agg(concat_ws('|', chunk.ordinal, chunk.text, chunk.context, chunk.keywords::text,
                                    embedding.text_digest, md5(embedding.vector::text)), ',' order by chunk.ordinal))
           as content
    from chunk
    join run on run.id = chunk.run_id
    left join embedding on embedding.chunk_id = chunk.id and embedding.space_id = run.space_id
    group by chunk.run_id
    """
)


@dataclass(frozen=True, slots=True)
class Rows:
    """All that the tables hold at one moment."""

    units: Mapping[int, Row[Any]] = field(default_factory=dict)
    runs: Mapping[int, Row[Any]] = field(default_factory=dict)
    documents: Mapping[UUID, Row[Any]] = field(default_factory=dict)
    chunks: Mapping[int, Row[Any]] = field(default_factory=dict)

    def units_of(self, run_id: int, stage: Stage | None = None) -> list[Row[Any]]:
        return [u for u in self.units.values() if u.run_id == run_id and (stage is None or u.stage == stage)]

    def runs_of(self, document_id: UUID) -> list[Row[Any]]:
        return [run for run in self.runs.values() if run.document_id == document_id]


class Watcher:
    """Compares what there is with what there was, and counts the ``moves`` that it has seen.

    Args:
        connection: In autocommit; it sees what has been committed.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.rows = Rows()
        self.moves: Counter[str] = Counter()
        self._written = ""

    def look(self, by: str, *, may_lose: bool) -> None:
        """Check everything.

        Args:
            by: Who has just done something, as leases name workers.
            may_lose: Whether that may count as the loss of a lease.
        """
        written = self._connection.execute(_WRITTEN).scalar_one()
        if written == self._written:
            return
        self._written = written
        was, now = self.rows, self._read()
        self.rows = now
        for run in now.runs.values():
            old = was.runs.get(run.id)
            _check_run_move(old, run)
            if old is not None and old.state != run.state:
                self.moves[f"run {old.state} to {run.state}"] += 1
            _check_run(run, now)
        for unit in now.units.values():
            before = was.units.get(unit.id)
            _check_unit_move(before, unit, may_lose=may_lose)
            _check_unit(unit, now.runs[unit.run_id])
            if before is not None and before.state != unit.state:
                self.moves[f"{before.state} to {unit.state}"] += 1
                _check_lease(before, unit, by)
        _check_what_is_gone(was, now)
        for document in now.documents.values():
            _check_document(was.documents.get(document.id), document, now)

    def _read(self) -> Rows:
        ask = self._connection.execute
        return Rows(
            units={row.id: row for row in ask(_UNITS)},
            runs={row.id: row for row in ask(_RUNS)},
            documents={row.id: row for row in ask(_DOCUMENTS)},
            chunks={row.run_id: row for row in ask(_CHUNKS)},
        )


def _check_run_move(was: Row[Any] | None, run: Row[Any]) -> None:
    if was is None:
        assert run.state == RunState.QUEUED, f"run {run.id} begins as {run.state}"
    elif was.state != run.state:
        assert RunState(run.state) in RUN_MOVES[RunState(was.state)], f"run {run.id}: {was.state} to {run.state}"
    elif run.state in ENDED_RUN_STATES:
        assert was == run, f"run {run.id} has ended as {run.state}, and changed"


def _check_run(run: Row[Any], rows: Rows) -> None:
    states = Counter(UnitState(unit.state) for unit in rows.units_of(run.id))
    busy = states[UnitState.PENDING] + states[UnitState.LEASED]
    said = f"run {run.id} is {run.state} with {dict(states)}"
    assert (run.finished_at is not None) == (run.state in ENDED_RUN_STATES), said
    match RunState(run.state):
        case RunState.QUEUED | RunState.RUNNING:
            # Otherwise nothing would ever look at it again.
            assert busy or states[UnitState.PARKED], said
        case RunState.PARKED:
            assert not busy, said
            assert states[UnitState.PARKED], said
        case RunState.DONE | RunState.EMPTY:
            _check_result(run, rows, said)
        case RunState.FAILED:
            assert not any(states[state] for state in OPEN_UNIT_STATES), said
            assert states[UnitState.FAILED], said
            assert run.failure_kind, said
        case RunState.CANCELLED:
            assert not any(states[state] for state in OPEN_UNIT_STATES), said


def _check_result(run: Row[Any], rows: Rows, said: str) -> None:
    failed = [unit for unit in rows.units_of(run.id) if unit.state != UnitState.DONE]
    assert all(unit.state == UnitState.FAILED for unit in failed), said
    assert run.incomplete == bool(failed), said
    assert not failed or run.on_page_failure == "keep", said
    chunks = rows.chunks.get(run.id)
    if run.state == RunState.EMPTY:
        assert chunks is None, said
        return
    assert chunks is not None, said
    assert chunks.last == chunks.chunks, f"{said}: its chunks are not numbered from 1 on"
    embedded = [unit for unit in rows.units_of(run.id, Stage.EMBED) if unit.state == UnitState.DONE]
    assert chunks.vectors == len(embedded), said
    assert failed or chunks.vectors == chunks.chunks, said


def _check_unit_move(was: Row[Any] | None, unit: Row[Any], *, may_lose: bool) -> None:
    said = f"unit {unit.id} ({unit.stage} {unit.ordinal})"
    if was is None:
        born = UnitState.DONE if unit.reused else UnitState.PENDING
        assert unit.state == born, f"{said} begins as {unit.state}"
        assert unit.lost_leases == 0, said
        return
    before, after = UnitState(was.state), UnitState(unit.state)
    if before is not after:
        assert after in UNIT_MOVES[before], f"{said}: {before} to {after}"
    elif not UNIT_MOVES[after]:
        changed = [name for name in _RESULT if getattr(was, name) != getattr(unit, name)]
        assert not changed, f"{said} is {after}, and its {changed} changed"
    elif after is UnitState.LEASED:
        assert was.lease_token == unit.lease_token, f"{said} went from one lease to another at once"
    lost = unit.lost_leases - was.lost_leases
    assert lost in (0, 1), said
    if lost:
        assert may_lose, f"{said} counts a lost lease, and none was lost"
        assert before is UnitState.LEASED, said
    assert unit.calls >= was.calls, said


def _check_lease(was: Row[Any], unit: Row[Any], by: str) -> None:
    """A lease is given up by its holder, or taken away once it has run out or its holder is known to be dead."""
    if was.state != UnitState.LEASED:
        return
    said = f"unit {unit.id} ({unit.stage} {unit.ordinal}) of {was.leased_by} became {unit.state} by {by}"
    if by.startswith("worker"):
        assert was.leased_by == by, said
    elif by.startswith("reconciler"):
        assert was.overdue, said
        assert unit.state in (UnitState.PENDING, UnitState.FAILED), said
    else:
        assert by == f"the end of {was.leased_by}", said


def _check_unit(unit: Row[Any], run: Row[Any]) -> None:
    said = f"unit {unit.id} ({unit.stage} {unit.ordinal}) of the {run.state} run {run.id} is {unit.state}"
    leased = unit.state == UnitState.LEASED
    assert leased == (unit.lease_token is not None) == (unit.lease_expires_at is not None), said
    assert not leased or run.state == RunState.RUNNING, said
    assert (unit.finished_at is not None) == (unit.state not in OPEN_UNIT_STATES), said
    assert (unit.failure_kind is not None) == (unit.state == UnitState.FAILED), said


def _check_what_is_gone(was: Rows, now: Rows) -> None:
    for run in was.runs.values():
        if run.id not in now.runs and run.document_id in now.documents:
            # Retention deletes old runs, never the live one.
            assert run.state in ENDED_RUN_STATES, f"run {run.id} went while it was {run.state}"
            assert was.documents[run.document_id].live_run_id != run.id, f"the live run {run.id} went"
    for unit in was.units.values():
        if unit.id not in now.units and unit.run_id in now.runs:
            assert unit.state in OPEN_UNIT_STATES, f"unit {unit.id} went though it was {unit.state}"
            assert now.runs[unit.run_id].state == RunState.CANCELLED, f"unit {unit.id} went from a run that goes on"
    for run_id, chunks in was.chunks.items():
        if run_id in now.runs and was.runs[run_id].state in ENDED_RUN_STATES:
            assert now.chunks[run_id] == chunks, f"run {run_id} has ended, and its chunks changed"


def _check_document(was: Row[Any] | None, document: Row[Any], rows: Rows) -> None:
    runs = rows.runs_of(document.id)
    active = [run.id for run in runs if run.state in ACTIVE_RUN_STATES]
    assert len(active) <= 1, f"{document.source_uri} has the active runs {active}"
    published = max((run.id for run in runs if run.state in _LIVE), default=None)
    assert document.live_run_id == published, f"{document.source_uri} shows run {document.live_run_id}, not {published}"
    if was is not None and was.live_run_id is not None:
        assert document.live_run_id is not None, f"{document.source_uri} went out of sight"
        assert document.live_run_id >= was.live_run_id, f"{document.source_uri} went back to an older run"
