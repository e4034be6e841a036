"""The processes that a process has started."""

from __future__ import annotations

from pathlib import Path

from worker.embedded.process import ProcessId

__all__ = ["children_of", "descendants_of"]


def children_of(pid: int) -> list[ProcessId]:
    """Those that now run and whose parent it is."""
    return [child for child, parent in _parents().items() if parent == pid]


def descendants_of(pid: int) -> list[ProcessId]:
    """Its children and theirs, at any depth, the nearest first."""
    parents = _parents()
    found: list[ProcessId] = []
    line = {pid}
    while line:
        born = [child for child, parent in parents.items() if parent in line]
        found += born
        line = {child.pid for child in born}
    return found


def _parents() -> dict[ProcessId, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or (identity := ProcessId.of(int(entry.name))) is None:
            continue
        try:
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # The name is in parentheses and may hold anything; then come the state and the parent.
        found[identity] = int(stat.rpartition(")")[2].split()[1])
    return found
