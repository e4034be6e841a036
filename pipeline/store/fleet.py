"""The fleet as its rows show it: who lives, who takes from which queue, and whether the beat beats."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.domain.unit import Queue
from pipeline.store.reader import Reader

__all__ = ["FRESH_S", "FleetRow", "Pulse", "fresh_workers", "pulse", "slots_by_queue"]

FRESH_S = 30.0
"""A process whose heartbeat is older than this is taken for gone."""


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A process.

    Attributes:
        slots: Slices that it carries out at once.
        cpu_slots: Of these, slices of the queue parse.
        draining: It was told to end, and takes nothing more.
        silent_s: Since its last heartbeat.
    """

    id: str
    role: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    cpu_slots: int
    draining: bool
    silent_s: float


def fresh_workers(reader: Reader) -> list[FleetRow]:
    """The processes whose heart beats."""
    return [
        FleetRow(**{**row._asdict(), "queues": tuple(row.queues)}) for row in reader.rows(_FRESH, {"fresh_s": FRESH_S})
    ]


_FRESH = """
    select id, role, host, pid, queues, slots, cpu_slots, draining,
           extract(epoch from now() - heartbeat_at)::float as silent_s
    from worker where heartbeat_at > now() - make_interval(secs => %(fresh_s)s)
    order by role, id
"""


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


def pulse(reader: Reader) -> Pulse:
    """The latest sign of life of any beat."""
    return next((Pulse(row.id, row.silent_s) for row in reader.rows(_PULSE)), Pulse())


_PULSE = """
    select id, extract(epoch from clock_timestamp() - heartbeat_at)::float as silent_s
    from worker where role = 'beat' order by heartbeat_at desc limit 1
"""


def slots_by_queue(reader: Reader) -> dict[Queue, int]:
    """Slots of the fleet for each queue; a worker of several queues counts its slots for each of them."""
    slots = dict.fromkeys(Queue, 0)
    for worker in fresh_workers(reader):
        for queue in Queue:
            if queue.value in worker.queues and not worker.draining:
                slots[queue] += worker.cpu_slots if queue is Queue.PARSE else worker.slots
    return slots
