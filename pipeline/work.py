"""What a slice of each stage reads, does and writes.

``load`` runs in a short transaction and returns jobs; a job runs without one (on the loop when it calls a model, in a
thread when it is CPU work); ``store`` writes units' values in the transaction that ends them.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pipeline.advance import (
    after_chunk,
    after_describe,
    after_parse,
    after_retrieve,
    anchor,
    format_source,
    parse_digest,
    retrieve_inputs,
    text_to_embed,
)
from pipeline.documents import sandbox
from pipeline.domain.call import Answer, TryRecord
from pipeline.domain.document import (
    Chunk,
    Cues,
    Limits,
    ParsedDocument,
    TextFormat,
    TextQuality,
    says_something,
)
from pipeline.domain.errors import RejectedInput, ResultGone
from pipeline.domain.space import Space
from pipeline.domain.unit import Stage
from pipeline.failover.call import rejecting_targets
from pipeline.failover.records import CallContext
from pipeline.stages.chunk import cautious, chunk
from pipeline.stages.describe import DescribeInput, describe
from pipeline.stages.embed import embed
from pipeline.stages.format import FormatInput, format_page
from pipeline.stages.parse import parse
from pipeline.stages.ports import ChatModel, EmbeddingModel
from pipeline.stages.retrieve import RetrieveInput, retrieve
from pipeline.store.blob_rows import record_blobs
from pipeline.store.blobs import BlobStore, StoredBlob
from pipeline.store.chunks import NewVector, chunks_of, set_cues, store_vectors
from pipeline.store.page_images import put_images
from pipeline.store.pages import insert_pages, page_texts, pages_of
from pipeline.store.reader import reader_of
from pipeline.store.schema import Collection, Document, Run
from pipeline.store.session import Session
from pipeline.store.spaces import read_space
from pipeline.store.spend import spent_usd
from pipeline.store.units import Claimed, Result

__all__ = ["Done", "Job", "Models", "StageWork", "Workshop", "calls_with_content", "work_of"]


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one unit: what its row keeps, and the value that ``store`` writes elsewhere.

    Attributes:
        is_missing: The answer is one to others of its job, and holds nothing for this unit.
    """

    result: Result
    value: Any = field(default=None, repr=False)
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """Work for one or more units that end together; exactly one of the two ways to run it is given.

    Both return one ``Done`` a unit, in the units' order. ``stop`` is set when nobody waits for it any more: what runs
    in a thread can't be cancelled from outside.

    Attributes:
        part: Makes the job of some of the units, for when one of them spoils it for all.
    """

    units: tuple[Claimed, ...]
    model: Callable[[], Awaitable[list[Done]]] | None = None
    cpu: Callable[[], list[Done]] | None = None
    part: Callable[[Sequence[Claimed]], Job] | None = None
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Models:
    """The roles, as ports."""

    vlm: ChatModel
    formatter: ChatModel
    retriever: ChatModel
    embedder: EmbeddingModel


def _unbounded(_collection: str) -> float | None:
    return None


@dataclass(frozen=True, slots=True)
class Workshop:
    """What the stages work with.

    Attributes:
        count_tokens: Counts as the embedding model does.
        allowed: The presets that a collection (by name) allows for a stage; None for all.
        budget_usd: What a collection (by name) may spend on model calls; None for no bound.
        embedder_of: Who embeds into a space, which need not be the configured one: vectors of two models never mix.
            None where there is one embedder for all.
    """

    blobs: BlobStore
    models: Models
    limits: Limits
    count_tokens: Callable[[str], int]
    worker: str
    allowed: Callable[[str, Stage], frozenset[str] | None]
    budget_usd: Callable[[str], float | None] = _unbounded
    embedder_of: Callable[[Space], EmbeddingModel | None] | None = None

    def within_budget(self, session: Session, collection: str) -> bool:
        """Whether a collection can pay for the calls of a slice; those that are under way end, whatever they cost."""
        bound_usd = self.budget_usd(collection)
        return bound_usd is None or spent_usd(reader_of(session), collection) < bound_usd

    def embedder_for(self, session: Session, run: Run) -> EmbeddingModel | None:
        """Who embeds into a run's space; None when nobody knows any more."""
        if self.embedder_of is None or run.space_id is None:
            return self.models.embedder
        return self.embedder_of(read_space(session, run.space_id))

    def contexts(self, session: Session, run: Run, units: Sequence[Claimed]) -> list[CallContext]:
        """Whom the model call of each unit, all of one stage, is for."""
        collection = session.get_one(Collection, run.collection_id).name
        allowed = self.allowed(collection, units[0].stage)
        within_budget = self.within_budget(session, collection)
        return [
            CallContext(
                call_id=uuid4().hex,
                run_id=run.id,
                unit_id=unit.id,
                document_id=str(run.document_id),
                stage=unit.stage.value,
                worker=self.worker,
                rejected_by=frozenset(unit.rejected_by),
                primary_only=run.primary_only,
                allowed=allowed,
                within_budget=within_budget,
            )
            for unit in units
        ]


class StageWork(Protocol):
    """One stage's reading, doing and writing."""

    def load(self, session: Session, run: Run, units: Sequence[Claimed]) -> list[Job]:
        """Read what the units need."""
        ...

    def store(self, session: Session, run: Run, ended: Sequence[tuple[Claimed, Done]]) -> None:
        """Write units' values and make the units that they make due; under the run's FOR UPDATE lock."""
        ...


def work_of(stage: Stage, shop: Workshop) -> StageWork:
    """The work of a stage."""
    makers: dict[Stage, Callable[[Workshop], StageWork]] = {
        Stage.PARSE: _Parse,
        Stage.DESCRIBE: _Describe,
        Stage.FORMAT: _Format,
        Stage.CHUNK: _Chunk,
        Stage.RETRIEVE: _Retrieve,
        Stage.EMBED: _Embed,
    }
    return makers[stage](shop)


def calls_with_content(tries: Sequence[TryRecord]) -> int:
    """Calls that returned content: what ``unit.max_calls`` bounds (busy, refused and timed-out ones don't count)."""
    return sum(1 for one in tries if one.ttft_s is not None)


def _answered(answer: Answer[Any], output: dict[str, Any] | None) -> Result:
    return Result(
        output=output,
        answered_by=answer.target,
        degraded=answer.degraded,
        calls=calls_with_content(answer.tries),
        rejecting=rejecting_targets(answer.tries),
    )


@dataclass(frozen=True, slots=True)
class _Parsed:
    document: ParsedDocument
    images: dict[int, tuple[StoredBlob, str]]


@dataclass(frozen=True, slots=True)
class _Parse:
    shop: Workshop

    def load(self, session: Session, run: Run, units: Sequence[Claimed]) -> list[Job]:
        source = session.get_one(Document, run.document_id).source_uri
        stage = run.recipe["stages"][Stage.PARSE.value]
        digest = parse_digest(run)
        blob_digest, media_type, document_id = run.blob_digest, run.media_type, str(run.document_id)

        stop = threading.Event()

        def work() -> list[Done]:
            blobs = self.shop.blobs
            with blobs.local_path(blob_digest) as path, tempfile.TemporaryDirectory(prefix="tidegate-parse-") as folder:
                document = parse(
                    path,
                    media_type,
                    self.shop.limits,
                    workdir=Path(folder),
                    password=blobs.read_secret(document_id),
                    image_policy=stage["images"],
                    long_side_px=stage["long_side_px"],
                    run=partial(sandbox.run, stopped=stop.is_set),
                )
                files = {page.number: page.image for page in document.pages if page.image is not None}
                stored = put_images(blobs, ((number, file.path) for number, file in files.items()))
                images = {number: (blob, files[number].media_type) for number, blob in stored.items()}
            title = document.title or Path(source).stem
            output = {"pages": len(document.pages), "title": title}
            return [Done(Result(output=output, digest=digest), _Parsed(document, images))]

        return [Job((unit,), cpu=work, stop=stop) for unit in units]

    def store(self, session: Session, run: Run, ended: Sequence[tuple[Claimed, Done]]) -> None:
        for _, done in ended:
            parsed: _Parsed = done.value
            if not parsed.document.pages:
                raise RejectedInput("corrupt", "the file holds no pages")
            if parsed.images:
                self._keep_images(session, parsed)
            digests = {number: blob.digest for number, (blob, _) in parsed.images.items()}
            insert_pages(session, run.id, parsed.document.pages, digests)
            after_parse(session, run, done.result.output or {})

    def _keep_images(self, session: Session, parsed: _Parsed) -> None:
        made = record_blobs(session, [(b.digest, b.size_bytes, media_type) for b, media_type in parsed.images.values()])
        for blob, _ in parsed.images.values():
            if blob.digest in made and not blob.created and not self.shop.blobs.exists(blob.digest):
                # The sweep of unused blobs took an old one away after we had found it there.
                raise ResultGone("a page image was swept while its document was parsed", "it is parsed again")


@dataclass(frozen=True, slots=True)
class _Describe:
    shop: Workshop

    def load(self, session: Session, run: Run, units: Sequence[Claimed]) -> list[Job]:
        pages = {page.number: page for page in pages_of(session, run.id, [unit.ordinal for unit in units])}
        contexts = self.shop.contexts(session, run, units)
        return [self._job(unit, pages[unit.ordinal], context) for unit, context in zip(units, contexts, strict=True)]

    def _job(self, unit: Claimed, page: Any, context: CallContext) -> Job:
        image_digest = page.image_digest or ""
        number, media_type = page.number, page.image_media_type or "image/jpeg"
        # Only a page's own text layer is what its picture says; Markdown may stand beside a picture in the text.
        is_good = page.text_quality == TextQuality.GOOD and page.text_format == TextFormat.PLAIN
        text = anchor(page)

        async def work() -> list[Done]:
            image = self.shop.blobs.read(image_digest)
            answer = await describe(
                DescribeInput(page_number=number, image=image, media_type=media_type, text=text, is_good=is_good),
                self.shop.models.vlm,
                context,
            )
            return [Done(_answered(answer, {"text": answer.value}))]

        return Job((unit,), model=work)

    def store(self, session: Session, run: Run, ended: Sequence[tuple[Claimed, Done]]) -> None:
        after_describe(session, run, [unit.ordinal for unit, _ in ended])


@dataclass(frozen=True, slots=True)
class _Format:
    shop: Workshop

    def load(self, session: Session, run: Run, units: Sequence[Claimed]) -> list[Job]:
        numbers = [unit.ordinal for unit in units]
        title = session.get_one(Document, run.document_id).title
        descriptions = {text.number: text.description for text in page_texts(session, run.id, numbers)}
        inputs = {}
        for page in pages_of(session, run.id, numbers):
            description, text = format_source(page, descriptions.get(page.number))
            inputs[page.number] = FormatInput(page.number, title, description, text, TextFormat(page.text_format))
        contexts = self.shop.contexts(session, run, units)
        return [self._job(unit, inputs[unit.ordinal], context) for unit, context in zip(units, contexts, strict=True)]

    def _job(self, unit: Claimed, page: FormatInput, context: CallContext) -> Job:
        async def work() -> list[Done]:
            answer = await format_page(page, self.shop.models.formatter, context)
            return [Done(_answered(answer, {"markdown": answer.value}))]

        return Job((unit,), model=work)

    def store(self, session: Session, run: Run, ended: Sequence[tuple[Claimed, Done]]) -> None:
        """The Markdown is on the units' own rows; the barrier behind format is ``settle``'s."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    shop: Workshop

    def load(self, session: Session, run: Run, units: Sequence[Claimed]) -> list[Job]:
        title = session.get_one(Document, run.document_id).title
        pages = [(text.number, text.text) for text in page_texts(session, run.id) if says_something(text.text)]
        stage = run.recipe["stages"][Stage.CHUNK.value]

        def work() -> list[Done]:
            chunks = chunk(
                pages,
                title=title,
                max_tokens=stage["max_tokens"],
                overlap_tokens=stage["overlap_tokens"],
                count_tokens=cautious(self.shop.count_tokens, stage.get("token_factor", 1)),
            )
            return [Done(Result(), chunks)]

        return [Job((unit,), cpu=work) for unit in units]

    def store(self, session: Session, run: Run, ended: Sequence[tuple[Claimed, Done]]) -> None:
        for _, done in ended:
            chunks: tuple[Chunk, ...] = done.value
            after_chunk(session, run, chunks)


@dataclass(frozen=True, slots=True)
class _Retrieve:
    shop: Workshop

    def load(self, session: Session, run: Run, units: Sequence[Claimed]) -> list[Job]:
        inputs = retrieve_inputs(session, run, [unit.ordinal for unit in units])
        contexts = self.shop.contexts(session, run, units)
        return [self._job(unit, inputs[unit.ordinal], context) for unit, context in zip(units, contexts, strict=True)]

    def _job(self, unit: Claimed, source: RetrieveInput, context: CallContext) -> Job:
        async def work() -> list[Done]:
            answer = await retrieve(source, self.shop.models.retriever, context)
            cues = answer.value
            output = {
                "context": cues.context,
                "keywords": list(cues.keywords),
                "questions": list(cues.questions),
            }
            return [Done(_answered(answer, output), cues)]

        return Job((unit,), model=work)

    def store(self, session: Session, run: Run, ended: Sequence[tuple[Claimed, Done]]) -> None:
        found: dict[int, Cues] = {unit.ordinal: done.value for unit, done in ended}
        set_cues(session, run.id, found)
        after_retrieve(session, run, [unit.ordinal for unit, _ in ended])


@dataclass(frozen=True, slots=True)
class _Embed:
    shop: Workshop

    def load(self, session: Session, run: Run, units: Sequence[Claimed]) -> list[Job]:
        """One job for the whole slice: embedders are asked for a batch at a time.

        Units that different targets have rejected are no batch: whom one of them skips is still asked for the others.
        """
        rows = {row.ordinal: row for row in chunks_of(session, run.id, [unit.ordinal for unit in units])}
        texts = {unit.id: text_to_embed(run, rows[unit.ordinal]) for unit in units}
        contexts = {
            unit.id: context for unit, context in zip(units, self.shop.contexts(session, run, units), strict=True)
        }
        embedder = self.shop.embedder_for(session, run)
        model = run.recipe["stages"][Stage.EMBED.value]["model"]

        def job(asked: Sequence[Claimed]) -> Job:
            async def work() -> list[Done]:
                if embedder is None:
                    detail = f"its vectors were to be made by {model}, which the configuration no longer names"
                    raise RejectedInput("embedder_gone", detail)
                context = replace(contexts[asked[0].id], call_id=uuid4().hex)
                answer = await embed([texts[unit.id] for unit in asked], embedder, context)
                return [
                    Done(
                        _answered(answer, None),
                        NewVector(rows[unit.ordinal].id, unit.digest or "", vector),
                        is_missing=not vector,
                    )
                    for unit, vector in zip(asked, answer.value, strict=True)
                ]

            return Job(tuple(asked), model=work, part=job)

        alike: dict[frozenset[str], list[Claimed]] = {}
        for unit in units:
            alike.setdefault(frozenset(unit.rejected_by), []).append(unit)
        return [job(group) for group in alike.values()]

    def store(self, session: Session, run: Run, ended: Sequence[tuple[Claimed, Done]]) -> None:
        if run.space_id is None:
            msg = f"run {run.id} has no embedding space"
            raise RuntimeError(msg)
        store_vectors(session, run.space_id, [done.value for _, done in ended])
