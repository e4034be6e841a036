"""How many pages a PDF has: it says so in the ``/Count`` of its page tree, and some programs write a wrong one."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pypdfium2
import pypdfium2.raw as pdfium

__all__ = ["count_pages", "uncounted"]

# What is looked through is held in memory.
_MAX_COPIED_BYTES = 64 << 20
_KIDS = re.compile(rb"/Kids\s*\[([^\]]*)\]")
_REFERENCE = re.compile(rb"\d+\s+\d+\s+R\b")
_NODE = re.compile(rb"/Type\s*/Pages\b")
_END = b"endobj"
_PAGE = re.compile(rb"/Type\s*/Page\b")
_COUNT = re.compile(rb"(?<=/Count)(\s+)(\d+)")


def count_pages(document: pypdfium2.PdfDocument, path: Path) -> int:
    """Count the pages: as many as the file says, unless its page tree names fewer.

    Pages that the tree names and that are missing are damage, and are counted.
    """
    said = len(document)
    if said == 0 or _has_page(document, said) or path.stat().st_size > _MAX_COPIED_BYTES:
        return said
    named = _named(document)
    is_plain = 0 < named < said and _has_page(document, named) and not _has_page(document, named + 1)
    return named if is_plain else said


def uncounted(path: Path, said: int) -> bytes | None:
    """The file without its counts, if it seems to have more pages than it says: pdfium then counts them itself.

    Earlier versions of pages, which stay in a file that was added to, look the same: only that count tells.
    """
    if path.stat().st_size > _MAX_COPIED_BYTES:
        return None
    content = path.read_bytes()
    if sum(1 for _ in _PAGE.finditer(content)) <= said:
        return None
    # Nothing may change its place.
    return _COUNT.sub(lambda found: found[1] + b"0" * len(found[2]), content)


def _has_page(document: pypdfium2.PdfDocument, number: int) -> bool:
    """Whether the page is in the file, without a look at its content."""
    return bool(pdfium.FPDF_GetPageSizeByIndexF(document.raw, number - 1, pdfium.FS_SIZEF()))


def _named(document: pypdfium2.PdfDocument) -> int:
    """How many pages the nodes of the page tree name; 0 when it can't be told.

    pdfium gives no access to them, but writes them out plainly, also those that the file has in compressed form.
    """
    copy = io.BytesIO()
    try:
        document.save(copy)
    except pypdfium2.PdfiumError:
        return 0
    objects = copy.getvalue().split(_END)
    kids = [found[1] for one in objects if _NODE.search(one) and (found := _KIDS.search(one))]
    # Each node but the first is itself named by another.
    return sum(len(_REFERENCE.findall(one)) for one in kids) - (len(kids) - 1)
