"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["machine"]

_PACKAGES = ("aiohttp", "litellm", "openai", "orjson", "psycopg", "redis", "sqlalchemy")


def machine() -> dict[str, Any]:
    """CPU, cores, load now, and versions; nothing that names the host."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(load, 1) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
