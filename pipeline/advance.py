"""What a finished unit makes due: the flow of a run, in one place.

    parse ─ describe(page) ─ format(page) ─┤ chunk ─ retrieve(chunk) ─ embed(chunk) ─┤ publish

describe and format are pipelined page by page; the barriers are before chunk and before publish. A page's next unit is
made in the transaction that ends the one before, so a barrier is simply "no unit of these stages is open". Every
function here runs under the run's FOR UPDATE lock and may be repeated: units that exist are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.domain.digest import text_digest
from pipeline.domain.document import Chunk, ParsedPage, TextFormat, TextQuality, says_something, usable_text
from pipeline.domain.errors import Failure
from pipeline.domain.run import RunState
from pipeline.domain.unit import OPEN_UNIT_STATES, Stage, UnitState, When
from pipeline.publish import publish
from pipeline.recipe import stage_digest, when_of
from pipeline.stages.embed import embedding_text
from pipeline.stages.retrieve import NEIGHBOUR_CHARS, RetrieveInput, parse_cues
from pipeline.store.chunks import chunks_of, insert_chunks, neighbours, set_cues
from pipeline.store.pages import copy_pages, first_failed_page, page_texts, pages_of
from pipeline.store.reuse import is_redone, mark_reused, reuse_units, reuse_vectors, vector_source
from pipeline.store.runs import move_run, park_run, soonest_resume, telling_failure, unit_states
from pipeline.store.schema import ChunkRow, Document, Page, Run
from pipeline.store.session import Session
from pipeline.store.units import NewUnit, create_units

__all__ = [
    "after_chunk",
    "after_describe",
    "after_parse",
    "after_retrieve",
    "anchor",
    "format_source",
    "needs_image",
    "parse_digest",
    "retrieve_inputs",
    "reuse_known",
    "settle",
    "take_over_parse",
    "text_to_embed",
]

SINGLE_STAGES = (Stage.PARSE, Stage.CHUNK)
PAGE_STAGES = (Stage.DESCRIBE, Stage.FORMAT)
CHUNK_STAGES = (Stage.RETRIEVE, Stage.EMBED)


def needs_image(page: ParsedPage | Page, when: When) -> bool:
    """Whether a vision model looks at a page: it shows something that its own text does not say."""
    if when is When.NEVER or page.blank:
        return False
    return when is When.ALWAYS or page.has_figures or page.text_quality != TextQuality.GOOD


def _described(page: Page, when: When) -> bool:
    return page.state == "ok" and page.image_digest is not None and needs_image(page, when)


def format_source(page: Page, description: str | None) -> tuple[str | None, str]:
    """What the formatter is given of a page: (description, text); both empty when there is nothing to format."""
    return description or None, usable_text(page.text_layer, page.text_quality, description)


def anchor(page: Page) -> str:
    """The text that a vision model is shown with a page's picture, as an aid for spelling."""
    return page.text_layer if page.text_quality in (TextQuality.GOOD, TextQuality.PARTIAL) else ""


def parse_digest(run: Run) -> str:
    """What identifies a parse: the file's bytes and how they are read."""
    return stage_digest(run.recipe, Stage.PARSE, run.blob_digest)


def take_over_parse(session: Session, run: Run) -> bool:
    """Reuse an earlier parse of the same bytes; True when the parse unit is done by it."""
    if run.redo_from == Stage.PARSE.value:
        return False
    digest = parse_digest(run)
    output = copy_pages(session, run, digest)
    if output is None:
        return False
    mark_reused(session, run.id, Stage.PARSE, [0], output=output, input_digest=digest)
    after_parse(session, run, output)
    return True


def after_parse(session: Session, run: Run, output: Mapping[str, Any]) -> None:
    """Make the pages' first units; ``output`` is the parse unit's: ``pages`` (a count) and ``title``."""
    run.page_count = output["pages"]
    if output["title"]:
        session.get_one(Document, run.document_id).title = output["title"]
    session.flush()
    when = when_of(run.recipe, Stage.DESCRIBE)
    pages = pages_of(session, run.id)
    seen = [page for page in pages if _described(page, when)]
    create_units(
        session,
        run,
        Stage.DESCRIBE,
        [
            NewUnit(page.number, stage_digest(run.recipe, Stage.DESCRIBE, page.image_digest, anchor(page)))
            for page in seen
        ],
    )
    unseen = {page.number for page in pages} - {page.number for page in seen}
    _make_format(session, run, [page for page in pages if page.number in unseen], {})
    reuse_known(session, run, Stage.DESCRIBE)


def after_describe(session: Session, run: Run, numbers: Sequence[int]) -> None:
    """Make the format units of pages that have been described."""
    pages = pages_of(session, run.id, numbers)
    texts = {text.number: text.description for text in page_texts(session, run.id, numbers)}
    _make_format(session, run, pages, texts)


def _make_format(session: Session, run: Run, pages: Sequence[Page], descriptions: dict[int, str | None]) -> None:
    when = when_of(run.recipe, Stage.FORMAT)
    if when is When.NEVER:
        return
    units = []
    for page in pages:
        description, text = format_source(page, descriptions.get(page.number))
        # Of a lone dash or a rule there is nothing to format, and nothing to search.
        if page.state != "ok" or page.blank or not says_something(f"{description or ''}{text}"):
            continue
        if when is When.AUTO and page.text_format == TextFormat.MARKDOWN and not description:
            continue
        units.append(NewUnit(page.number, stage_digest(run.recipe, Stage.FORMAT, description, text, page.text_format)))
    if create_units(session, run, Stage.FORMAT, units):
        reuse_known(session, run, Stage.FORMAT, [unit.ordinal for unit in units])


def after_chunk(session: Session, run: Run, chunks: Sequence[Chunk]) -> None:
    """Store the chunks and make their first units."""
    insert_chunks(session, run, chunks)
    ordinals = [chunk.ordinal for chunk in chunks]
    if when_of(run.recipe, Stage.RETRIEVE) is When.NEVER:
        _make_embed(session, run, ordinals)
        return
    inputs = retrieve_inputs(session, run, ordinals)
    create_units(
        session,
        run,
        Stage.RETRIEVE,
        [NewUnit(n, stage_digest(run.recipe, Stage.RETRIEVE, *inputs[n].parts())) for n in ordinals],
    )
    reuse_known(session, run, Stage.RETRIEVE)


def retrieve_inputs(session: Session, run: Run, ordinals: Sequence[int]) -> dict[int, RetrieveInput]:
    """The chunks with their bounded surroundings, by ordinal."""
    document = session.get_one(Document, run.document_id)
    around = neighbours(session, run.id, ordinals)
    return {
        chunk.ordinal: RetrieveInput(
            chunk=chunk.text,
            heading=tuple(chunk.heading),
            title=document.title,
            before=around.get(chunk.ordinal - 1, "")[-NEIGHBOUR_CHARS:],
            after=around.get(chunk.ordinal + 1, "")[:NEIGHBOUR_CHARS],
        )
        for chunk in chunks_of(session, run.id, ordinals)
    }


def after_retrieve(session: Session, run: Run, ordinals: Sequence[int]) -> None:
    """Make the embed units of chunks that have their cues."""
    _make_embed(session, run, ordinals)


def _make_embed(session: Session, run: Run, ordinals: Sequence[int]) -> None:
    units = [
        NewUnit(chunk.ordinal, text_digest(text_to_embed(run, chunk))) for chunk in chunks_of(session, run.id, ordinals)
    ]
    if create_units(session, run, Stage.EMBED, units):
        reuse_known(session, run, Stage.EMBED, ordinals)


def text_to_embed(run: Run, chunk: ChunkRow) -> str:
    """What a chunk's vector is made of, no longer than its model takes."""
    most = run.recipe["stages"][Stage.EMBED.value].get("max_input_tokens")
    room = None if most is None else most - chunk.tokens
    return embedding_text(chunk.text, chunk.heading, chunk.context, room)


def reuse_known(
    session: Session, run: Run, stage: Stage, ordinals: Sequence[int] | None = None, *, held: bool = False
) -> set[int]:
    """End the units of a stage whose results exist already, and go on from them; returns their ordinals.

    Args:
        ordinals: The units to look at; None for all that are pending.
        held: Whether the caller has leased those of them that are leased. Otherwise only pending ones are looked at,
            since somebody else's lease may be paying for its answer just now.
    """
    if stage is Stage.EMBED:
        return _reuse_vectors(session, run, ordinals, held=held)
    known = reuse_units(session, run, stage, ordinals, held=held)
    done = [unit.ordinal for unit in known]
    if not done:
        return set()
    if stage is Stage.DESCRIBE:
        after_describe(session, run, done)
    elif stage is Stage.RETRIEVE:
        set_cues(session, run.id, {unit.ordinal: parse_cues(json.dumps(unit.output)) for unit in known})
        after_retrieve(session, run, done)
    return set(done)


def _reuse_vectors(session: Session, run: Run, ordinals: Sequence[int] | None, *, held: bool) -> set[int]:
    if run.space_id is None or is_redone(run, Stage.EMBED):
        return set()
    placed = reuse_vectors(session, run.id, run.space_id, ordinals, held=held)
    if placed:
        mark_reused(session, run.id, Stage.EMBED, placed, answered_by=vector_source(run.space_id))
    return set(placed)


def settle(session: Session, run: Run) -> RunState:
    """Carry a run over its barriers, park it, or end it; returns the state that it is in now.

    The run is as ``lock_run`` has read it: under its lock it is moved here and nowhere else.

    A failed page or chunk lets the others end first, since what they cost is kept for the next run.
    """
    session.flush()
    if run.state != RunState.RUNNING:
        return RunState(run.state)
    units = unit_states(session, run.id)
    if units.has({UnitState.FAILED}, SINGLE_STAGES):
        failure = telling_failure(session, run.id, SINGLE_STAGES)
        if failure is not None:
            return _fail(session, run, failure)
    if units.has({UnitState.DONE}, [Stage.PARSE]) and not units.has(OPEN_UNIT_STATES, PAGE_STAGES):
        if not units.has(UnitState, [Stage.CHUNK]):
            failure = _page_failure(session, run)
            if failure is not None and run.recipe["on_page_failure"] != "keep":
                return _fail(session, run, failure)
            create_units(session, run, Stage.CHUNK, [NewUnit(0)])
            return RunState.RUNNING
        if units.has({UnitState.DONE}, [Stage.CHUNK]) and not units.has(OPEN_UNIT_STATES, CHUNK_STAGES):
            return _end(session, run)
    if units.has({UnitState.PARKED}) and not units.has({UnitState.PENDING, UnitState.LEASED}):
        park_run(session, run.id, soonest_resume(session, run.id))
        return RunState.PARKED
    return RunState.RUNNING


def _end(session: Session, run: Run) -> RunState:
    failure = telling_failure(session, run.id, CHUNK_STAGES)
    if failure is not None and run.recipe["on_page_failure"] != "keep":
        return _fail(session, run, failure)
    empty = not chunks_of(session, run.id, [1])
    incomplete = failure is not None or _page_failure(session, run) is not None
    publish(session, run, empty=empty, incomplete=incomplete)
    return RunState.EMPTY if empty else RunState.DONE


def _fail(session: Session, run: Run, failure: Failure) -> RunState:
    move_run(session, run.id, RunState.FAILED, failure_kind=failure.kind, failure_detail=failure.detail)
    return RunState.FAILED


def _page_failure(session: Session, run: Run) -> Failure | None:
    return telling_failure(session, run.id, PAGE_STAGES) or first_failed_page(session, run.id)
