"""Office files, HTML and books through kreuzberg, as Markdown cut into sections; their images where they stood."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import kreuzberg
from PIL import Image

from pipeline.documents import media
from pipeline.documents.entities import keep_entities, restore_entities
from pipeline.documents.job import Event, Job
from pipeline.documents.limits import check_archive, check_markup
from pipeline.documents.mail import read_mail
from pipeline.documents.markup import read_html, read_xml
from pipeline.documents.pages import first_heading, image_page, number_pages, text_page
from pipeline.documents.raster import Sink, fit, is_blank
from pipeline.documents.sections import sections
from pipeline.domain.document import PageFile, ParsedPage, TextFormat
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["read"]

_ARCHIVES = frozenset({media.DOCX, media.PPTX, media.XLSX, media.ODT, media.ODS, media.ODP, media.EPUB})
_SLIDE_MARK = "TIDEGATESLIDE"
_SLIDE = re.compile(rf"^{_SLIDE_MARK}(\d+)$\n?", re.MULTILINE)
# "\!" before "[" is how slides come: their images are escaped as if they were text.
_IMAGE = re.compile(r"\\?!\[((?:[^\]\\]|\\.)*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
_NUMBERED = re.compile(r"image_(\d+)\.\w+$")
# What needs no escape in Markdown, and would stand in the way of a search for it.
_NEEDLESS_ESCAPE = re.compile(r"\\([&.,:;!?()+=%@/'\"$^{}~-])")
_IMAGE_MIN_PX = 48
_MAX_IMAGES = 300


@dataclass(slots=True)
class _Images:
    """The embedded images worth a page of their own: not icons, and each picture once."""

    job: Job
    found: list[dict[str, Any]]
    sink: Sink
    seen: set[bytes] = field(default_factory=set)
    taken: int = 0

    def at(self, target: str, slide: int) -> bytes | None:
        """The bytes of the image that a Markdown reference names; None when it is outside the file."""
        if target.startswith("data:"):
            return _inline(target)
        if numbered := _NUMBERED.search(target):
            by_index = {image.get("image_index"): image.get("data") for image in self.found}
            return by_index.get(int(numbered.group(1)))
        # Slides name their parts instead of numbering them; their images come in the order of the references.
        here = next((image for image in self.found if slide and image.get("page_number") == slide), None)
        if here is not None:
            self.found.remove(here)
            return here.get("data")
        return None

    def page_file(self, data: bytes, number: int) -> PageFile | None:
        """Write an image for page ``number``; None when it is too small, unreadable, or was there before."""
        digest = hashlib.sha256(data).digest()
        if digest in self.seen or self.taken >= _MAX_IMAGES:
            return None
        self.seen.add(digest)
        image = _decoded(data, self.job)
        if image is None or min(image.size) < _IMAGE_MIN_PX or is_blank(image):
            return None
        self.taken += 1
        return self.sink.jpeg(image, number)


def read(job: Job) -> Iterator[Event]:
    """Parse an Office file, an HTML or XML page, a book or a mail.

    Raises:
        RejectedInput: ``corrupt``, ``unsafe``, ``password_required`` or ``too_large`` (sections).
    """
    if job.media_type == media.ENCRYPTED_OFFICE:
        raise RejectedInput("password_required", "it is locked with a password; save it without one")
    title, markdown, images = _EXTRACTORS.get(job.media_type, _extract)(job)
    kept = _Images(job, images, Sink(job))
    pages = list(_pages(safe_text(markdown), kept, job))
    # A sheet's name heads its table; it is no title.
    heading = None if job.media_type in (media.XLSX, media.ODS) else first_heading(safe_text(markdown))
    yield from number_pages(pages, title or heading)


Extracted = tuple[str | None, str, list[dict[str, Any]]]


def _html(job: Job) -> Extracted:
    data = job.path.read_bytes()
    check_markup(data)
    title, page = read_html(data)
    _, markdown, images = _convert(page.encode("utf-8"), media.HTML, job)
    return title, markdown, images


def _xml(job: Job) -> Extracted:
    data = job.path.read_bytes()
    check_markup(data)
    return (*read_xml(data), [])


def _mail(job: Job) -> Extracted:
    title, head, body, is_html = read_mail(job.path.read_bytes())
    if not is_html:
        return title, f"{head}\n\n{body}", []
    _, page = read_html(body.encode("utf-8"))
    _, markdown, images = _convert(page.encode("utf-8"), media.HTML, job)
    return title, f"{head}\n\n{markdown}", images


def _extract(job: Job) -> Extracted:
    if job.media_type in _ARCHIVES:
        check_archive(job.path, job.limits)
    data = job.path.read_bytes()
    if job.media_type != media.DOCX:
        return _convert(data, job.media_type, job)
    title, markdown, images = _convert(keep_entities(data), job.media_type, job)
    return title, restore_entities(markdown), images


_EXTRACTORS: dict[str, Callable[[Job], Extracted]] = {media.HTML: _html, media.XML: _xml, media.EML: _mail}


def _convert(data: bytes, media_type: str, job: Job) -> Extracted:
    config = kreuzberg.ExtractionConfig(
        # The cache would write the text of documents below the home folder.
        use_cache=False,
        output_format="markdown",
        enable_quality_processing=False,
        images=kreuzberg.ImageExtractionConfig(extract_images=True),
        extraction_timeout_secs=job.limits.parse_seconds,
        pages=_slides() if media_type in (media.PPTX, media.ODP) else None,
    )
    try:
        result = kreuzberg.extract_bytes_sync(data, media_type, config)
    except kreuzberg.MissingDependencyError as exc:
        raise RejectedInput("unsupported", f"{media_type} needs a program that is not here: {exc}") from exc
    except (kreuzberg.KreuzbergError, RuntimeError, ValueError, OSError) as exc:
        raise _refusal(exc) from exc
    metadata = cast("dict[str, Any]", result.metadata)
    title = metadata.get("title") or (metadata.get("core_properties") or {}).get("title")
    return _clean_title(title), result.content, [dict(image) for image in result.images or []]


def _slides() -> kreuzberg.PageConfig:
    marker = f"\n\n{_SLIDE_MARK}{{page_num}}\n\n"
    return kreuzberg.PageConfig(extract_pages=True, insert_page_markers=True, marker_format=marker)


def _refusal(exc: Exception) -> RejectedInput:
    said = " ".join(str(exc).split())[:300]
    if re.search(r"password|encrypted", said, re.IGNORECASE):
        return RejectedInput("password_required", said)
    if re.search(r"security|limit|bomb|too large|exceed", said, re.IGNORECASE):
        return RejectedInput("unsafe", said)
    return RejectedInput("corrupt", said)


def _clean_title(title: object) -> str | None:
    words = " ".join(safe_text(title).split()) if isinstance(title, str) else ""
    return words[:300] if len(words) >= 3 else None


# --- pages -----------------------------------------------------------------------------------------------------------


def _pages(markdown: str, images: _Images, job: Job) -> Iterator[ParsedPage]:
    """Sections and images in the order of the document, numbered through."""
    number = 1
    for slide, content in _slides_of(markdown):
        for text, image in _parts(content, slide, images):
            for section in sections(_NEEDLESS_ESCAPE.sub(r"\1", text)):
                if section.strip():
                    yield text_page(_checked(number, job), section, TextFormat.MARKDOWN)
                    number += 1
            if image is not None and (file := images.page_file(image, number)) is not None:
                yield image_page(_checked(number, job), file)
                number += 1


def _checked(number: int, job: Job) -> int:
    most = job.limits.max_pages
    if number > most:
        raise RejectedInput("too_large", f"more than {most} sections and images; limits.max_pages = {most}")
    return number


def _slides_of(markdown: str) -> Iterator[tuple[int, str]]:
    """The number and text of each slide; 0 for what stands outside any."""
    first, *rest = _SLIDE.split(markdown)
    yield 0, first
    for number, content in zip(rest[::2], rest[1::2], strict=True):
        yield int(number), content


def _parts(markdown: str, slide: int, images: _Images) -> Iterator[tuple[str, bytes | None]]:
    """Cut the text after each image that the file holds; where it stood, its description stays."""
    start = 0
    text = ""
    for match in _IMAGE.finditer(markdown):
        text += markdown[start : match.start()] + _mention(match)
        start = match.end()
        data = images.at(match.group(2), slide)
        if data is not None and _is_worth(data, images.job):
            yield text, data
            text = ""
    yield text + markdown[start:], None


def _mention(match: re.Match[str]) -> str:
    description = match.group(1).strip()
    return f"[Image: {description}]" if description else ""


def _is_worth(data: bytes, job: Job) -> bool:
    """Tell from an image's header alone whether the text must be cut for it."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
    except Exception:  # whatever an image of a hostile file makes the decoder raise: it is no image
        return False
    return min(width, height) >= _IMAGE_MIN_PX and width * height <= job.limits.max_pixels


def _decoded(data: bytes, job: Job) -> Image.Image | None:
    from pipeline.documents.images import flatten

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > job.limits.max_pixels:
                return None
            image.load()
            flat = flatten(image)
    except (OSError, ValueError, SyntaxError, EOFError):
        return None
    most = job.limits.max_pixels
    scale = fit(flat.width, flat.height, long_side_px=job.long_side_px, max_pixels=most, enlarge=False)
    return flat.resize((max(1, round(flat.width * scale)), max(1, round(flat.height * scale)))) if scale < 1 else flat


def _inline(target: str) -> bytes | None:
    head, _, body = target.partition(",")
    if not head.endswith(";base64"):
        return None
    try:
        return base64.b64decode(body, validate=False)
    except (binascii.Error, ValueError):
        return None
