"""Attempts: every model call that was made for a document, and every target left out on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pipeline.domain.unit import Stage
from pipeline.sources import source_uri
from pipeline.store.attempts import AttemptRow, attempts_of
from pipeline.store.reader import Reads
from pipeline.store.reports import document_named

__all__ = ["Attempts", "attempts"]


@dataclass(frozen=True, slots=True)
class Attempts:
    """A document's attempts in order of start, those of all its runs."""

    document: UUID
    path: str
    attempts: list[AttemptRow]

    def to_json(self) -> dict[str, Any]:
        return {"document": str(self.document), "attempts": [_json(attempt) for attempt in self.attempts]}


def attempts(reads: Reads, document: str, *, stage: Stage | None = None) -> Attempts:
    """List a document's attempts.

    Args:
        document: As people name it.
        stage: Only those of one stage.

    Raises:
        UsageError: There is no such document.
        ServiceUnavailable: Postgres is away.
    """
    with reads() as reader:
        found = document_named(reader, document, as_uri=source_uri(document))
        return Attempts(found.id, found.uri, attempts_of(reader, found.id, stage))


def _json(attempt: AttemptRow) -> dict[str, Any]:
    return {
        "id": attempt.id,
        "run": attempt.run_id,
        "stage": attempt.stage,
        "unit": attempt.unit_id,
        "ordinal": attempt.ordinal,
        "call": attempt.call_id,
        "position": attempt.position,
        "target": attempt.target,
        "preset": attempt.preset,
        "outcome": attempt.outcome,
        "kind": attempt.kind,
        "skipped": [{"target": skip.get("target"), "reason": skip.get("reason")} for skip in attempt.skipped],
        "status": attempt.status,
        "message": attempt.message,
        "started_at": attempt.started_at.isoformat(),
        "ttft_ms": attempt.ttft_ms,
        "duration_ms": attempt.duration_ms,
        "tokens_in": attempt.tokens_in,
        "tokens_out": attempt.tokens_out,
        "cost_usd": attempt.cost_usd,
        "cooldown_until": attempt.cooldown_until.isoformat() if attempt.cooldown_until else None,
        "worker": attempt.worker,
    }
