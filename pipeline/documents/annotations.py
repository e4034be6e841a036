"""What readers see on a PDF page beside its content: values of form fields, notes, stamps and marks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

__all__ = ["open_page"]

# Most pages with annotations have only these; they show nothing of their own.
_UNWRITTEN = frozenset({pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP})
_INVISIBLE: int = pdfium.FPDF_ANNOT_FLAG_INVISIBLE
_HIDDEN: int = pdfium.FPDF_ANNOT_FLAG_HIDDEN
_NO_VIEW: int = pdfium.FPDF_ANNOT_FLAG_NOVIEW
_ONE_PIXEL = 1e-6


def open_page(document: pypdfium2.PdfDocument, index: int) -> tuple[pypdfium2.PdfPage, int | None]:
    """Open a page with its annotations drawn into it, so that its text layer has them and its image as well.

    Returns:
        The page, to be closed, and how many characters its content has without them; None when none were drawn.

    Raises:
        PdfiumError: The page can't be opened.
    """
    page = document[index]
    if not _is_written_on(page.raw):
        return page, None
    with closing(page):
        with closing(page.get_textpage()) as textpage:
            own_chars = textpage.count_chars()
        is_drawn = _draw(page)
    # Only a page that is opened anew has what was drawn.
    return document[index], own_chars if is_drawn else None


def _is_written_on(page: Any) -> bool:
    return any(pdfium.FPDFAnnot_GetSubtype(note) not in _UNWRITTEN for note in _annotations(page))


def _draw(page: pypdfium2.PdfPage) -> bool:
    """Draw what a screen shows of the annotations; False leaves the page as it was."""
    for note in _annotations(page.raw):
        pdfium.FPDFAnnot_SetFlags(note, _as_on_screen(pdfium.FPDFAnnot_GetFlags(note)))
    # Rendering gives those an appearance that come without one; drawing them into the page would leave them out.
    page.render(scale=_ONE_PIXEL).close()
    return bool(pdfium.FPDFPage_Flatten(page.raw, pdfium.FLAT_NORMALDISPLAY) == pdfium.FLATTEN_SUCCESS)


def _as_on_screen(flags: int) -> int:
    """Flags by which pdfium draws into a page what it shows: by its own it also draws what is only for print.

    "Invisible" is only about kinds of annotations that nobody knows (ISO 32000-2, table 167).
    """
    if flags & _NO_VIEW:
        flags |= _HIDDEN
    return flags & ~_INVISIBLE


def _annotations(page: Any) -> Iterator[Any]:
    """Each annotation of a page, open until the next one."""
    for index in range(pdfium.FPDFPage_GetAnnotCount(page)):
        with _annotation(page, index) as note:
            if note:
                yield note


@contextmanager
def _annotation(page: Any, index: int) -> Iterator[Any]:
    note = pdfium.FPDFPage_GetAnnot(page, index)
    try:
        yield note
    finally:
        if note:
            pdfium.FPDFPage_CloseAnnot(note)
