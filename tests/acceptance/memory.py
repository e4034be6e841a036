"""The most memory that a stack's processes took while something ran."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Peaks"]

_EVERY_S = 0.25
_PEAK = re.compile(rb"VmHWM:\s+(\d+) kB")


class Peaks:
    """Samples what the kernel keeps of each process's peak; of a child that lives shorter than a sample, nothing.

    Args:
        pids: The processes to look at, with their children at any depth.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = frozenset(pids)
        self._peak_bytes: dict[tuple[int, str], int] = {}

    @contextmanager
    def watched(self) -> Iterator[Peaks]:
        """Sample for the time of the block."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_EVERY_S):
                self._sample()

        thread = threading.Thread(target=watch, name="peaks")
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def by_program(self) -> dict[str, int]:
        """The largest process of each program, in bytes, the largest first."""
        largest: dict[str, int] = {}
        for (_, program), peak in self._peak_bytes.items():
            largest[program] = max(peak, largest.get(program, 0))
        return dict(sorted(largest.items(), key=lambda item: -item[1]))

    def _sample(self) -> None:
        parents = _parents()
        roots = self._pids
        for pid in parents:
            line = [pid]
            while line[-1] not in roots and line[-1] in parents:
                line.append(parents[line[-1]])
            if line[-1] in roots:
                self._note(pid)

    def _note(self, pid: int) -> None:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            peak = _PEAK.search(Path(f"/proc/{pid}/status").read_bytes())
        except OSError:
            return
        if peak is not None:
            key = pid, _program([word.decode("utf-8", "replace") for word in words if word])
            self._peak_bytes[key] = int(peak[1]) * 1024


def _parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                # "pid (name) state ppid …", where the name may hold anything.
                stat = (folder / "stat").read_text(errors="replace").rpartition(") ")[2].split()
            except OSError:
                continue
            found[int(folder.name)] = int(stat[1])
    return found


def _program(words: list[str]) -> str:
    """``worker --queues describe``, ``pipeline.documents.child``, ``postgres``: what tells programs apart."""
    if not words:
        return "?"
    if "-m" in words:
        module, *rest = words[words.index("-m") + 1 :]
        return " ".join([module, *(word for word in rest if "/" not in word and not word.isdecimal())][:4])
    return Path(words[0].split(":")[0].split(" ")[0]).name
