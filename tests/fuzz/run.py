"""Runs cases, several at once, and counts how they ended."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import seeds
from tests.fuzz.verdict import Verdict, judged

__all__ = ["Case", "Fuzz", "Made", "Report"]


@dataclass(frozen=True, slots=True)
class Case:
    """One damaged file and how it ended."""

    number: int
    name: str
    how: str
    verdict: Verdict
    taken_s: float


@dataclass(slots=True)
class Report:
    """Endings by kind, and what went wrong."""

    seed: int
    cases: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    wrong: list[Case] = field(default_factory=list)
    slowest: Case | None = None

    def note(self, case: Case) -> None:
        self.cases += 1
        self.endings[case.verdict.ending] += 1
        if self.slowest is None or case.taken_s > self.slowest.taken_s:
            self.slowest = case
        if case.verdict.wrong:
            self.wrong.append(case)

    def __str__(self) -> str:
        endings = ", ".join(f"{ending} {count}" for ending, count in self.endings.most_common())
        lines = [f"{self.cases} cases of seed {self.seed}: {endings}"]
        if self.slowest is not None:
            slow = self.slowest
            lines.append(f"slowest: case {slow.number}, {slow.name}, {slow.how}: {slow.taken_s:.1f} s")
        lines += [f"WRONG case {case.number}, {case.name}, {case.how}: {case.verdict.wrong}" for case in self.wrong]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Made:
    """A damaged file: whose it was, what it is called now, and what was done to it."""

    name: str
    file_name: str
    data: bytes
    how: str


class Fuzz:
    """The cases of one seed.

    Args:
        seed: With a case's number, all that decides it.
        out: Where files that went wrong are kept; made when there is one.
        kind: Only files whose name ends in this.
    """

    def __init__(self, seed: int, out: Path, *, kind: str = "") -> None:
        self._seed = seed
        self._out = out
        self._files = seeds()
        self._names = sorted(name for name in self._files if name.endswith(kind))
        if not self._names:
            raise SystemExit(f"no file's name ends in {kind!r}")

    def made(self, number: int) -> Made:
        """The file of a case."""
        # A number of both, so that neighbouring cases and seeds have nothing in common.
        rng = Random(self._seed * 1_000_003 + number)
        name = rng.choice(self._names)
        data, how = mutated(self._files[name], rng, self._files[rng.choice(sorted(self._files))])
        # Half of them without a name that tells their kind.
        return Made(name, name if rng.random() < 0.5 else "file", data, how)

    def case(self, number: int) -> Case:
        """Make a case and judge it."""
        made = self.made(number)
        with tempfile.TemporaryDirectory(prefix="tidegate-fuzz-") as folder:
            path, workdir = Path(folder) / made.file_name, Path(folder) / "work"
            path.write_bytes(made.data)
            workdir.mkdir()
            began = time.monotonic()
            verdict = judged(path, workdir)
            taken_s = time.monotonic() - began
        if verdict.wrong:
            self._keep(number, made, verdict)
        return Case(number, made.name, made.how, verdict, taken_s)

    def run(self, *, seconds: float, jobs: int, say: Callable[[str], None] = lambda _: None) -> Report:
        """Go through the cases in order until the time is up."""
        report = Report(self._seed)
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(jobs) as pool:
            for case in _as_they_end(pool, self.case, jobs, until):
                report.note(case)
                if case.verdict.wrong:
                    say(f"case {case.number}, {case.name}, {case.how}: {case.verdict.wrong}")
                if report.cases % 500 == 0:
                    say(f"{report.cases} cases, {len(report.wrong)} wrong")
        return report

    def _keep(self, number: int, made: Made, verdict: Verdict) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        stem = f"{self._seed}-{number}"
        (self._out / f"{stem}-{made.file_name}").write_bytes(made.data)
        (self._out / f"{stem}.json").write_text(verdict.as_json())


def _as_they_end(pool: ThreadPoolExecutor, case: Callable[[int], Case], jobs: int, until: float) -> Iterator[Case]:
    """At most ``jobs`` under way, so that the end of the time is the end."""
    numbers = itertools.count()
    waiting = [pool.submit(case, next(numbers)) for _ in range(jobs)]
    while waiting:
        yield waiting.pop(0).result()
        if time.monotonic() < until:
            waiting.append(pool.submit(case, next(numbers)))
