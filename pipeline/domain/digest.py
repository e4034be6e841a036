"""Digests that say whether two pieces of work are the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

__all__ = ["digest_of", "text_digest"]


def digest_of(*parts: Any) -> str:
    """SHA-256 of JSON-able values, written canonically: equal values give equal digests on every host."""
    wire = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(wire.encode("ascii")).hexdigest()


def text_digest(text: str) -> str:
    """SHA-256 of a text; lone surrogates, which some files hold, count as themselves."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
