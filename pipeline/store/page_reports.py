"""Pages with what the models made of them, for people to read."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from pipeline.domain.unit import Stage, UnitState
from pipeline.store.pages import page_texts, pages_of
from pipeline.store.schema import Document, Page, Run, Unit

__all__ = ["PageReport", "page_reports", "readable_run"]


@dataclass(frozen=True, slots=True)
class PageReport:
    """One page.

    Attributes:
        markdown: The best text there is so far; empty when the page shows nothing or failed.
        text_layer: The page's own text, as it was found in the file.
        text_quality: Whether that may be believed.
        description: What a vision model read, as it was stored; None when none has.
        formatted: The formatter's Markdown, as it was stored; None when there is none.
        described_by: The target that looked at it; None when none did.
        formatted_by: The target that formatted it; None when none did.
        degraded: True when either was not the first of its chain.
    """

    number: int
    markdown: str
    text_layer: str
    text_quality: str
    description: str | None
    formatted: str | None
    described_by: str | None
    formatted_by: str | None
    degraded: bool
    failure_kind: str | None
    failure_detail: str | None


def readable_run(session: Session, document: Document) -> Run | None:
    """The run whose pages people read: the live one, else the newest that has any."""
    has_pages = select(Page.run_id).where(Page.run_id == Run.id).exists()
    return session.scalars(
        select(Run)
        .where(Run.document_id == document.id, or_(Run.id == document.live_run_id, has_pages))
        .order_by((Run.id == func.coalesce(document.live_run_id, -1)).desc(), Run.id.desc())
        .limit(1)
    ).one_or_none()


def page_reports(session: Session, run_id: int, number: int | None = None) -> list[PageReport]:
    """A run's pages in order, or the one with ``number``."""
    numbers = None if number is None else [number]
    texts = {page.number: page.text for page in page_texts(session, run_id, numbers)}
    query = select(Unit).where(Unit.run_id == run_id, Unit.stage.in_((Stage.DESCRIBE.value, Stage.FORMAT.value)))
    if numbers is not None:
        query = query.where(Unit.ordinal.in_(numbers))
    units = {(unit.stage, unit.ordinal): unit for unit in session.scalars(query)}
    reports = []
    for page in pages_of(session, run_id, numbers):
        describe = units.get((Stage.DESCRIBE.value, page.number))
        format_ = units.get((Stage.FORMAT.value, page.number))
        failed = next((u for u in (describe, format_) if u is not None and u.state == UnitState.FAILED.value), None)
        reports.append(
            PageReport(
                number=page.number,
                markdown=texts.get(page.number, ""),
                text_layer=page.text_layer,
                text_quality=page.text_quality,
                description=_said(describe, "text"),
                formatted=_said(format_, "markdown"),
                described_by=describe.answered_by if describe else None,
                formatted_by=format_.answered_by if format_ else None,
                degraded=any(unit.degraded for unit in (describe, format_) if unit is not None),
                failure_kind=page.failure_kind or (failed.failure_kind if failed else None),
                failure_detail=page.failure_detail or (failed.failure_detail if failed else None),
            )
        )
    return reports


def _said(unit: Unit | None, what: str) -> str | None:
    text = (unit.output or {}).get(what) if unit is not None else None
    return text if isinstance(text, str) else None
