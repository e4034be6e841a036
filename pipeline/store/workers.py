"""Signs of life: one row a process, which it writes itself; ``pipeline.store.fleet`` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import delete, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from pipeline.store.schema import Worker

__all__ = ["beat", "forget_old_workers", "forget_worker"]


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
