"""Documents and units in all, over a whole selection, in a time that a person does not notice.

Where everything is asked about, rows are counted from indexes alone and what newer runs have superseded is taken off;
where a part is, its newest runs lead to its units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage
from pipeline.store.reader import Reader
from pipeline.store.reports import Scope

__all__ = [
    "Degraded",
    "ParkedAt",
    "StageTotals",
    "count_states",
    "degraded_units",
    "parked_by_stage",
    "stage_totals",
]

_FEW = 10_000
_STAGES = [stage.value for stage in Stage]


@dataclass(frozen=True, slots=True)
class StageTotals:
    """The units of one stage.

    Attributes:
        lately: Of the done, those that ended in the last minute.
    """

    stage: Stage
    total: int = 0
    pending: int = 0
    done: int = 0
    parked: int = 0
    failed: int = 0
    lately: int = 0


@dataclass(frozen=True, slots=True)
class ParkedAt:
    """Documents that wait at one stage.

    Attributes:
        resume_at: The soonest next try; None when nobody knows a time (disabled, over budget).
        primary_only: They redo what a fallback answered, and wait for the chain's first target alone.
    """

    stage: Stage
    documents: int
    resume_at: datetime | None
    primary_only: bool = False


@dataclass(frozen=True, slots=True)
class Degraded:
    """Units of documents that are done which a fallback answered.

    Attributes:
        batch: The batch that all of them belong to; None when there are several.
    """

    units: int
    batch: str | None


def count_states(reader: Reader, scope: Scope) -> tuple[dict[RunState, int], list[int] | None]:
    """How many documents are in each state, all seven of them; ``scope.failed`` does not narrow this.

    Returns:
        The counts; and the runs that newer ones have superseded, to be taken off where rows are counted from indexes,
        or None where the newest are to be looked for instead.
    """
    superseded: list[int] | None = None
    in_all: list[tuple[Any, ...]] = []
    if not scope.condition()[0]:
        rows = reader.rows(_RUNS_IN_ALL)
        in_all = [(state, runs) for state, runs, _ in rows]
        # Most often every document comes with its first run.
        is_plain = not rows or sum(runs for _, runs in in_all) == rows[0][-1]
        superseded = [] if is_plain else _superseded(reader)
    counts = dict.fromkeys(RunState, 0)
    for state, documents in _of_newest(reader, scope, superseded, in_all, _RUNS_OF_THESE, _RUNS_IN_SCOPE):
        counts[RunState(state)] += documents
    return counts, superseded


def stage_totals(reader: Reader, scope: Scope, superseded: Sequence[int] | None) -> list[StageTotals]:
    """The units of the newest runs by stage, all six of them; ``scope.failed`` does not narrow this.

    Args:
        superseded: What ``count_states`` said of this scope.
    """
    in_all = [] if superseded is None else list(reader.rows(_UNITS_IN_ALL))
    found: dict[str, dict[str, int]] = {stage: {} for stage in _STAGES}
    for stage, state, units in _of_newest(reader, scope, superseded, in_all, _UNITS_OF_THESE, _UNITS_IN_SCOPE):
        found[stage][state] = found[stage].get(state, 0) + units
    lately = _lately(reader, scope)
    return [
        StageTotals(
            stage=Stage(stage),
            total=sum(states.values()),
            pending=states.get("pending", 0),
            done=states.get("done", 0),
            parked=states.get("parked", 0),
            failed=states.get("failed", 0),
            lately=lately.get(stage, 0),
        )
        for stage, states in found.items()
    ]


def parked_by_stage(reader: Reader, scope: Scope) -> list[ParkedAt]:
    """The parked documents, each at the first stage where something of it waits."""
    condition, values = scope.condition()
    rows = reader.rows(_PARKED.format(condition=condition), {**values, "stages": _STAGES})
    return [ParkedAt(Stage(_STAGES[row.place - 1]), row.documents, row.resume_at, row.primary_only) for row in rows]


def degraded_units(reader: Reader, scope: Scope) -> Degraded:
    """What ``requeue --degraded`` would look at."""
    condition, values = scope.condition()
    (row,) = reader.rows(_DEGRADED.format(condition=condition), values)
    return Degraded(row.units, row.label if row.batches == 1 and row.label else None)


def _superseded(reader: Reader) -> list[int] | None:
    """The runs that newer ones have superseded; None where they are more than a few."""
    found = [row.id for row in reader.rows(_SUPERSEDED, {"limit": _FEW + 1})]
    return found if len(found) <= _FEW else None


def _of_newest(
    reader: Reader,
    scope: Scope,
    superseded: Sequence[int] | None,
    in_all: list[tuple[Any, ...]],
    of_these: str,
    in_scope: str,
) -> list[tuple[Any, ...]]:
    """The counts of the newest runs: those of all less the superseded ones', or of a scope where these aren't known."""
    if superseded is None:
        condition, values = scope.condition()
        return list(reader.rows(in_scope.format(condition=condition), values))
    if not superseded:
        return in_all
    return in_all + [(*row[:-1], -row[-1]) for row in reader.rows(of_these, {"runs": list(superseded)})]


def _lately(reader: Reader, scope: Scope) -> dict[str, int]:
    condition, values = scope.condition()
    rows = reader.rows(_LATELY.format(condition=condition), values)
    return {row.stage: row.units for row in rows}


_IS_NEWEST = "not exists (select from run newer where newer.document_id = run.document_id and newer.id > run.id)"

# The index (document_id, id) alone is read, in its order.
_SUPERSEDED = """
    select id from (select id, lead(id) over (partition by document_id order by id) as next from run) each
    where next is not null limit %(limit)s
"""

# With the documents beside them, for between two statements more may come.
_RUNS_IN_ALL = "select state, count(*) as runs, (select count(*) from document) as documents from run group by state"
_RUNS_OF_THESE = """
    select state, count(*) as documents from run where id = any(cast(%(runs)s as bigint[])) group by state
"""
_RUNS_IN_SCOPE = f"select state, count(*) as documents from run where {_IS_NEWEST} {{condition}} group by state"  # noqa: S608

_UNITS_IN_ALL = "select stage, state, count(*) as units from unit group by stage, state"
_UNITS_OF_THESE = """
    select stage, state, count(*) as units from unit where run_id = any(cast(%(runs)s as bigint[]))
    group by stage, state
"""
_UNITS_IN_SCOPE = f"""
    select unit.stage, unit.state, count(*) as units
    from run join unit on unit.run_id = run.id
    where {_IS_NEWEST} {{condition}}
    group by unit.stage, unit.state
"""  # noqa: S608

_LATELY = f"""
    select unit.stage, count(*) as units
    from unit join run on run.id = unit.run_id
    where unit.state = 'done' and unit.finished_at > now() - interval '1 minute' and {_IS_NEWEST} {{condition}}
    group by unit.stage
"""  # noqa: S608

# A run that is parked is its document's newest: there is one at most that has not ended. The time is that of
# ``pipeline.store.reports.NEXT_TRY``, for many runs at once.
_PARKED = """
    select place, primary_only, count(*) as documents,
           case when min(resume_at) is not null then greatest(min(resume_at), now()) end as resume_at
    from (
        select min(array_position(cast(%(stages)s as text[]), unit.stage)) as place, run.primary_only,
               min(case when chain_wait.stage is null then unit.resume_at
                        when unit.resume_at is null or chain_wait.until is null then null
                        else greatest(unit.resume_at, chain_wait.until) end) as resume_at
        from unit
        join run on run.id = unit.run_id and run.state = 'parked'
        left join chain_wait on chain_wait.stage = unit.stage and chain_wait.primary_only = run.primary_only
        where unit.state = 'parked' {condition}
        group by unit.run_id, run.primary_only
    ) waiting
    group by place, primary_only order by place, primary_only
"""

# Its document was to be done again, of the same bytes, and that came to nothing.
_IS_STILL_LIVE = """
    exists (select from document where document.live_run_id = run.id)
    and not exists (
        select from run newer
        where newer.document_id = run.document_id and newer.id > run.id
          and (newer.state not in ('failed', 'cancelled') or newer.blob_digest <> run.blob_digest)
    )
"""

_DEGRADED = f"""
    select count(*) as units, count(distinct run.batch_id) + max(case when run.batch_id is null then 1 else 0 end)
               as batches,
           min(batch.label) as label
    from unit
    join run on run.id = unit.run_id and run.state = 'done'
    left join batch on batch.id = run.batch_id
    where unit.state = 'done' and unit.degraded and ({_IS_NEWEST} or {_IS_STILL_LIVE}) {{condition}}
"""  # noqa: S608
