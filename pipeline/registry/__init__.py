"""The cooldown registry on Redis, and what carries on while it is away."""

from __future__ import annotations

from pipeline.registry.fallback import FallbackRegistry
from pipeline.registry.redis import RedisRegistry, connect_to

__all__ = ["FallbackRegistry", "RedisRegistry", "connect_to"]
