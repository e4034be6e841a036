"""Seeded damage to files of every kind, each parsed as the worker does: always a state, never a crash or a hang.

    python -m tests.fuzz --seconds 600 --seed 7 --jobs 2
    python -m tests.fuzz --seed 7 --case 1234            # one case again

A case is made of the seed and its number alone. What goes wrong is written to ``--out``: the file, and what it did.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import SystemRandom

from tests.fuzz.run import Fuzz, Report

_MAX_SEED = 1_000_000


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Damage files and parse them.")
    words.add_argument("--seconds", type=float, default=300.0)
    words.add_argument("--seed", type=int, default=None, help="repeats a run; drawn and printed when left out")
    words.add_argument("--case", type=int, default=None, help="only this one")
    words.add_argument("--kind", default="", help="only files whose name ends in this")
    words.add_argument("--jobs", type=int, default=2)
    words.add_argument("--out", type=Path, default=Path("build") / "fuzz")
    options = words.parse_args()
    seed = SystemRandom().randrange(_MAX_SEED) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    fuzz = Fuzz(seed, options.out, kind=options.kind)
    if options.case is not None:
        report = Report(seed)
        report.note(fuzz.case(options.case))
    else:
        report = fuzz.run(seconds=options.seconds, jobs=options.jobs, say=lambda line: print(line, flush=True))
    print(report)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
