"""Dispatch: Postgres is the queue, and the broker carries only a window of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.domain.unit import Stage, queue_of
from pipeline.store.fleet import slots_by_queue
from pipeline.store.reader import reader_of
from pipeline.store.session import Sessions
from pipeline.store.window import (
    Ready,
    Slice,
    mark_dispatched,
    outstanding_slices,
    ready_units,
    scan_lock,
    unmark_dispatched,
)

__all__ = ["WAKE_TTL_S", "DispatchPolicy", "Publish", "cut_slices", "dispatch"]

WAKE_TTL_S = 120.0
"""A slice that nobody has claimed for this long is handed out again; a duplicate finds nothing to claim."""

Publish = Callable[[Sequence[Slice]], None]
"""Sends slices to the broker; raises ``ServiceUnavailable`` when it is away."""


@dataclass(frozen=True, slots=True)
class DispatchPolicy:
    """How much is handed out: units a slice, and slices for each slot of the fleet."""

    slice_units: int = 8
    window_per_slot: float = 2.0
    wake_ttl_s: float = WAKE_TTL_S


def cut_slices(ready: Sequence[Ready], slice_units: int, most: int) -> list[list[Ready]]:
    """Group units into slices of one run each, in the order in which the runs appear."""
    open_slices: dict[int, list[Ready]] = {}
    slices: list[list[Ready]] = []
    for unit in ready:
        current = open_slices.get(unit.run_id)
        if current is None or len(current) >= slice_units:
            current = open_slices[unit.run_id] = []
            slices.append(current)
        current.append(unit)
    return slices[:most]


def dispatch(sessions: Sessions, publish: Publish, policy: DispatchPolicy) -> int:
    """Fill every stage's window; returns how many slices were handed out.

    The slices are committed before they are published, and taken back when the broker does not take them.

    Raises:
        ServiceUnavailable: The broker is away; nothing is lost, and the next dispatch hands the slices out again.
    """
    slices: list[Slice] = []
    with sessions.begin() as session:
        if not scan_lock(session):
            return 0
        slots = slots_by_queue(reader_of(session))
        for stage in Stage:
            window = math.ceil(policy.window_per_slot * slots[queue_of(stage)])
            room = window - outstanding_slices(session, stage, policy.wake_ttl_s) if window else 0
            if room <= 0:
                continue
            ready = ready_units(session, stage, room * policy.slice_units)
            for units in cut_slices(ready, policy.slice_units, room):
                wake = mark_dispatched(session, [unit.id for unit in units])
                first = units[0]
                ordinals = tuple(sorted(unit.ordinal for unit in units))
                slices.append(Slice(first.run_id, first.document_id, stage, ordinals, wake, first.priority))
    if not slices:
        return 0
    try:
        publish(slices)
    except Exception:
        with sessions.begin() as session:
            unmark_dispatched(session, [piece.wake for piece in slices])
        raise
    return len(slices)
