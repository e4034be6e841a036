"""Whether the stages' chains would take a call, asked from threads that are not the loop's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pipeline.domain.unit import Stage
from pipeline.failover.registry import BreakerState, CooldownRegistry, TargetStatus
from pipeline.failover.target import Chain, Target

__all__ = ["ChainRoom", "RegistryWatch", "room_of"]

_UNBOUNDED = 1_000_000


@dataclass(frozen=True, slots=True)
class ChainRoom:
    """How much a chain would take now.

    Attributes:
        room: Calls that may be released: 0 when it is closed, 1 for a probe, the ramp of a recovering target.
        until: Where there is no room: the soonest recovery, seconds since the epoch; None when nobody knows.
    """

    room: int
    until: float | None = None


def room_of(statuses: list[TargetStatus]) -> ChainRoom:
    """How much targets in these states would take together."""
    room = 0
    waits = []
    for status in statuses:
        match status.state:
            case BreakerState.CLOSED:
                # A target that is full is healthy: its work may be released, and waits for a permit.
                room += _UNBOUNDED if status.ramp is None else max(1, status.ramp - status.in_flight)
            case BreakerState.HALF_OPEN if not status.probing:
                room += 1
            case BreakerState.HALF_OPEN | BreakerState.OPEN:
                if status.until is not None:
                    waits.append(status.until)
            case BreakerState.DISABLED:
                pass
    return ChainRoom(min(room, _UNBOUNDED), None if room else min(waits, default=None))


class RegistryWatch:
    """Reads the registry for whole chains (port ``ChainWatch`` of ingest and reconcile)."""

    def __init__(
        self,
        registry: CooldownRegistry,
        chains: Mapping[Stage, Chain],
        run: Callable[[Coroutine[Any, Any, ChainRoom]], Future[ChainRoom]],
    ) -> None:
        self._registry = registry
        self._chains = chains
        self._run = run

    def room(
        self,
        stage: Stage,
        *,
        primary_only: bool = False,
        without: frozenset[str] = frozenset(),
        allowed: frozenset[str] | None = None,
        free_only: bool = False,
    ) -> ChainRoom:
        """How much a stage's chain would take, leaving out the targets of ``without``.

        Args:
            allowed: The presets that a collection allows; None for all.
            free_only: Leave out those that cost something.
        """
        targets = self._chains[stage].targets
        kept = [
            target
            for target in (targets[:1] if primary_only else targets)
            if target.key not in without
            and (allowed is None or target.preset in allowed)
            and (target.is_free or not free_only)
        ]
        return self._run(self._read(kept)).result()

    async def _read(self, targets: list[Target]) -> ChainRoom:
        return room_of(await self._registry.statuses(targets))
