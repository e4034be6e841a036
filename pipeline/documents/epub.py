"""Works around what a reader loses of a book (kreuzberg 4.10.4), by rewriting it beforehand.

It looks for a chapter under the name that the book's list of files gives, in which a space is written as ``%20``.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import unquote
from xml.sax.saxutils import quoteattr

from pipeline.documents.package import in_utf8

__all__ = ["MANIFEST", "plain_names"]

MANIFEST = re.compile(r".*\.opf$", re.IGNORECASE | re.DOTALL)
_HREF = re.compile(r"""\bhref=("[^"<>]*"|'[^'<>]*')""")


def plain_names(book: Path) -> Callable[[bytes], bytes]:
    """For ``rewritten``: files are listed by the names that they have in the book."""
    with zipfile.ZipFile(book) as package:
        files = {posixpath.basename(name) for name in package.namelist()}

    def plain(href: re.Match[str]) -> str:
        written = unescape(href[1][1:-1])
        # Some writers take an address as the name, percent signs and all.
        if "%" not in written or posixpath.basename(written) in files:
            return href[0]
        return f"href={quoteattr(unquote(written))}"

    return in_utf8(lambda manifest: _HREF.sub(plain, manifest))
