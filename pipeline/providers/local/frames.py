"""How the pool and its children talk over pipes.

A frame is two lengths (unsigned 32-bit, big-endian), a JSON document of the first length and raw bytes of the second;
answers have no raw bytes.
"""

from __future__ import annotations

import struct

__all__ = ["HEADER", "MAX_ANSWER_BYTES"]

HEADER = struct.Struct("!II")
MAX_ANSWER_BYTES = 64 * 1024 * 1024
