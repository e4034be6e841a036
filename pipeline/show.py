"""Show: a document as it was understood, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pipeline.domain.errors import UsageError
from pipeline.sources import source_uri
from pipeline.store.documents import find_document
from pipeline.store.page_reports import PageReport, page_reports, readable_run
from pipeline.store.session import Sessions

__all__ = ["Shown", "show"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A document's pages, in order.

    Attributes:
        live: False when the pages are of a run that search does not see (yet).
    """

    document: UUID
    path: str
    title: str | None
    run: int
    live: bool
    pages: list[PageReport]

    def to_json(self) -> dict[str, Any]:
        return {
            "document": str(self.document),
            "path": self.path,
            "title": self.title,
            "run": self.run,
            "live": self.live,
            "pages": [
                {
                    "number": page.number,
                    "markdown": page.markdown,
                    "text_layer": page.text_layer,
                    "text_quality": page.text_quality,
                    "description": page.description,
                    "formatted": page.formatted,
                    "described_by": page.described_by,
                    "formatted_by": page.formatted_by,
                    "degraded": page.degraded,
                    "failure": {"kind": page.failure_kind, "detail": page.failure_detail}
                    if page.failure_kind
                    else None,
                }
                for page in self.pages
            ],
        }

    def to_markdown(self) -> str:
        """All pages' Markdown, an empty line between; a page that failed says so in a comment.

        One page is written as it is stored.
        """
        if len(self.pages) == 1 and not self.pages[0].failure_kind:
            markdown = self.pages[0].markdown
            return markdown if markdown.endswith("\n") else f"{markdown}\n"
        parts = [
            f"<!-- page {page.number} failed: {page.failure_kind} -->" if page.failure_kind else page.markdown.strip()
            for page in self.pages
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def show(sessions: Sessions, document: str, *, page: int | None = None) -> Shown:
    """Read a document's pages: those of its live run, else of the newest run that has any.

    Args:
        document: As people name it.
        page: Only this one, 1-based.

    Raises:
        UsageError: There is no such document or page, or nothing has been read of it yet.
        ServiceUnavailable: Postgres is away.
    """
    with sessions() as session:
        found = find_document(session, document, as_uri=source_uri(document))
        run = readable_run(session, found)
        if run is None:
            raise UsageError(
                f"nothing has been read of {found.source_uri!r} yet", f"see why: tidegate why {str(found.id)[:8]}"
            )
        pages = page_reports(session, run.id, page)
        if page is not None and not pages:
            count = run.page_count or 0
            raise UsageError(f"{found.source_uri!r} has no page {page}", f"its pages are 1 to {count}")
        return Shown(found.id, found.source_uri, found.title, run.id, found.live_run_id == run.id, pages)
