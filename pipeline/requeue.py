"""Requeue: another go at what did not work out, without paying again for what did.

A new run reuses done units by the digest of their input (``pipeline.advance``); waking a parked run goes on with the
same one. Nothing that is in progress is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pipeline.domain.errors import UsageError
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage
from pipeline.recipe import Recipe
from pipeline.sources import source_uri
from pipeline.store.documents import NewRun, insert_runs
from pipeline.store.parked import wake_parked
from pipeline.store.reader import reader_of
from pipeline.store.reports import documents_named, scope_of
from pipeline.store.runs import lock_run, move_run
from pipeline.store.selection import Chosen, UnitTotals, choose, lock_documents, unit_totals
from pipeline.store.session import Session, Sessions, transact
from pipeline.store.spaces import ensure_space

__all__ = ["Refused", "RequeueResult", "Requeued", "Wanted", "requeue"]

_PORTION = 500
_ENDED_WITHOUT_RESULT = frozenset({RunState.FAILED, RunState.CANCELLED})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to requeue. Nothing set means all that has not succeeded: failed (and, by name, cancelled), and parked.

    Attributes:
        failed: New runs of documents that failed, or that were published with pages missing.
        parked: Wake parked runs now.
        degraded: New runs that redo what a fallback answered, and accept no fallback again.
        from_stage: New runs that reuse nothing from this stage on.
    """

    failed: bool = False
    parked: bool = False
    degraded: bool = False
    from_stage: Stage | None = None

    @property
    def nothing_said(self) -> bool:
        return not (self.failed or self.parked or self.degraded or self.from_stage)


@dataclass(frozen=True, slots=True)
class Requeued:
    """A run that goes on.

    Attributes:
        run: None in a dry run of a new one.
        woken: It is the parked run itself, not a new one.
        reused_units: Done units that are expected to be reused (known for sure when they are made).
        todo_units: Units that are expected to be worked on, of those that are known.
    """

    document: UUID
    path: str
    run: int | None
    from_stage: Stage | None
    reused_units: int
    todo_units: int
    woken: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A document that was asked for and left alone."""

    document: UUID
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class RequeueResult:
    """What became of each document that was asked for. Whoever calls dispatches afterwards."""

    runs: list[Requeued]
    refused: list[Refused]

    @property
    def counts(self) -> dict[str, int]:
        kinds = Counter("woken" if run.woken else "queued" for run in self.runs)
        return {"queued": kinds["queued"], "woken": kinds["woken"], "refused": len(self.refused)}

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": [
                {
                    "document": str(run.document),
                    "path": run.path,
                    "run": run.run,
                    "from_stage": run.from_stage.value if run.from_stage else None,
                    "reused_units": run.reused_units,
                    "todo_units": run.todo_units,
                    "woken": run.woken,
                }
                for run in self.runs
            ],
            "refused": [
                {"document": str(one.document), "path": one.path, "reason": one.reason} for one in self.refused
            ],
            "counts": self.counts,
        }


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done with one portion of documents."""

    anew: list[Chosen]
    wake: list[Chosen]
    refused: list[Refused]


def requeue(
    sessions: Sessions,
    wanted: Wanted,
    *,
    recipe_of: Callable[[str], Recipe],
    batch: str | None = None,
    documents: Sequence[str] | None = None,
    collection: str | None = None,
    dry_run: bool = False,
) -> RequeueResult:
    """Give documents another go.

    Args:
        recipe_of: A collection's recipe as the configuration stands now, by its name.
        batch: The documents of this batch.
        documents: These, as people name them.
        collection: The documents of this collection.
        dry_run: Say what would be done, and do nothing.

    Raises:
        UsageError: Nothing was chosen, or there is no such batch, document or collection.
        ServiceUnavailable: Postgres is away; the portions before are requeued.
    """
    if batch is None and not documents and collection is None:
        raise UsageError("nothing says which documents to requeue", "add --batch B, --document D or --collection C")
    with sessions() as session:
        reader = reader_of(session)
        named = {
            one.id: one for name in documents or () for one in documents_named(reader, name, as_uri=source_uri(name))
        }
        scope = scope_of(reader, collection=collection, batch=batch, document_ids=list(named) if documents else None)
    by_name = {one.id for one in named.values() if not one.is_member}
    result = RequeueResult([], [])
    # New runs get higher ids than any that is there: the walk ends at the newest of now.
    after: int | None = None
    acted_on: set[UUID] = set()
    while True:
        with sessions() as session:
            portion = choose(session, scope, after, _PORTION)
        if not portion:
            return result
        after = portion[-1].run_id
        plan = _planned([one for one in portion if one.document_id not in acted_on], wanted, by_name)
        result.refused.extend(plan.refused)
        for requeued in _carried_out(sessions, plan, wanted, recipe_of, dry_run):
            acted_on.add(requeued.document)
            result.runs.append(requeued)


def _planned(portion: Sequence[Chosen], wanted: Wanted, by_name: Set[UUID]) -> _Plan:
    plan = _Plan([], [], [])
    for one in portion:
        if one.state in (RunState.QUEUED, RunState.RUNNING):
            plan.refused.append(
                Refused(one.document_id, one.uri, f"it is {one.state}; wait for it, or cancel it first")
            )
        elif one.state is RunState.PARKED:
            if wanted.parked or wanted.nothing_said:
                plan.wake.append(one)
            else:
                plan.refused.append(
                    Refused(one.document_id, one.uri, "it is parked; wake it with --parked, or cancel it first")
                )
        elif _is_wanted(one, wanted, by_name=one.document_id in by_name):
            plan.anew.append(one)
        elif one.document_id in by_name:
            plan.refused.append(Refused(one.document_id, one.uri, _why_not(one, wanted)))
    return plan


def _is_wanted(one: Chosen, wanted: Wanted, *, by_name: bool) -> bool:
    if wanted.from_stage is not None:
        return True
    if wanted.degraded and one.degraded:
        return True
    if wanted.failed and (one.state is RunState.FAILED or one.incomplete):
        return True
    if not wanted.nothing_said:
        return False
    return one.state in _ENDED_WITHOUT_RESULT if by_name else one.state is RunState.FAILED


def _why_not(one: Chosen, wanted: Wanted) -> str:
    if wanted.degraded:
        return "nothing of it was answered by a fallback"
    return f"it is {one.state}; to do it over: --from-stage parse"


def _carried_out(
    sessions: Sessions, plan: _Plan, wanted: Wanted, recipe_of: Callable[[str], Recipe], dry_run: bool
) -> Iterator[Requeued]:
    with sessions() as session:
        units = unit_totals(session, [one.run_id for one in (*plan.anew, *plan.wake)])
    for one in plan.wake:
        mine = units.get(one.run_id, {}).values()
        done, total = sum(stage.done for stage in mine), sum(stage.total for stage in mine)
        if dry_run or _woken(sessions, one.run_id):
            yield Requeued(one.document_id, one.uri, one.run_id, None, done, total - done, woken=True)
    by_collection: dict[str, list[Chosen]] = {}
    for one in plan.anew:
        by_collection.setdefault(one.collection, []).append(one)
    for name, chosen in by_collection.items():
        recipe = recipe_of(name)
        made = {} if dry_run else _new_runs(sessions, chosen, wanted, recipe)
        for one in chosen:
            if not dry_run and one.document_id not in made:
                continue
            stages = units.get(one.run_id, {})
            reused = _reusable(stages, wanted)
            yield Requeued(
                document=one.document_id,
                path=one.uri,
                run=made.get(one.document_id),
                from_stage=wanted.from_stage,
                reused_units=reused,
                todo_units=max(sum(stage.total for stage in stages.values()) - reused, 1),
                woken=False,
            )


def _new_runs(sessions: Sessions, chosen: Sequence[Chosen], wanted: Wanted, recipe: Recipe) -> dict[UUID, int]:
    embed = recipe.body["stages"]["embed"]
    space_id = ensure_space(sessions, embed["model"], embed["dim"])

    def write(session: Session) -> dict[UUID, int]:
        newest = lock_documents(session, [one.document_id for one in chosen])
        # Another enqueue or requeue may have been faster: its run stands.
        free = [one for one in chosen if newest.get(one.document_id) == one.run_id]
        if not free:
            return {}
        return insert_runs(
            session,
            free[0].collection_id,
            [
                NewRun(one.document_id, one.digest, one.media_type, one.batch_id, one.priority, one.run_id)
                for one in free
            ],
            recipe=recipe.body,
            recipe_digest=recipe.digest,
            space_id=space_id,
            redo_from=wanted.from_stage.value if wanted.from_stage else None,
            primary_only=wanted.degraded,
        )

    return transact(sessions, write)


def _woken(sessions: Sessions, run_id: int) -> bool:
    def wake(session: Session) -> bool:
        run = lock_run(session, run_id)
        if run is None or run.state != RunState.PARKED:
            return False
        wake_parked(session, run_id)
        return move_run(session, run_id, RunState.RUNNING)

    return transact(sessions, wake)


def _reusable(stages: Mapping[Stage, UnitTotals], wanted: Wanted) -> int:
    reused = 0
    for stage in Stage:
        if stage is wanted.from_stage:
            break
        if stage in stages:
            reused += stages[stage].reusable - (stages[stage].degraded if wanted.degraded else 0)
    return reused
