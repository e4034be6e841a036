"""Takes in the awkward real files with the local chains, and holds what came out beside what is right.

    python -m tests.acceptance.corpus [--one-by-one] [FILE…]

prints a line a file, the misses and what it all took; it ends with 1 when there is a miss. The files lie beside the
repository, in ``../shared/corpus`` with an ``expected.json``; nothing is done where they are absent.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.settings import Settings
from pipeline.show import show
from tests.acceptance.command import REPO, Tidegate
from tests.acceptance.memory import Peaks
from worker.bootstrap import Container, open_container
from worker.cli.reading import search_for

__all__ = ["CORPUS", "Outcome", "expected", "misses", "stack", "take_in"]

CORPUS = REPO.parent / "shared" / "corpus"
_TOP = 5


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    Attributes:
        pages: None where the file was not parsed.
        text: All pages' Markdown as ``show`` prints it.
        ranks: For each text that is to be there, the place of its document among the hits for it (1 is best); None
            where it isn't among the first five.
        seconds: From its enqueuing to its end. Files enqueued together wait for each other.
    """

    state: str
    kind: str | None
    pages: int | None
    text: str = field(repr=False)
    ranks: dict[str, int | None]
    model_calls: int
    seconds: float


def expected() -> dict[str, dict[str, Any]]:
    """What is right, by file name; empty where the corpus is absent."""
    listed = CORPUS / "expected.json"
    if not listed.exists():
        return {}
    files: dict[str, dict[str, Any]] = json.loads(listed.read_text(encoding="utf-8"))["files"]
    return files


@contextmanager
def stack(folder: Path) -> Iterator[Tidegate]:
    """An embedded stack for the time of the block, with the local chains and nothing else."""
    tidegate = Tidegate(folder, timeout_s=1200)
    with tidegate.up("--no-flower"):
        yield tidegate


def take_in(tidegate: Tidegate, names: Sequence[str], *, one_by_one: bool = False) -> Iterator[tuple[str, Outcome]]:
    """Enqueue the files and wait for all, then yield what became of each.

    A file whose time is bounded is taken in before the others, alone.
    """
    right = expected()
    alone = list(names) if one_by_one else [name for name in names if "seconds" in right.get(name, {})]
    together = [name for name in names if name not in alone]
    ended: dict[str, dict[str, Any]] = {}
    for batch in [*([name] for name in alone), *([together] if together else [])]:
        paths = [CORPUS / name for name in batch]
        waited = tidegate.json("enqueue", *paths, "--collection", "corpus", "--wait", code=None)
        ended |= {Path(one["path"]).name: one for one in waited["documents"]}
    reports = {Path(one["path"]).name: one for one in tidegate.json("status", "--collection", "corpus")["documents"]}
    # Read in this process: a command a question would take longer than the ingest.
    with open_container(Settings(home=tidegate.home)) as container:
        for name in names:
            wanted = right.get(name, {}).get("has", [])
            yield name, _outcome(container, ended[name], reports.get(name), wanted)


def _outcome(
    container: Container, ended: dict[str, Any], report: dict[str, Any] | None, wanted: Sequence[str]
) -> Outcome:
    if report is None:
        return Outcome(ended["state"], None, None, "", {}, 0, 0.0)
    document = report["id"]
    pages = show(container.sessions, document).to_json()["pages"] if report["pages"] else []
    failure = report["failure"] or {}
    return Outcome(
        state=ended["state"],
        kind=failure.get("kind"),
        pages=report["pages"],
        text="\n\n".join(page["markdown"] for page in pages),
        ranks={words: _rank(container, words, document) for words in wanted if report["live"]},
        model_calls=report["attempts"],
        seconds=_seconds_between(report["created_at"], report["finished_at"]),
    )


def _rank(container: Container, words: str, document: str) -> int | None:
    found = search_for(container, words, collection="corpus", k=_TOP, mode="hybrid")
    hits = found.to_json()["hits"]
    return next((place for place, hit in enumerate(hits, 1) if hit["document"] == document), None)


def _seconds_between(start: str, end: str | None) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() if end else 0.0


def misses(outcome: Outcome, right: dict[str, Any]) -> list[str]:
    """What is not as it should be, one line each."""
    if outcome.state == "rejected" and right.get("may_be_rejected_at_enqueue"):
        return []
    found = []
    for what, value in (("state", outcome.state), ("kind", outcome.kind), ("pages", outcome.pages)):
        wanted = _one_of(right[what]) if what in right else [value]
        if value not in wanted:
            found.append(f"{what} is {value}, not {' or '.join(map(str, wanted))}")
    text = _folded(outcome.text)
    found += [f"its text lacks {words!r}" for words in right.get("has", []) if _folded(words) not in text]
    found += [f"its text has {words!r}" for words in right.get("lacks", []) if _folded(words) in text]
    # A single word may well be in other documents as often.
    lost = [words for words, place in outcome.ranks.items() if place is None and len(words.split()) > 1]
    found += [f"it is not found by {words!r}" for words in lost]
    if outcome.model_calls > right.get("model_calls", outcome.model_calls):
        found.append(f"{outcome.model_calls} model calls, not {right['model_calls']}")
    if outcome.seconds > right.get("seconds", outcome.seconds):
        found.append(f"{outcome.seconds:.1f} s, not {right['seconds']}")
    return found


def _one_of(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def main(words: Sequence[str] | None = None) -> int:
    """Print what became of the corpus."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.corpus", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="names in the corpus; all of them when none is given")
    parser.add_argument("--one-by-one", action="store_true", help="one file at a time, for the time that each takes")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write each file's Markdown there")
    asked = parser.parse_args(words)
    right = expected()
    if not right:
        print(f"{CORPUS} is not here: nothing to do")
        return 0
    unknown = sorted(set(asked.files) - set(right))
    if unknown:
        parser.error(f"{', '.join(unknown)}: not in {CORPUS / 'expected.json'}")
    names = asked.files or sorted(right)
    wrong: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="tidegate-corpus-") as folder, stack(Path(folder)) as tidegate:
        processes = tidegate.json("status")["processes"]
        peaks = Peaks([one["pid"] for one in processes])
        print(f"{'file':<26} {'state':<8} {'why':<18} {'pages':>5} {'calls':>5} {'s':>6}  places in search")
        began = time.monotonic()
        with peaks.watched():
            for name, outcome in take_in(tidegate, names, one_by_one=asked.one_by_one):
                places = " ".join("–" if place is None else str(place) for place in outcome.ranks.values())
                pages = "–" if outcome.pages is None else outcome.pages
                print(
                    f"{name:<26} {outcome.state:<8} {outcome.kind or '':<18} {pages:>5} {outcome.model_calls:>5}"
                    f" {outcome.seconds:>6.1f}  {places}",
                    flush=True,
                )
                found = misses(outcome, right[name])
                if found:
                    wrong[name] = found
                if asked.keep:
                    asked.keep.mkdir(parents=True, exist_ok=True)
                    (asked.keep / f"{name}.md").write_text(outcome.text, encoding="utf-8")
        print(f"\n{time.monotonic() - began:.0f} s in all, the commands' own time included. Peaks of memory:")
        for program, peak in peaks.by_program().items():
            print(f"{peak / 2**20:>8.0f} MB  {program}")
    count = sum(map(len, wrong.values()))
    print(f"\n{len(names)} files, {count} misses" + (":" if count else "."))
    for name, found in wrong.items():
        for miss in found:
            print(f"  {name}: {miss}")
    return 1 if wrong else 0


if __name__ == "__main__":
    # Told to end, it stops its stack like anybody else's.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
