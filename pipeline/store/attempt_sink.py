"""Attempts made durable as they happen: ``begin`` is committed before the upstream call, ``end`` after it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Executable, func, insert, select, text, update
from sqlalchemy.orm import Session, sessionmaker

from pipeline.domain.call import Outcome, Skip, TryRecord
from pipeline.domain.errors import ServiceUnavailable
from pipeline.failover.records import AttemptStart, CallContext
from pipeline.store.patience import outlasting
from pipeline.store.schema import Attempt, Base, Unit, Worker

__all__ = ["PostgresAttemptSink", "close_lost_attempts"]

_ATTEMPT = Base.metadata.tables[Attempt.__tablename__]
# In the statement itself, since there is no transaction around it: it holds until the commit that follows.
_NOT_SYNCHRONOUS = func.set_config("synchronous_commit", "off", True)
_INSERT = insert(_ATTEMPT).returning(_ATTEMPT.c.id, _NOT_SYNCHRONOUS)
# Guarded: an attempt that the reconciler has closed as lost stays so. What it cost is added to its collection's day.
_END = text(
    """
    with ended as (
        update attempt
        set outcome = :outcome, kind = :kind, status = :status, message = :message, ttft_ms = :ttft_ms,
            duration_ms = :duration_ms, tokens_in = :tokens_in, tokens_out = :tokens_out, cost_usd = :cost_usd,
            cooldown_until = :cooldown_until
        where id = :attempt and outcome = 'running'
        returning id, run_id, cost_usd
    ), spent as (
        insert into spend (collection_id, day, cost_usd)
        select run.collection_id, (now() at time zone 'UTC')::date, ended.cost_usd
        from ended join run on run.id = ended.run_id
        where ended.cost_usd > 0
        on conflict (collection_id, day) do update set cost_usd = spend.cost_usd + excluded.cost_usd
    )
    select id, set_config('synchronous_commit', 'off', true) from ended
    """
)
_LATE_PAUSE_S = 0.5


class PostgresAttemptSink:
    """Writes attempt rows (port ``AttemptSink``). The loop never touches Postgres: a bounded executor does.

    Each write is one statement that commits itself: this happens twice a model call, and BEGIN, settings and COMMIT
    would be round trips of their own. ``synchronous_commit`` is off for these: an attempt that a power cut swallows is
    a line of history, while the result that was paid for is committed with its unit.

    What is to be said of a call that has been made is never a reason to lose its answer: when Postgres is away, the
    row is written as soon as it is back. Until then the attempt reads as running.
    """

    def __init__(self, sessions: sessionmaker[Session], executor: Executor) -> None:
        self._sessions = sessions
        self._executor = executor
        self._late: set[asyncio.Task[None]] = set()

    async def aclose(self, patience_s: float = 2.0) -> None:
        """Give rows that are late a last moment; the reconciler closes the attempts of those that don't make it."""
        if self._late:
            await asyncio.wait(self._late, timeout=patience_s)
        for task in self._late:
            task.cancel()

    async def begin(self, start: AttemptStart) -> int:
        """See ``AttemptSink.begin``."""
        row = _whose(start.context, start.role) | {
            "position": start.position,
            "target": start.target,
            "preset": start.preset,
            "skipped": _skips(start.skipped),
        }
        attempt_id: int = await self._write(_INSERT, row)
        return attempt_id

    async def end(self, attempt_id: int, record: TryRecord) -> None:
        """See ``AttemptSink.end``."""
        usage = record.usage
        values = {
            "attempt": attempt_id,
            "outcome": record.outcome.value,
            "kind": record.kind,
            "status": record.status,
            "message": record.message,
            "ttft_ms": _ms(record.ttft_s),
            "duration_ms": _ms(record.duration_s),
            "tokens_in": usage.tokens_in if usage else None,
            "tokens_out": usage.tokens_out if usage else None,
            "cost_usd": usage.cost_usd if usage else None,
            "cooldown_until": _moment(record.cooldown_until),
        }
        await self._write_surely(_END, values)

    async def exhausted(self, context: CallContext, role: str, position: int, skipped: tuple[Skip, ...]) -> None:
        """See ``AttemptSink.exhausted``."""
        row = _whose(context, role) | {
            "position": position,
            "outcome": Outcome.EXHAUSTED.value,
            "skipped": _skips(skipped),
            "duration_ms": 0,
        }
        await self._write_surely(_INSERT, row)

    async def _write(self, statement: Executable, values: Mapping[str, Any]) -> Any:
        """The id of the row written; None when there was none to write."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._commit, statement, values)

    async def _write_surely(self, statement: Executable, values: Mapping[str, Any]) -> None:
        """Write now, or as soon as Postgres is back."""
        try:
            await self._write(statement, values)
        except ServiceUnavailable:
            task = asyncio.get_running_loop().create_task(self._write_late(statement, values))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def _write_late(self, statement: Executable, values: Mapping[str, Any]) -> None:
        await asyncio.sleep(_LATE_PAUSE_S)
        await outlasting(lambda: self._write(statement, values))

    def _commit(self, statement: Executable, values: Mapping[str, Any]) -> Any:
        with self._sessions() as session:
            connection = session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
            return connection.execute(statement, values).scalar_one_or_none()


def close_lost_attempts(session: Session, fresh_s: float, hard_deadline_s: float) -> int:
    """Close the attempts whose worker is gone; returns how many.

    An attempt is lost when its unit is no longer leased by the worker that began it (an attempt of a live lease ends
    before its unit does), or when it is older than any call may be. ``fresh_s`` spares what has only just begun.
    """
    held = (
        select(Unit.id)
        .where(Unit.id == Attempt.unit_id, Unit.state == "leased", Unit.leased_by == Attempt.worker)
        .exists()
    )
    alive = (
        select(Worker.id)
        .where(Worker.id == Attempt.worker, Worker.heartbeat_at > func.now() - timedelta(seconds=2 * fresh_s))
        .exists()
    )
    lost = (
        Attempt.outcome == Outcome.RUNNING.value,
        Attempt.started_at < func.now() - timedelta(seconds=fresh_s),
        (Attempt.unit_id.is_not(None) & ~held)
        | ((Attempt.unit_id.is_(None)) & ~alive)
        | (Attempt.started_at < func.now() - timedelta(seconds=hard_deadline_s)),
    )
    rows = session.scalars(
        update(Attempt)
        .where(*lost)
        .values(outcome=Outcome.LOST.value)
        .returning(Attempt.id)
        .execution_options(synchronize_session=False)
    )
    return len(rows.all())


def _whose(context: CallContext, role: str) -> dict[str, Any]:
    return {
        "run_id": context.run_id,
        "unit_id": context.unit_id,
        "stage": context.stage,
        "role": role,
        "call_id": context.call_id,
        "worker": context.worker,
    }


def _skips(skipped: Sequence[Skip]) -> list[dict[str, Any]]:
    return [
        {"target": skip.target, "reason": skip.reason.value, "until": skip.until, "detail": skip.detail}
        for skip in skipped
    ]


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _moment(epoch_s: float | None) -> datetime | None:
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC)
