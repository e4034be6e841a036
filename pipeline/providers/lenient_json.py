"""JSON as upstreams write it: fast where it is right, lenient where it is nearly."""

from __future__ import annotations

import json
from typing import Any

import orjson

__all__ = ["JsonError", "loads"]


class JsonError(ValueError):
    """The bytes are no JSON document."""


def loads(data: bytes | str) -> Any:
    """Parse a document; ``NaN``, ``Infinity`` and halves of surrogate pairs, which some servers write, are taken.

    Raises:
        JsonError: It is no JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        msg = "no JSON document"
        raise JsonError(msg) from error
