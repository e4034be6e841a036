"""What the state machine's examples share: services, a few files and their parses, and models at their port."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image, ImageDraw
from sqlalchemy import Engine

from pipeline.domain.document import Limits
from pipeline.domain.space import EmbedSpace
from pipeline.domain.unit import MODEL_STAGES, Stage, When
from pipeline.recipe import Recipe, build_recipe
from pipeline.store.file_blobs import FileBlobs
from pipeline.work import Done, Models, Workshop
from tests.blobs import put as put_blob
from tests.integration.ledger.harness import DIM, ScriptedChat, ScriptedEmbedder, cues

__all__ = ["World"]


def _contents() -> Iterator[bytes]:
    """A note, and files of one to three pages that have pages in common."""
    yield b"# Tides\n\nHigh water is at six.\n\n# Gates\n\nThe gate opens at half tide.\n"
    pages = []
    for n in range(3):
        page = Image.new("RGB", (90, 60), "white")
        ImageDraw.Draw(page).rectangle((10, 10, 30 + 15 * n, 40), fill="navy")
        pages.append(page)
        with tempfile.TemporaryFile() as file:
            # Dates would make the bytes other ones each time.
            pages[0].save(file, "PDF", save_all=True, append_images=pages[1:], creationDate=None, modDate=None)
            file.seek(0)
            yield file.read()


@dataclass
class World:
    """Outlives an example.

    Attributes:
        contents: The files' bytes, any of which may stand at any path.
        chats: The three chat roles.
        moves: What the examples have seen happen, for telling whether they were worth it.
        dropped: Late answers that nobody took.
    """

    engine: Engine
    folder: Path
    blobs: FileBlobs
    loop: asyncio.AbstractEventLoop
    contents: tuple[bytes, ...] = field(default_factory=lambda: tuple(_contents()))
    embedder: ScriptedEmbedder = field(default_factory=ScriptedEmbedder)
    moves: Counter[str] = field(default_factory=Counter, repr=False)
    dropped: int = 0
    _parsed: dict[str, tuple[Done, dict[int, tuple[bytes, str]]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.chats = (
            ScriptedChat(
                "vlm", lambda r: f"# Page {hashlib.sha256(r.inputs['image']).hexdigest()[:6]}\n\nA bar in navy."
            ),
            ScriptedChat("vlm_formatter", lambda r: str(r.inputs["description"] or r.inputs["text"])),
            ScriptedChat("retrieval_llm", cues),
        )

    def workshop(self, worker: str) -> Workshop:
        return Workshop(
            blobs=self.blobs,
            models=Models(*self.chats, self.embedder),
            limits=Limits(),
            count_tokens=lambda text: len(text.split()),
            worker=worker,
            allowed=lambda collection, stage: None,
        )

    def recipe(self, on_page_failure: str) -> Recipe:
        return build_recipe(
            models={stage: {"model": "m", "params": {}} for stage in MODEL_STAGES},
            whens={Stage.DESCRIBE: When.AUTO, Stage.FORMAT: When.ALWAYS, Stage.RETRIEVE: When.ALWAYS},
            space=EmbedSpace("test/embedder", DIM),
            limits=Limits(),
            page_long_side_px=64,
            max_tokens=12,
            overlap_tokens=0,
            on_page_failure=on_page_failure,
        )

    def file(self, name: str) -> Path:
        """Where a document's file lies; the name without its folder is the same for all, as it makes the title."""
        path = self.folder / name / "paper"
        path.parent.mkdir(exist_ok=True)
        return path

    def parse(self, digest: str, work: Callable[[], list[Done]]) -> list[Done]:
        """A parse, done once for each content: it starts a process."""
        if digest not in self._parsed:
            (done,) = work()
            images = {n: (self.blobs.read(blob.digest), kind) for n, (blob, kind) in done.value.images.items()}
            self._parsed[digest] = done, images
            return [done]
        done, images = self._parsed[digest]
        stored = {n: (put_blob(self.blobs, data), kind) for n, (data, kind) in images.items()}
        return [replace(done, value=replace(done.value, images=stored))]
