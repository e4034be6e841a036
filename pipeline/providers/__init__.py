"""One upstream call, without policy: the fast lane, litellm, and local models behind one port.

Importing this package imports neither litellm nor any model runtime, and no HTTP client before a provider is asked
for: the command line reads the catalog of local models from below here.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.providers.base import Providers, lane_of

__all__ = ["Providers", "lane_of"]


def __getattr__(name: str) -> Any:
    if name in ("Providers", "lane_of"):
        from pipeline.providers import base

        return getattr(base, name)
    raise AttributeError(name)
