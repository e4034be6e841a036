"""How good search and OCR are with the local models, and what the retrieval stage adds.

    python -m benchmarks.quality [--quick] [--only search|ocr] [--without FILE …] [--json FILE]

It takes the examples, and the corpus beside the repository where it is there, into two collections of an embedded
stack: one with the retrieval stage, one without. Then it asks:

* questions that people would ask (``benchmarks.questions``); their page sets are the pages that hold the answer;
* one passage a page, made from the stored pages: telling words of its middle; their page sets are all the pages that
  hold that passage.

recall@5 is the share of a set's pages that the first five hits cover (of five, should there be more), averaged. Beside
it stands what the local OCR reads of pages whose text is known. All of it is without chance: the same models, files and
code give the same table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.accuracy import Reading, known_texts, read_all
from benchmarks.machine import machine
from benchmarks.questions import CORPUS_QUESTIONS, EXAMPLE_QUESTIONS, Question
from examples.make import FILES, HERE
from pipeline.providers.local.cues import is_common
from pipeline.providers.local.embeddings import WordVectors
from pipeline.providers.local.words import is_spaceless, plain, sentences, tokens
from pipeline.search import Hit, Mode, search
from pipeline.settings import Settings
from pipeline.show import show
from tests.acceptance.command import REPO, Tidegate
from worker.bootstrap import Container, open_container

__all__ = ["Asked", "Score", "main", "measure", "passages", "recall", "table"]

CORPUS = REPO.parent / "shared" / "corpus"
TOP = 5
STAGES = {"with": "cued", "without": "plain"}
_CONFIG = "collections:\n  cued: {}\n  plain: {retrieve: {when: never}}\n"
_QUICK = ("tide-gate-handbook.pdf", "incident-2025-11-14.md", "storm-inspection-zh.pdf", "ferry-notice-ko.pdf")
_NO_DOCUMENTS = frozenset({"SOURCES.md", "expected.json"})
_LEAST_WORDS = 6
_PASSAGE_CHARS = 12

Page = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query with the pages (file name, number) that answer it."""

    kind: str
    query: str
    pages: frozenset[Page]


@dataclass(frozen=True, slots=True)
class Score:
    """recall@5 of one kind of queries in one mode.

    Attributes:
        retrieve: ``with`` or ``without`` the retrieval stage.
        missed: The queries that found none of their pages.
    """

    kind: str
    retrieve: str
    mode: str
    queries: int
    recall: float
    missed: list[str]


def recall(hits: Iterable[Hit], pages: frozenset[Page]) -> float:
    """The share of ``pages`` that the hits cover, of as many as there are hits."""
    covered = {
        (Path(hit.chunk.uri).name, number)
        for hit in hits
        for number in range(hit.chunk.page_from, hit.chunk.page_to + 1)
    }
    return min(1.0, len(covered & pages) / min(len(pages), TOP))


def asked_of(questions: Sequence[Question], stored: Mapping[str, Mapping[int, str]]) -> list[Asked]:
    """Questions with the pages of their document that hold the answer."""
    made = []
    for one in questions:
        pages = stored.get(one.file)
        if not pages:
            continue
        wanted = _solid(one.answer)
        holding = [number for number, markdown in pages.items() if wanted in _solid(markdown)] or list(pages)
        kind = (
            "questions" if one.text.isascii() or not _is_eastern(one.text) else "questions in Chinese, Japanese, Korean"
        )
        made.append(Asked(kind, one.text, frozenset((one.file, number) for number in holding)))
    return made


def passages(stored: Mapping[str, Mapping[int, str]]) -> list[Asked]:
    """One query a page that says enough: telling words of its middle sentence."""
    solid = {(file, number): _solid(text) for file, pages in stored.items() for number, text in pages.items()}
    made = []
    for file, pages in stored.items():
        for markdown in pages.values():
            passage = _passage(markdown)
            if passage is not None:
                query, wanted = passage
                holding = frozenset(page for page, text in solid.items() if _solid(wanted) in text)
                if holding and any(page[0] == file for page in holding):
                    made.append(Asked("passages", query, holding))
    return list(dict.fromkeys(made))


def _passage(markdown: str) -> tuple[str, str] | None:
    """A query and the passage that it is from."""
    said = [
        one for one in sentences(plain(markdown)) if sum(not is_common(word) for word in tokens(one)) >= _LEAST_WORDS
    ]
    if not said:
        return None
    sentence = said[len(said) // 2]
    if sum(map(is_spaceless, sentence)) > len(sentence) // 2:
        middle = max(0, len(sentence) // 2 - _PASSAGE_CHARS // 2)
        cut = sentence[middle : middle + _PASSAGE_CHARS]
        return cut, cut
    words = [word for word in sentence.split() if not is_common(word.casefold().strip(".,;:()")) and len(word) > 2]
    return " ".join(words[: _LEAST_WORDS + 2]), " ".join(sentence.split()[:_LEAST_WORDS])


def _solid(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())


def _is_eastern(text: str) -> bool:
    return any(is_spaceless(char) or "\uac00" <= char <= "\ud7a3" for char in text)


def measure(files: Sequence[Path], questions: Sequence[Question], folder: Path) -> list[Score]:
    """Take the files in, with and without the retrieval stage, and ask."""
    (folder / "tidegate.yaml").write_text(_CONFIG)
    tidegate = Tidegate(folder, timeout_s=1800)
    with tidegate.up("--no-flower"):
        for collection in STAGES.values():
            tidegate.json("enqueue", *files, "--collection", collection, "--wait", code=None)
        with open_container(Settings(home=tidegate.home)) as container:
            return _scores(container, tidegate, questions)


def _scores(container: Container, tidegate: Tidegate, questions: Sequence[Question]) -> list[Score]:
    vectors = WordVectors()
    stored = {}
    for document in tidegate.json("status", "--collection", STAGES["with"])["documents"]:
        if document["live"]:
            pages = show(container.sessions, document["id"]).to_json()["pages"]
            stored[Path(document["path"]).name] = {page["number"]: page["markdown"] for page in pages}
    asked = [*asked_of(questions, stored), *passages(stored)]
    scores = []
    for kind in dict.fromkeys(one.kind for one in asked):
        of_kind = [one for one in asked if one.kind == kind]
        for retrieve, collection in STAGES.items():
            for mode in (Mode.TEXT, Mode.VECTOR, Mode.HYBRID):
                recalls = {
                    (one.query, one.pages): recall(_found(container, one.query, collection, mode, vectors), one.pages)
                    for one in of_kind
                }
                missed = [query for (query, _), value in recalls.items() if value == 0]
                mean = statistics.fmean(recalls.values())
                scores.append(Score(kind, retrieve, mode.value, len(of_kind), mean, missed))
    return scores


def _found(container: Container, query: str, collection: str, mode: Mode, vectors: WordVectors) -> list[Hit]:
    def embed(_: object) -> list[float]:
        return vectors.embed([query])[0][0]

    return search(container.sessions, query, collection=collection, k=TOP, mode=mode, embed=embed).hits


def table(scores: Sequence[Score], readings: Sequence[Reading]) -> str:
    """Both as Markdown."""
    lines = []
    if scores:
        lines += ["| recall@5 | retrieval stage | text | vector | hybrid |", "| --- | --- | ---: | ---: | ---: |"]
    for kind in dict.fromkeys(score.kind for score in scores):
        for retrieve in STAGES:
            row = {s.mode: s for s in scores if (s.kind, s.retrieve) == (kind, retrieve)}
            cells = " | ".join(f"{row[mode].recall:.2f}" for mode in ("text", "vector", "hybrid"))
            lines.append(f"| {row['text'].queries} {kind} | {retrieve} | {cells} |")
    if readings:
        lines += ["", "| OCR of | characters | right |", "| --- | ---: | ---: |"]
    lines += [f"| {one.name} | {one.characters:,} | {one.accuracy:.1%} |" for one in readings]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four examples and two scans: does it run at all")
    parser.add_argument("--only", choices=["search", "ocr"], help="this half alone")
    parser.add_argument("--without", nargs="+", default=[], metavar="FILE", help="leave these of the corpus out")
    parser.add_argument("--json", type=Path, help="write everything here")
    given = parser.parse_args(arguments)
    corpus = CORPUS if CORPUS.is_dir() and not given.quick else None
    files = [HERE / name for name in (_QUICK if given.quick else FILES)]
    left_out = _NO_DOCUMENTS | set(given.without)
    files += sorted(path for path in corpus.iterdir() if path.name not in left_out) if corpus else []
    questions = (*EXAMPLE_QUESTIONS, *(CORPUS_QUESTIONS if corpus else ()))
    before = machine()
    readings: list[Reading] = []
    scores: list[Score] = []
    if given.only != "search":
        known = list(known_texts(corpus))
        readings = read_all(known[1:3] if given.quick else known)
    if given.only != "ocr":
        with tempfile.TemporaryDirectory(prefix="tidegate-quality-") as folder:
            scores = measure(files, questions, Path(folder))
    after = machine()["load"]
    print(table(scores, readings))
    for score in scores:
        if score.missed:
            print(f"\n{score.mode}, {score.retrieve} retrieval, missed of {score.kind}: {' · '.join(score.missed)}")
    print(f"\n{before['cpu']}, {before['cores']} cores, load {before['load'][0]} before and {after[0]} after")
    if given.json is not None:
        shown: dict[str, Any] = {
            "machine": before,
            "load_after": after,
            "scores": [asdict(one) for one in scores],
            "readings": [asdict(one) for one in readings],
        }
        given.json.write_bytes(orjson.dumps(shown, option=orjson.OPT_INDENT_2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
