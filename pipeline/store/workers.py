"""The fleet: one row a process, with its role, queues, slots and heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from pipeline.domain.unit import Queue
from pipeline.store.schema import Worker

__all__ = ["FRESH_S", "beat", "forget_old_workers", "forget_worker", "fresh_workers", "slots_by_queue"]

FRESH_S = 30.0
"""A process whose heartbeat is older than this is taken for gone."""


def beat(
    session: Session,
    worker_id: str,
    *,
    role: str,
    host: str,
    pid: int,
    queues: Sequence[str] = (),
    slots: int = 0,
    cpu_slots: int = 0,
) -> None:
    """Say that a process is alive; its first call makes its row.

    Args:
        slots: Slices that it carries out at once.
        cpu_slots: Of these, slices of the queue parse.
    """
    work = {"slots": slots, "cpu_slots": cpu_slots}
    statement = insert(Worker).values(id=worker_id, role=role, host=host, pid=pid, queues=list(queues), **work)
    session.execute(statement.on_conflict_do_update(index_elements=["id"], set_={"heartbeat_at": func.now(), **work}))


def forget_worker(session: Session, worker_id: str) -> None:
    """A process ends in good order."""
    session.execute(delete(Worker).where(Worker.id == worker_id).execution_options(synchronize_session=False))


def forget_old_workers(session: Session, after_s: float) -> None:
    """Drop the rows of processes that have been silent for so long that nobody asks after them."""
    session.execute(
        delete(Worker)
        .where(Worker.heartbeat_at < func.now() - timedelta(seconds=after_s))
        .execution_options(synchronize_session=False)
    )


def fresh_workers(session: Session) -> list[Worker]:
    """The processes whose heart beats."""
    return list(
        session.scalars(
            select(Worker)
            .where(Worker.heartbeat_at > func.now() - timedelta(seconds=FRESH_S))
            .order_by(Worker.role, Worker.id)
        )
    )


def slots_by_queue(session: Session) -> dict[Queue, int]:
    """Slots of the fleet for each queue; a worker of several queues counts its slots for each of them."""
    slots = dict.fromkeys(Queue, 0)
    for worker in fresh_workers(session):
        for queue in Queue:
            if queue.value in worker.queues:
                slots[queue] += worker.cpu_slots if queue is Queue.PARSE else worker.slots
    return slots
