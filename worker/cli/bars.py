"""Bars made of block characters, an eighth of a cell fine."""

from __future__ import annotations

__all__ = ["bar"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(done: int, total: int, cells: int = 10) -> str:
    """``████████▌░``; full only when all is done."""
    if total <= 0:
        return "░" * cells
    eighths = min(done, total) * cells * 8 // total
    full, rest = divmod(eighths, 8)
    part = _EIGHTHS[rest] if rest else ""
    return "█" * full + part + "░" * (cells - full - len(part))
