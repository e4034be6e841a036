from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import fakeredis
import pytest

from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.registry import CooldownRegistry
from pipeline.registry.redis import RedisRegistry
from tests.unit.failover.registry_suite import Bench, RegistrySuite

# Lua that reads the test's clock instead of the server's.
TEST_CLOCK = "local function clock() return tonumber(redis.call('GET', 'test:clock') or '1000') end\n"


def memory_bench() -> Bench:
    seconds = [1000.0]

    async def advance(by: float) -> None:
        seconds[0] += by

    registry = MemoryRegistry(now=lambda: seconds[0], rng=lambda: 0.5)
    return Bench(registry, advance, lambda: registry)


def redis_bench(client: Any, prefix: str = "tidegate:test") -> Bench:
    seconds = [1000.0]

    async def advance(by: float) -> None:
        seconds[0] += by
        await client.set("test:clock", f"{seconds[0]:.6f}")

    def process() -> CooldownRegistry:
        return RedisRegistry(lambda: client, prefix, rng=lambda: 0.5, timeout_s=5, clock=TEST_CLOCK)

    return Bench(process(), advance, process)


class TestMemoryRegistry(RegistrySuite):
    @pytest.fixture
    def bench(self) -> Bench:
        return memory_bench()


class TestRedisRegistry(RegistrySuite):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[Bench]:
        client = fakeredis.FakeAsyncRedis(decode_responses=True)
        yield redis_bench(client)
        await client.aclose()
