"""How much a chain would take, as the ledger asks before it claims and before it wakes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipeline.adapters.watch import ChainRoom, RegistryWatch, room_of
from pipeline.domain.unit import Stage
from pipeline.failover.kinds import FailureKind
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.registry import Admitted, Permit, Report, Verdict
from pipeline.failover.target import Chain, Target
from tests.unit.failover.fakes import target

A, B = target("a"), target("b")


@dataclass
class Fleet:
    """A registry with a clock that the test moves."""

    now_s: float = 1000.0
    registry: MemoryRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.registry = MemoryRegistry(now=lambda: self.now_s, rng=lambda: 0.5)

    async def admit(self, to: Target) -> Permit:
        admission = await self.registry.admit(to)
        assert isinstance(admission, Admitted)
        return admission.permit

    async def cool(self, it: Target, retry_after_s: float) -> None:
        report = Report(Verdict.FAILURE, FailureKind.RATE_LIMIT, retry_after_s)
        await self.registry.report(it, await self.admit(it), report)

    async def room(self, *targets: Target) -> ChainRoom:
        return room_of(await self.registry.statuses(targets))


async def test_a_chain_with_somebody_to_call_has_room() -> None:
    fleet = Fleet()
    await fleet.cool(A, 40)
    assert (await fleet.room(A, B)).room > 1000
    assert (await fleet.room(A)) == ChainRoom(0, 1040)
    assert (await fleet.room()) == ChainRoom(0, None)


async def test_a_chain_that_cools_as_a_whole_opens_at_its_soonest_recovery_for_one_canary() -> None:
    fleet = Fleet()
    await fleet.cool(A, 40)
    await fleet.cool(B, 20)
    assert await fleet.room(A, B) == ChainRoom(0, 1020)
    fleet.now_s = 1020
    assert await fleet.room(A, B) == ChainRoom(1)
    probe = await fleet.admit(B)
    waiting = await fleet.room(A, B)
    assert waiting.room == 0, "somebody is the canary already"
    await fleet.registry.report(B, probe, Report(Verdict.SUCCESS))
    assert (await fleet.room(A, B)).room in range(1, 5), "a recovering target takes its ramp"


async def test_what_is_disabled_waits_for_a_person_and_has_no_time() -> None:
    fleet = Fleet()
    await fleet.cool(A, 40)
    for one in (A, B):
        await fleet.registry.set_disabled(one.key, True)
    assert await fleet.room(A, B) == ChainRoom(0, None)


def _now(work: Coroutine[Any, Any, ChainRoom]) -> Future[ChainRoom]:
    done: Future[ChainRoom] = Future()
    done.set_result(asyncio.run(work))
    return done


@pytest.mark.parametrize(
    ("question", "until"),
    [
        ({}, 1020),
        ({"primary_only": True}, 1040),
        ({"without": frozenset({B.key})}, 1040),
        ({"allowed": frozenset({"b"})}, 1020),
        ({"allowed": frozenset({"a"})}, 1040),
        ({"allowed": frozenset({"c"})}, None),
    ],
)
def test_a_question_is_about_the_targets_that_would_be_called(question: dict[str, Any], until: float | None) -> None:
    fleet = Fleet()

    async def outage() -> None:
        await fleet.cool(A, 40)
        await fleet.cool(B, 20)

    asyncio.run(outage())
    watch = RegistryWatch(fleet.registry, {Stage.DESCRIBE: Chain("vlm", (A, B))}, _now)
    assert watch.room(Stage.DESCRIBE, **question) == ChainRoom(0, until)
