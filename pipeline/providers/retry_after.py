"""When an upstream said to come back: ``Retry-After``, ``retry-after-ms`` and what Google puts in its error bodies."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

__all__ = ["duration_s", "retry_after_s"]

_NAMES = frozenset({"retry-after", "retry-after-ms", "date"})
_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait, uncapped (the registry caps it), or None when the upstream said nothing usable.

    ``retry-after-ms`` is the finer one and wins. Zero, negative numbers, dates in the past and nonsense are nothing
    usable: the ordinary cooldown holds then.

    Args:
        headers: The response's headers; names in any case.
        now: Seconds since the epoch, for HTTP dates where the response does not say its own ``Date``: the clocks of
            two hosts may disagree, and an upstream's "in ten seconds" is ten seconds on its own.
    """
    lowered = {name.lower(): value for name, value in headers.items() if name.lower() in _NAMES}
    milliseconds = _positive(lowered.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = lowered.get("retry-after", "").strip()
    seconds = _positive(value)
    if seconds is not None or not value:
        return seconds
    until, said_at = _moment(value), _moment(lowered.get("date", ""))
    if until is None:
        return None
    wait = until - (now if said_at is None else said_at)
    return wait if wait > 0 else None


def duration_s(value: object) -> float | None:
    """A protobuf duration in JSON (``"30s"``, ``"1.5s"``), as Google's ``RetryInfo.retryDelay`` has it."""
    return _positive(value[:-1]) if isinstance(value, str) and value.endswith("s") else None


def _moment(date: str) -> float | None:
    """Seconds since the epoch; None where that is no HTTP date."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def _positive(text: str) -> float | None:
    text = text.strip()
    if len(text) > 32 or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if number > 0 and math.isfinite(number) else None
