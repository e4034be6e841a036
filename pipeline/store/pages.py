"""Pages as parse found them, and their text as the models left it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, insert, literal, select
from sqlalchemy.orm import Session, aliased

from pipeline.domain.document import ParsedPage, usable_text
from pipeline.domain.errors import Failure
from pipeline.domain.unit import Stage, UnitState
from pipeline.store.schema import Page, Run, Unit

__all__ = ["PageText", "copy_pages", "first_failed_page", "insert_pages", "page_texts", "pages_of"]


@dataclass(frozen=True, slots=True)
class PageText:
    """One page's best text so far: the formatter's, else the describer's, else its own."""

    number: int
    text: str
    description: str | None


def insert_pages(session: Session, run_id: int, pages: Sequence[ParsedPage], images: Mapping[int, str]) -> None:
    """Store what parse found; ``images`` maps a page's number to the digest of its image's blob."""
    session.execute(
        insert(Page),
        [
            {
                "run_id": run_id,
                "number": page.number,
                "state": "failed" if page.failure else "ok",
                "failure_kind": page.failure.kind if page.failure else None,
                "failure_detail": page.failure.detail if page.failure else None,
                "text_layer": page.text,
                "text_format": page.text_format.value,
                "text_quality": page.text_quality.value,
                "has_figures": page.has_figures,
                "blank": page.blank,
                "width_pt": page.width_pt,
                "height_pt": page.height_pt,
                "image_digest": images.get(page.number),
                "image_media_type": page.image.media_type if page.image else None,
            }
            for page in pages
        ],
    )


def copy_pages(session: Session, run: Run, parse_digest: str) -> dict[str, Any] | None:
    """Take over the pages of an earlier run that parsed the same bytes the same way.

    Returns:
        That run's parse output (``pages``, ``title``), or None when no such run has all its pages, images included.
    """
    purged = select(literal(1)).where(Page.run_id == Unit.run_id, Page.image_purged).exists()
    source = session.execute(
        select(Unit.run_id, Unit.output)
        .where(
            Unit.collection_id == run.collection_id,
            Unit.stage == Stage.PARSE.value,
            Unit.state == UnitState.DONE.value,
            Unit.input_digest == parse_digest,
            Unit.run_id != run.id,
            ~purged,
        )
        .order_by(Unit.id.desc())
        .limit(1)
    ).first()
    if source is None or source.output is None:
        return None
    columns = [column for column in Page.__table__.columns if column.name != "run_id"]
    session.execute(
        insert(Page).from_select(
            ["run_id", *[column.name for column in columns]],
            select(literal(run.id), *columns).where(Page.run_id == source.run_id),
        )
    )
    return dict(source.output)


def pages_of(session: Session, run_id: int, numbers: Iterable[int] | None = None) -> list[Page]:
    """A run's pages in order, all of them or those with the given numbers."""
    query = select(Page).where(Page.run_id == run_id).order_by(Page.number)
    if numbers is not None:
        query = query.where(Page.number.in_(list(numbers)))
    return list(session.scalars(query))


def first_failed_page(session: Session, run_id: int) -> Failure | None:
    """Why the parser could not take the first page that it could not take; None when it took them all."""
    row = session.execute(
        select(Page.number, Page.failure_kind, Page.failure_detail)
        .where(Page.run_id == run_id, Page.state == "failed")
        .order_by(Page.number)
        .limit(1)
    ).first()
    if row is None:
        return None
    return Failure(row.failure_kind or "corrupt", f"page {row.number}: {row.failure_detail}")


def page_texts(session: Session, run_id: int, numbers: Sequence[int] | None = None) -> list[PageText]:
    """The pages' best texts in order; pages that failed or show nothing are left out.

    A text layer that can't be believed is no text: without a description such a page is empty.
    """
    describe, format_ = aliased(Unit), aliased(Unit)
    query = (
        select(
            Page.number,
            Page.text_layer,
            Page.text_quality,
            describe.output["text"].astext.label("description"),
            format_.output["markdown"].astext.label("markdown"),
            describe.state.label("describe_state"),
            format_.state.label("format_state"),
        )
        .outerjoin(
            describe,
            and_(
                describe.run_id == Page.run_id,
                describe.stage == Stage.DESCRIBE.value,
                describe.ordinal == Page.number,
            ),
        )
        .outerjoin(
            format_,
            and_(format_.run_id == Page.run_id, format_.stage == Stage.FORMAT.value, format_.ordinal == Page.number),
        )
        .where(Page.run_id == run_id, Page.state == "ok", ~Page.blank)
        .order_by(Page.number)
    )
    if numbers is not None:
        query = query.where(Page.number.in_(list(numbers)))
    texts = []
    for row in session.execute(query):
        if UnitState.FAILED.value in (row.describe_state, row.format_state):
            continue
        own = usable_text(row.text_layer, row.text_quality, row.description)
        best = row.markdown if row.markdown is not None else row.description or own
        texts.append(PageText(row.number, best, row.description))
    return texts
