"""One upstream call, without policy: the fast lane, litellm, and local models behind one port.

Importing this package imports neither litellm nor any model runtime.
"""

from pipeline.providers.base import Providers, lane_of
from pipeline.providers.openai import OPENAI_BASE_URL

__all__ = ["OPENAI_BASE_URL", "Providers", "lane_of"]
