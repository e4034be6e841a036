"""PDF pages through pdfium: text layer, verdict on it, and an image where one will be looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import degrees

import pypdfium2
import pypdfium2.raw as pdfium
from PIL import Image

from pipeline.documents.annotations import open_page
from pipeline.documents.figures import look
from pipeline.documents.fonts import stand_in
from pipeline.documents.job import Begun, Ended, Event, Job, Opened
from pipeline.documents.pagetree import count_pages, uncounted
from pipeline.documents.raster import Sink, fit, is_blank
from pipeline.documents.textlayer import Layer, read_layer
from pipeline.documents.verdict import judge
from pipeline.domain.document import ParsedPage, TextFormat, TextQuality
from pipeline.domain.errors import Failure, RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["read"]

_TITLE_WITHIN_PAGES = 3
_JUNK_TITLE = re.compile(
    r"^\(?(untitled|anonymous|example|test|sample|document ?\d*|title|slide 1|powerpoint presentation|\W*)\)?$",
    re.IGNORECASE,
)
_FILE_TITLE = re.compile(r"\.(docx?|pptx?|xlsx?|pdf|indd|qxd|tex|dvi|ps|rtf|odt|pages|html?)$", re.IGNORECASE)
_MADE_BY = re.compile(r"^(microsoft \w+|\w+ writer)\s*-\s*", re.IGNORECASE)
_SMALLEST_PT = 1.0
_UNBELIEVED = frozenset({TextQuality.NONE, TextQuality.POOR})


def read(job: Job) -> Iterator[Event]:
    """Parse a PDF page by page.

    Raises:
        RejectedInput: ``password_required``, ``corrupt`` or ``too_large``.
    """
    stand_in()
    with closing(_open_whole(job)) as document:
        count = count_pages(document, job.path)
        if count > job.limits.max_pages:
            raise RejectedInput("too_large", f"{count} pages; limits.max_pages = {job.limits.max_pages}")
        if count == 0:
            raise RejectedInput("corrupt", "the PDF has no pages")
        # Forms draw what was filled in; without them those fields render empty.
        document.init_forms()
        title = _declared_title(document)
        yield Opened(count, title)
        sink = Sink(job)
        heading: str | None = None
        for number in range(job.first_page, count + 1):
            yield Begun(number)
            page, largest = _page(document, number, job, sink)
            if heading is None and number <= _TITLE_WITHIN_PAGES:
                heading = largest
            yield page
        yield Ended(title or heading)


def _open_whole(job: Job) -> pypdfium2.PdfDocument:
    """Open the file with all pages that its page tree names, also where it says that it has fewer."""
    document = _open(job)
    content = uncounted(job.path, len(document))
    if content is None:
        return document
    try:
        counted = pypdfium2.PdfDocument(content, password=job.password)
    except pypdfium2.PdfiumError:
        return document
    more, other = (counted, document) if len(counted) > len(document) else (document, counted)
    other.close()
    return more


def _open(job: Job) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(job.path, password=job.password)
    except pypdfium2.PdfiumError as exc:
        if exc.err_code == pdfium.FPDF_ERR_PASSWORD:
            locked = "it is locked with a password; give it with --password, or many with --password-file"
            detail = "the password does not open it" if job.password else locked
            raise RejectedInput("password_required", detail) from exc
        if exc.err_code == pdfium.FPDF_ERR_SECURITY:
            detail = "it is encrypted in a way that is not read (no standard password handler)"
            raise RejectedInput("password_required", detail) from exc
        raise RejectedInput("corrupt", "not a readable PDF") from exc


def _page(document: pypdfium2.PdfDocument, number: int, job: Job, sink: Sink) -> tuple[ParsedPage, str | None]:
    """Read one page; one that can't be read is reported and keeps none of the others."""
    try:
        page, own_chars = open_page(document, number - 1)
        with closing(page):
            return _read_page(page, own_chars, number, job, sink)
    except (pypdfium2.PdfiumError, ValueError, OSError, MemoryError) as exc:
        kind = "unsafe" if isinstance(exc, MemoryError) else "corrupt"
        what = "needs more memory than limits.parse_memory_mb allows" if kind == "unsafe" else f"can't be read: {exc}"
        failure = Failure(kind, safe_text(f"page {number} {what}"))
        return ParsedPage(number, "", TextFormat.PLAIN, TextQuality.NONE, failure=failure), None


def _read_page(
    page: pypdfium2.PdfPage, own_chars: int | None, number: int, job: Job, sink: Sink
) -> tuple[ParsedPage, str | None]:
    width, height = page.get_size()
    width, height = max(width, _SMALLEST_PT), max(height, _SMALLEST_PT)
    layer = _layer(page, height, own_chars)
    drawn = look(page, width, height)
    quality = judge(layer, drawn)
    noted = pdfium.FPDFPage_GetAnnotCount(page.raw) > 0
    blank = quality is TextQuality.NONE and not drawn.anything and not noted
    image = None
    if not blank and (job.images == "all" or quality is not TextQuality.GOOD or drawn.has_figures):
        with _rendered(page, width, height, job) as rendered:
            # Text that can't be believed may be all that an empty page holds.
            blank = quality in _UNBELIEVED and is_blank(rendered)
            if not blank:
                image = sink.jpeg(rendered, number)
    parsed = ParsedPage(
        number=number,
        text=safe_text(layer.text),
        text_format=TextFormat.PLAIN,
        text_quality=quality,
        has_figures=drawn.has_figures and not blank,
        blank=blank,
        width_pt=round(width, 2),
        height_pt=round(height, 2),
        image=image,
    )
    return parsed, safe_text(layer.heading) if layer.heading and quality is TextQuality.GOOD else None


def _layer(page: pypdfium2.PdfPage, height: float, own_chars: int | None) -> Layer:
    """The page's text layer, read with the page turned so that most of its text is upright.

    pdfium takes what stands at one height for one line, as the page is shown: lines that run up or down there come
    from left to right, which at a quarter turn is from the last to the first.
    """
    layer = _read(page, height, own_chars)
    shown, upright = page.get_rotation(), -90 * round(degrees(layer.angle) / 90) % 360
    if not layer.chars or shown == upright:
        return layer
    page.set_rotation(upright)
    try:
        return _read(page, height, own_chars)
    finally:
        page.set_rotation(shown)


def _read(page: pypdfium2.PdfPage, height: float, own_chars: int | None) -> Layer:
    with closing(page.get_textpage()) as textpage:
        return read_layer(textpage.raw, height, own_chars)


@contextmanager
def _rendered(page: pypdfium2.PdfPage, width: float, height: float, job: Job) -> Iterator[Image.Image]:
    """The page at the size that is needed, never at full size: pdfium scales images while it decodes them.

    The picture is pdfium's own memory, and gone with the block.
    """
    scale = fit(width, height, long_side_px=job.long_side_px, max_pixels=job.limits.max_pixels)
    with closing(page.render(scale=scale, rev_byteorder=True, limit_image_cache=True)) as bitmap:
        yield bitmap.to_pil()


def _declared_title(document: pypdfium2.PdfDocument) -> str | None:
    try:
        raw = document.get_metadata_value("Title")
    except (pypdfium2.PdfiumError, UnicodeError):
        return None
    title = " ".join(_MADE_BY.sub("", safe_text(raw)).split())
    if len(title) < 3 or len(title) > 300 or _JUNK_TITLE.match(title) or _FILE_TITLE.search(title):
        return None
    return title
