"""What the parse stage adds to pdfium, and how long a long document takes from end to end.

    python -m benchmarks.parse [--quick] [--only SECTION] [--json FILE] [--check]

``stage`` takes pdfium alone (in this process, on one core) and the whole parse stage in turns, on the same pages: a
slice as a worker runs it, with its claim, its child, the blob store and the rows, over an embedded Postgres and a blob
folder that are durable (fsync on). With an image of every page both render and write JPEG at 1540 px; without, both
read the text layer, of which pdfium alone makes no more than a string. ``whole`` takes one document of 400 pages in
with the real command and the local chains, and watches how much memory each process takes.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pypdfium2
from rich.console import Console

from benchmarks.finding import Finding
from benchmarks.machine import machine
from examples.make import Pdf
from pipeline.cancel import cancel
from pipeline.domain.unit import Stage, When
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.migrate import upgrade
from pipeline.store.session import make_engine, make_sessions
from tests.acceptance.command import Tidegate
from tests.acceptance.memory import Peaks
from tests.integration.ledger.harness import Harness
from worker.embedded import EmbeddedPostgres

__all__ = ["digital_pdf", "images_alone", "main", "measure_stage", "measure_whole", "stage_seconds", "text_alone"]

LONG_SIDE_PX = 1540
JPEG_QUALITY = 85
PAGES = 400
_LINES, _WORDS_A_LINE = 44, 11
_BOOK = (
    "the sluice keeper writes level into book every quarter of an hour and rings office when wind turns northern gate "
    "opens below one metre eighty closes above two metres ten tide ebb harbour quay lantern drain pump house siren"
)


def digital_pdf(pages: int, seed: int) -> bytes:
    """A PDF of full pages (some 480 words each) under headings, without images; every seed gives other words."""
    book = _BOOK.split()
    rng = random.Random(seed)  # noqa: S311 -- words for a page
    pdf = Pdf(f"Sluice book {seed}")
    for number in range(1, pages + 1):
        drawing = f"BT /F1 16 Tf 60 790 Td (Section {number} of volume {seed}) Tj ET\n"
        for line in range(_LINES):
            words = " ".join(rng.choice(book) for _ in range(_WORDS_A_LINE))
            drawing += f"BT /F0 10 Tf 60 {760 - 16 * line} Td ({words} {rng.randrange(10_000)}) Tj ET\n"
        pdf.page(drawing)
    return pdf.write()


def images_alone(path: Path) -> float:
    """Seconds for pdfium to render each page and Pillow to write it as JPEG, to memory."""
    began = time.perf_counter()
    with closing(pypdfium2.PdfDocument(path)) as document:
        document.init_forms()
        for number in range(len(document)):
            with closing(document[number]) as page:
                scale = LONG_SIDE_PX / max(page.get_size())
                with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
                    bitmap.to_pil().save(BytesIO(), "JPEG", quality=JPEG_QUALITY)
    return time.perf_counter() - began


def text_alone(path: Path) -> float:
    """Seconds for pdfium to make each page's text layer, and a string of it."""
    began = time.perf_counter()
    with closing(pypdfium2.PdfDocument(path)) as document:
        for number in range(len(document)):
            with closing(document[number]) as page, closing(page.get_textpage()) as layer:
                layer.get_text_bounded()
    return time.perf_counter() - began


def stage_seconds(harness: Harness, path: Path, *, images: bool) -> float:
    """Seconds for the parse slice of a document that was just enqueued.

    Raises:
        RuntimeError: It did not end well, or not with an image a page where images were asked for.
    """
    recipe = harness.recipe(describe=When.ALWAYS if images else When.AUTO)
    (document,) = harness.enqueue(path, recipe=recipe)
    harness.beat()
    mine = [piece for piece in harness.dispatch() if (piece.run_id, piece.stage) == (document.run, Stage.PARSE)]
    if not mine:
        msg = f"{path.name} was not handed out for parsing"
        raise RuntimeError(msg)
    began = time.perf_counter()
    for piece in mine:
        harness.ingest().run_slice(piece.run_id, piece.stage, piece.ordinals)
    seconds = time.perf_counter() - began
    (unit,) = harness.units(document.run, Stage.PARSE)
    described = len(harness.units(document.run, Stage.DESCRIBE))
    if unit.state != "done" or described != (unit.output or {"pages": 0})["pages"] * images:
        msg = f"{path.name}: parse is {unit.state}, and {described} pages have an image"
        raise RuntimeError(msg)
    # Its pages would fill the window that the next document's parse is handed out in.
    cancel(harness.sessions, documents=[str(document.id)])
    return seconds


def measure_stage(*, quick: bool = False, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Both lanes beside their limits, in turns."""
    rounds, images, texts = (1, 4, 8) if quick else (5, 100, PAGES)
    with _harness() as (harness, folder):
        # The first child compiles and caches, which is no part of any page.
        stage_seconds(harness, _written(folder, 2, 0), images=True)
        found: dict[str, list[float]] = {"images alone": [], "images": [], "text alone": [], "text": []}
        for turn in range(1, rounds + 1):
            path = _written(folder, images, turn)
            found["images alone"].append(images / images_alone(path))
            found["images"].append(images / stage_seconds(harness, path, images=True))
            path = _written(folder, texts, 100 + turn)
            found["text alone"].append(texts / text_alone(path))
            found["text"].append(texts / stage_seconds(harness, path, images=False))
            rates = ", ".join(f"{name} {values[-1]:.0f}" for name, values in found.items())
            say(f"round {turn} of {rounds}, pages/s: {rates}")
    ratios = [stage / alone for stage, alone in zip(found["images"], found["images alone"], strict=True)]
    return {
        "pages": {"images": images, "text": texts, "rounds": rounds},
        "findings": [
            Finding("the stage with an image a page ÷ pdfium alone", statistics.median(ratios), 0.5, "×", least=True),
            Finding("the stage without images", statistics.median(found["text"]), 200, "pages/s", least=True),
        ],
        "beside": {
            f"{name.replace(' ', '_')}_pages_per_s": statistics.median(values) for name, values in found.items()
        },
    }


def measure_whole(*, quick: bool = False, say: Callable[[str], None] = print) -> dict[str, Any]:
    """One long document with the local chains, on an embedded stack."""
    pages = 8 if quick else PAGES
    with tempfile.TemporaryDirectory(prefix="tidegate-parse-") as name:
        folder = Path(name)
        path = _written(folder, pages, 1)
        tidegate = Tidegate(folder, timeout_s=1800)
        with tidegate.up("--no-flower"):
            pids = [one["pid"] for one in tidegate.json("status")["processes"]]
            say(f"{pages} pages from end to end")
            with Peaks(pids).watched() as peaks:
                began = time.perf_counter()
                (ended,) = tidegate.json("enqueue", path, "--wait", code=None)["documents"]
                seconds = time.perf_counter() - began
            if ended["state"] != "done":
                msg = f"the document ended as {ended['state']}"
                raise RuntimeError(msg)
    programs = {program: held / 1e6 for program, held in peaks.by_program().items()}
    return {
        "pages": {"whole": pages},
        "findings": [
            Finding(f"{pages} digital pages, enqueue --wait", seconds, 90, "s"),
            Finding("the largest process", max(programs.values()), 1_000, "MB"),
        ],
        "beside": {f"{program}_mb": held for program, held in programs.items()},
    }


def _written(folder: Path, pages: int, seed: int) -> Path:
    path = folder / f"book-{seed}.pdf"
    path.write_bytes(digital_pdf(pages, seed))
    return path


@contextmanager
def _harness() -> Iterator[tuple[Harness, Path]]:
    """The ledger in this process, over a durable Postgres and a durable blob folder."""
    with tempfile.TemporaryDirectory(prefix="tidegate-parse-") as name:
        folder = Path(name)
        # Postgres runs under another user where this is root's.
        folder.chmod(0o711)
        postgres = EmbeddedPostgres(folder / "home")
        postgres.start()
        try:
            engine = make_engine(postgres.url, pool_size=10)
            upgrade(engine)
            harness = Harness(make_sessions(engine), FileBlobs(folder / "blobs"))
            try:
                yield harness, folder
            finally:
                harness.close()
                engine.dispose()
        finally:
            postgres.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 when ``--check`` was given and a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parse", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few pages: does it run at all")
    parser.add_argument("--only", choices=["stage", "whole"], help="this section alone")
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--check", action="store_true", help="fail when a bar is missed")
    given = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    before = machine()
    measures = {"stage": measure_stage, "whole": measure_whole}
    sections = {
        name: measure(quick=given.quick, say=say) for name, measure in measures.items() if given.only in (None, name)
    }
    after = machine()["load"]
    if given.json is not None:
        shown = {
            name: {**found, "findings": [{**asdict(one), "held": one.held} for one in found["findings"]]}
            for name, found in sections.items()
        }
        document = {"machine": before, "load_after": after, "sections": shown}
        given.json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    for name, found in sections.items():
        console.print(f"{name} · {', '.join(f'{what} {count}' for what, count in found['pages'].items())}")
        for finding in found["findings"]:
            console.print(f"  {finding}")
        for what, value in found["beside"].items():
            console.print(f"         {what.replace('_', ' ')}: {value:,.4g}", style="dim")
    console.print(
        f"{before['cpu']}, {before['cores']} cores, load {before['load'][0]} before and {after[0]} after, "
        f"Python {before['python']}"
    )
    held = all(finding.held for found in sections.values() for finding in found["findings"])
    return 1 if given.check and not held else 0


if __name__ == "__main__":
    # Told to end, it stops its stack like anybody else's.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
