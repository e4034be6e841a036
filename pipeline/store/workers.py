"""The fleet: one row a process, with its role, queues, slots and heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from pipeline.domain.unit import Queue
from pipeline.store.schema import Worker

__all__ = [
    "FRESH_S",
    "Pulse",
    "beat",
    "forget_old_workers",
    "forget_worker",
    "fresh_workers",
    "pulse",
    "slots_by_queue",
]

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
    draining: bool = False,
) -> None:
    """Say that a process is alive; its first call makes its row.

    Args:
        slots: Slices that it carries out at once.
        cpu_slots: Of these, slices of the queue parse.
        draining: It was told to end, and takes nothing more.
    """
    work = {"slots": slots, "cpu_slots": cpu_slots, "draining": draining}
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


@dataclass(frozen=True, slots=True)
class Pulse:
    """What is known of the beat, without which nothing that is lost or parked goes on.

    Attributes:
        name: The process that beat last; None when there is no trace of one.
        silent_s: How long ago that was.
    """

    name: str | None = None
    silent_s: float = 0.0

    @property
    def trouble(self) -> str | None:
        """What is wrong with it, in words; None when it is well."""
        if self.name is None:
            return "no beat runs: nothing that is lost or parked goes on"
        if self.silent_s > FRESH_S:
            return f"the beat {self.name} has been silent for {self.silent_s:.0f} s: it hangs, or was killed"
        return None


def pulse(session: Session) -> Pulse:
    """The latest sign of life of any beat."""
    silent_s = func.extract("epoch", func.clock_timestamp() - Worker.heartbeat_at)
    row = session.execute(
        select(Worker.id, silent_s).where(Worker.role == "beat").order_by(Worker.heartbeat_at.desc()).limit(1)
    ).first()
    return Pulse() if row is None else Pulse(row[0], float(row[1]))


def slots_by_queue(session: Session) -> dict[Queue, int]:
    """Slots of the fleet for each queue; a worker of several queues counts its slots for each of them."""
    slots = dict.fromkeys(Queue, 0)
    for worker in fresh_workers(session):
        for queue in Queue:
            if queue.value in worker.queues and not worker.draining:
                slots[queue] += worker.cpu_slots if queue is Queue.PARSE else worker.slots
    return slots
