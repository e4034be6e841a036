"""Cancel: runs that are on their way end now; what they have done is kept for the next run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pipeline.domain.errors import UsageError
from pipeline.domain.run import ACTIVE_RUN_STATES
from pipeline.sources import source_uri
from pipeline.store.reader import reader_of
from pipeline.store.reports import documents_named, scope_of
from pipeline.store.runs import cancel_active_runs
from pipeline.store.schema import Run
from pipeline.store.selection import Chosen, choose
from pipeline.store.session import Sessions, transact

__all__ = ["CancelResult", "Cancelled", "cancel"]

_PORTION = 500


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A run that was ended."""

    document: UUID
    path: str
    run: int


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What was cancelled.

    Attributes:
        ended: Documents that were at an end already.
    """

    runs: list[Cancelled]
    ended: int

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": [{"document": str(one.document), "path": one.path, "run": one.run} for one in self.runs],
            "counts": {"cancelled": len(self.runs), "ended": self.ended},
        }


def cancel(sessions: Sessions, *, batch: str | None = None, documents: Sequence[str] | None = None) -> CancelResult:
    """Cancel the active runs of a batch or of documents. A worker's late answer is dropped.

    Args:
        documents: As people name them.

    Raises:
        UsageError: Nothing was chosen, or there is no such batch or document.
        ServiceUnavailable: Postgres is away; the portions before are cancelled.
    """
    if batch is None and not documents:
        raise UsageError("nothing says what to cancel", "add --batch B or --document D")
    with sessions() as session:
        reader = reader_of(session)
        named = [one.id for name in documents or () for one in documents_named(reader, name, as_uri=source_uri(name))]
        scope = scope_of(reader, batch=batch, document_ids=named if documents else None)
    cancelled: list[Cancelled] = []
    ended, after = 0, None
    while True:
        with sessions() as session:
            portion = choose(session, scope, after, _PORTION)
        if not portion:
            return CancelResult(cancelled, ended)
        after = portion[-1].run_id
        active = [one for one in portion if one.state in ACTIVE_RUN_STATES]
        done = _cancel(sessions, active)
        cancelled += [Cancelled(one.document_id, one.uri, one.run_id) for one in active if one.run_id in done]
        ended += len(portion) - len(done)


def _cancel(sessions: Sessions, active: Sequence[Chosen]) -> set[int]:
    if not active:
        return set()
    ids = [one.run_id for one in active]
    return set(transact(sessions, lambda session: cancel_active_runs(session, Run.id.in_(ids), "cancelled on request")))
