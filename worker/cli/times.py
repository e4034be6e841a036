"""Times and durations for people."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline.clock import wall_now_s

__all__ = ["clock", "duration"]

_DAY_S = 86_400


def clock(moment: datetime) -> str:
    """A moment in local time: ``14:32:10``, with its date unless it is today."""
    local = moment.astimezone()
    today = datetime.fromtimestamp(wall_now_s(), UTC).astimezone().date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M:%S}"


def duration(seconds: float) -> str:
    """``0.9 s``, ``48 s``, ``6 min``, ``2 h 5 min``, ``3 days``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * _DAY_S:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
    return f"{seconds / _DAY_S:.0f} days"
