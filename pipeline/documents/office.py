"""Office files, HTML and books through kreuzberg, as Markdown cut into sections; their images where they stood."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, cast

import kreuzberg

from pipeline.documents import docx, epub, media, odt
from pipeline.documents.cells import spelled_out
from pipeline.documents.graphics import graphics
from pipeline.documents.job import Event, Job
from pipeline.documents.limits import check_archive, check_markup
from pipeline.documents.mail import MARKED_UTF_8, read_mail
from pipeline.documents.markup import closed_html, read_html, read_xml
from pipeline.documents.package import Package, rewritten
from pipeline.documents.pages import first_heading, image_page, number_pages, text_page
from pipeline.documents.pictures import REFERENCE, Pictures
from pipeline.documents.raster import Sink
from pipeline.documents.rtf import take_pictures
from pipeline.documents.sections import sections
from pipeline.documents.sheets import ods_pictures, with_pictures, xlsx_pictures
from pipeline.documents.slides import odp_slides, plain, pptx_slides, pptx_text, restore_bars
from pipeline.documents.text import table_rows
from pipeline.domain.document import ParsedPage, TextFormat
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["read"]

_ARCHIVES = frozenset({media.DOCX, media.PPTX, media.XLSX, media.ODT, media.ODS, media.ODP, media.EPUB})
_SHEETS = frozenset({media.XLSX, media.XLS, media.ODS})
_SLIDE_MARK = "TIDEGATESLIDE"
_SLIDE = re.compile(rf"^{_SLIDE_MARK}(\d{{1,6}})$\n?", re.MULTILINE)
_PICTURE_MARK = "TIDEGATEPICTURE"
_PICTURE = re.compile(rf"{_PICTURE_MARK}(\d{{1,6}})")
_HEADER = re.compile(r"^([A-Z][A-Za-z-]{1,20}): ")
_CHAPTERS = re.compile(r".*\.x?html?$", re.IGNORECASE | re.DOTALL)
_RULE = re.compile(r"^-{3,}$\n?", re.MULTILINE)
# How the library writes a tab; as one it would begin code.
_TAB = "&#9;"
# What needs no escape in Markdown, and would stand in the way of a search for it.
_NEEDLESS_ESCAPE = re.compile(r"\\([&.,:;!?()+=%@/'\"$^{}~-])")


def read(job: Job) -> Iterator[Event]:
    """Parse an Office file, an HTML or XML page, a book or a mail.

    Raises:
        RejectedInput: ``corrupt``, ``unsafe``, ``password_required`` or ``too_large`` (sections).
    """
    if job.media_type == media.ENCRYPTED_OFFICE:
        raise RejectedInput("password_required", "it is locked with a password; save it without one")
    is_package = job.media_type in _ARCHIVES
    if is_package:
        check_archive(job.path, job.limits)
    title, markdown, images = _EXTRACTORS.get(job.media_type, _extract)(job)
    with Package(job.path) if is_package else nullcontext() as package:
        pages = list(_pages(safe_text(markdown), Pictures(job, images, package, Sink(job)), job))
    # A sheet's name heads its table; it is no title.
    heading = None if job.media_type in _SHEETS else first_heading(safe_text(markdown))
    yield from number_pages(pages, title or heading)


Extracted = tuple[str | None, str, list[dict[str, Any]]]


def _html(job: Job) -> Extracted:
    data = job.path.read_bytes()
    check_markup(data)
    title, page = read_html(data)
    markdown, images = _convert_html(page, job)
    return title, markdown, images


def _xml(job: Job) -> Extracted:
    return (*read_xml(job.path.read_bytes()), [])


def _mail(job: Job) -> Extracted:
    title, head, body, is_html = read_mail(job.path.read_bytes())
    if not is_html:
        return title, f"{head}\n\n{body}", []
    _, page = read_html(body.encode(MARKED_UTF_8))
    markdown, images = _convert_html(page, job)
    return title, f"{head}\n\n{markdown}", images


def _convert_html(page: str, job: Job) -> tuple[str, list[dict[str, Any]]]:
    _, markdown, images = _convert(closed_html(page).encode("utf-8"), media.HTML, job)
    return markdown, images


def _docx(job: Job) -> Extracted:
    data = docx.usual_names(job.path.read_bytes())
    title, markdown, images = _convert(docx.keep_text(data), media.DOCX, job)
    with Package(data) as package:
        shown = "\n\n".join([markdown, *graphics(package, docx.MAIN), *_said(docx.comments(package))])
        return title, docx.restore_text(shown, docx.notes(package)), images


def _said(comments: list[str]) -> Iterator[str]:
    if comments:
        yield "\n".join(["Comments:", "", *(f"- {plain(comment)}" for comment in comments)])


def _pptx(job: Job) -> Extracted:
    title, markdown, images = _convert(pptx_text(job.path.read_bytes()), media.PPTX, job)
    with Package(job.path) as package:
        shown = [(number, list(graphics(package, part)), said) for number, part, said in pptx_slides(package)]
    first, *rest = _SLIDE.split(restore_bars(markdown))
    slides = {int(number): content for number, content in zip(rest[::2], rest[1::2], strict=True)}
    parts = [first]
    for number, drawn, said in shown:
        content = "\n\n".join([slides.pop(number, "").rstrip(), *drawn])
        parts.append(_slide(str(number), f"{content}\n\nNotes:\n\n{said}" if said else content))
    parts += [_slide(str(number), content) for number, content in slides.items()]
    return title, "".join(parts), images


def _odp(job: Job) -> Extracted:
    with Package(job.path) as package:
        meta = package.xml("meta.xml")
        title = next(meta.iter("{http://purl.org/dc/elements/1.1/}title"), None) if meta is not None else None
        slides = list(odp_slides(package))
        if not slides and package.xml("content.xml") is None:
            raise RejectedInput("corrupt", "its content.xml is missing or damaged")
    text = "".join(_slide(str(number), slide) for number, slide in enumerate(slides, start=1))
    return _clean_title(title.text if title is not None else None), text, []


def _odt(job: Job) -> Extracted:
    return _convert(odt.keep_text(job.path.read_bytes()), media.ODT, job)


def _epub(job: Job) -> Extracted:
    """A book's chapters are pages of XHTML, and go through the same converter as those."""
    with_chapters = rewritten(job.path.read_bytes(), _CHAPTERS, _chapter)
    return _convert(rewritten(with_chapters, epub.MANIFEST, epub.plain_names(job.path)), media.EPUB, job)


def _chapter(page: bytes) -> bytes:
    return closed_html(read_html(page)[1]).encode("utf-8")


def _rtf(job: Job) -> Extracted:
    text, pictures = take_pictures(job.path.read_bytes(), _PICTURE_MARK)
    title, markdown, _ = _convert(text, media.RTF, job)
    placed: set[int] = set()

    def reference(match: re.Match[str]) -> str:
        index = int(match[1])
        if index >= len(pictures) or index in placed:
            return ""
        placed.add(index)
        # What would end the description early is left out of it.
        said = re.sub(r"[\[\]\\]", "", pictures[index].description)
        return f"\n\n![{said}](image_{index}.png)\n\n"

    markdown = _PICTURE.sub(reference, markdown)
    # Those in text boxes, which the library doesn't read, come last.
    left = (f"\n\n![](image_{index}.png)" for index in range(len(pictures)) if index not in placed)
    return title, markdown + "".join(left), [{"image_index": n, "data": p.data} for n, p in enumerate(pictures)]


def _doc(job: Job) -> Extracted:
    """Word up to 2003: as Markdown the library runs all paragraphs together, so they are taken as they are."""
    title, text, images = _convert(job.path.read_bytes(), media.DOC, job, output="plain")
    return title, "\n\n".join(_doc_line(line) for line in text.split("\n") if line.strip()), images


def _doc_line(line: str) -> str:
    """A table comes as one line: each cell ends with a tab, and each row with one more."""
    cells = line.split("\t")
    width = next((n for n in range(2, len(cells)) if _is_table(cells, n)), 0)
    if width == 0:
        return " ".join(line.split())
    rows = [cells[start : start + width] for start in range(0, len(cells) - width, width + 1)]
    return f"{table_rows(rows)}\n\n{cells[-1].strip()}"


def _is_table(cells: list[str], width: int) -> bool:
    ends = cells[width :: width + 1]
    return (len(cells) - 1) % (width + 1) == 0 and not any(ends) and any(cells[:width])


def _xlsx(job: Job) -> Extracted:
    title, markdown, images = _convert(spelled_out(job.path.read_bytes()), media.XLSX, job)
    with Package(job.path) as package:
        return title, with_pictures(markdown, xlsx_pictures(package)), images


def _ods(job: Job) -> Extracted:
    title, markdown, images = _convert(odt.keep_text(job.path.read_bytes()), media.ODS, job)
    with Package(job.path) as package:
        return title, with_pictures(markdown, ods_pictures(package)), images


def _ppt(job: Job) -> Extracted:
    title, markdown, images = _extract(job)
    return title, _RULE.sub("", markdown), images


def _msg(job: Job) -> Extracted:
    """Outlook's own mails: as Markdown the library runs their lines together."""
    subject, text, _ = _convert(job.path.read_bytes(), media.MSG, job, output="plain")
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    # Two spaces at its end keep a line a line in Markdown.
    lines = [_HEADER.sub(r"**\1**: ", line) + "  " for line in head.split("\n")]
    return subject, "\n".join(lines) + f"\n\n{body}", []


def _extract(job: Job) -> Extracted:
    return _convert(job.path.read_bytes(), job.media_type, job)


_EXTRACTORS: dict[str, Callable[[Job], Extracted]] = {
    media.DOC: _doc,
    media.DOCX: _docx,
    media.EML: _mail,
    media.EPUB: _epub,
    media.HTML: _html,
    media.MSG: _msg,
    media.ODP: _odp,
    media.ODS: _ods,
    media.ODT: _odt,
    media.PPT: _ppt,
    media.PPTX: _pptx,
    media.RTF: _rtf,
    media.XLSX: _xlsx,
    media.XML: _xml,
}


def _convert(data: bytes, media_type: str, job: Job, output: str = "markdown") -> Extracted:
    config = kreuzberg.ExtractionConfig(
        # The cache would write the text of documents below the home folder.
        use_cache=False,
        output_format=output,
        enable_quality_processing=False,
        images=kreuzberg.ImageExtractionConfig(extract_images=True),
        extraction_timeout_secs=job.limits.parse_seconds,
        pages=_slides() if media_type == media.PPTX else None,
    )
    try:
        result = kreuzberg.extract_bytes_sync(data, media_type, config)
    except kreuzberg.MissingDependencyError as exc:
        raise RejectedInput("unsupported", f"{media_type} needs a program that is not here: {exc}") from exc
    except (kreuzberg.KreuzbergError, RuntimeError, ValueError, OSError) as exc:
        raise _refusal(exc) from exc
    metadata = cast("dict[str, Any]", result.metadata)
    title = metadata.get("title") or (metadata.get("core_properties") or {}).get("title")
    if media_type == media.MSG:
        title = metadata.get("subject")
    content = result.content.replace(_TAB, " ")
    return _clean_title(title), content, [dict(image) for image in result.images or []]


def _slide(number: str, content: str) -> str:
    return f"\n\n{_SLIDE_MARK}{number}\n\n{content}\n\n"


def _slides() -> kreuzberg.PageConfig:
    return kreuzberg.PageConfig(
        extract_pages=True, insert_page_markers=True, marker_format=_slide("{page_num}", "").rstrip() + "\n\n"
    )


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


def _pages(markdown: str, images: Pictures, job: Job) -> Iterator[ParsedPage]:
    """Sections and images in the order of the document, numbered through."""
    number = 1
    for content in _SLIDE.sub(_SLIDE_MARK, markdown).split(_SLIDE_MARK):
        for text, image in _parts(content, images):
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


def _parts(markdown: str, images: Pictures) -> Iterator[tuple[str, bytes | None]]:
    """Cut the text after each image that the file holds; where it stood, its description stays."""
    start = 0
    text = ""
    for match in REFERENCE.finditer(markdown):
        text += markdown[start : match.start()] + _mention(match)
        start = match.end()
        data = images.at(match.group(2))
        if data is not None:
            yield text, data
            text = ""
    yield text + markdown[start:], None


def _mention(match: re.Match[str]) -> str:
    description = match.group(1).strip()
    return f"[Image: {description}]" if description else ""
