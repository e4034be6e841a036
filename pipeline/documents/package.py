"""The parts of a zipped document, found by the names that its markup gives them."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote
from xml.etree import ElementTree

from pipeline.documents.limits import check_markup

__all__ = ["Package", "in_utf8", "line_of", "renamed", "rewritten"]

_RELATIONSHIPS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_CONTENT_TYPES = "[Content_Types].xml"
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    KeyError,
)


def rewritten(package: bytes, parts: re.Pattern[str], rewrite: Callable[[bytes], bytes]) -> bytes:
    """A package with some parts changed; the same bytes when nothing is. What can't be read is left out of a new one.

    Args:
        parts: The names of those, from their beginning.
        rewrite: Takes and returns a part's bytes.
    """
    with zipfile.ZipFile(io.BytesIO(package)) as source:
        changed: dict[str, bytes] = {}
        for name in filter(parts.match, source.namelist()):
            with suppress(*_UNREADABLE):
                if (new := rewrite(old := source.read(name))) != old:
                    changed[name] = new
        if not changed:
            return package
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as target:
            for name in dict.fromkeys(source.namelist()):
                with suppress(*_UNREADABLE):
                    target.writestr(name, changed[name] if name in changed else source.read(name))
    return out.getvalue()


def renamed(package: bytes, names: Mapping[str, str]) -> bytes:
    """A package some of whose parts are called otherwise, each in the folder where it was, also where they are named.

    Args:
        names: The new name by the old one.
    """
    files = {posixpath.basename(old).encode(): posixpath.basename(new).encode() for old, new in names.items()}
    named = re.compile(rb"(?<=[\"'/])(" + b"|".join(map(re.escape, files)) + rb")(?=[\"'])")
    links = {_links_of(old): _links_of(new) for old, new in names.items()}
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as source, zipfile.ZipFile(out, "w") as target:
        for name in dict.fromkeys(source.namelist()):
            with suppress(*_UNREADABLE):
                part = source.read(name)
                if name == _CONTENT_TYPES or name.endswith(".rels"):
                    part = named.sub(lambda match: files[match[1]], part)
                target.writestr(names.get(name) or links.get(name, name), part)
    return out.getvalue()


def _links_of(part: str) -> str:
    folder, file = posixpath.split(part)
    return posixpath.join(folder, "_rels", f"{file}.rels")


def in_utf8(rewrite: Callable[[str], str]) -> Callable[[bytes], bytes]:
    """For ``rewritten``: a change of a part's text, which a part in another encoding is spared."""

    def change(part: bytes) -> bytes:
        try:
            return rewrite(part.decode("utf-8")).encode("utf-8")
        except UnicodeDecodeError:
            return part

    return change


def line_of(paragraph: ElementTree.Element, text: str, breaks: frozenset[str]) -> str:
    """The words of a paragraph as one line, without more than a space between two.

    Args:
        text: The tag of what holds text.
        breaks: The tags of what parts words and holds none.
    """
    parts = (" " if part.tag in breaks else part.text or "" for part in paragraph.iter() if part.tag in {text, *breaks})
    return " ".join("".join(parts).split())


class Package:
    """A package that ``limits.check_archive`` has let pass; what it lacks or garbles is None, not an error."""

    def __init__(self, source: Path | bytes) -> None:
        self._zip = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
        self._names = set(self._zip.namelist())

    def __enter__(self) -> Package:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def part(self, name: str) -> bytes | None:
        """The bytes of the part of exactly that name."""
        try:
            return self._zip.read(name) if name in self._names else None
        except _UNREADABLE:
            return None

    def named(self, target: str) -> bytes | None:
        """The bytes that a reference names, relative to a part that isn't known: ``../media/image1.png``."""
        wanted = posixpath.normpath(unquote(target.split("#")[0])).lstrip("./")
        if not wanted:
            return None
        found = [name for name in self._names if name == wanted or name.endswith(f"/{wanted}")]
        return self.part(min(found, key=lambda name: (len(name), name))) if found else None

    def xml(self, name: str) -> ElementTree.Element | None:
        """A part as an element tree.

        Raises:
            RejectedInput: ``unsafe``: it declares entities, under whatever name it lies.
        """
        data = self.part(name)
        if data is None:
            return None
        check_markup(data)
        try:
            return ElementTree.fromstring(data)  # noqa: S314 -- entities were refused
        except (ElementTree.ParseError, ValueError, LookupError):
            return None

    def related(self, name: str, kind: str) -> dict[str, str]:
        """What a part of an Office package refers to: the names of parts by relationship id.

        Args:
            name: The part that refers; the package itself where it is empty.
            kind: The last word of the relationship's type: ``slide``, ``notesSlide``, ``image``.
        """
        folder = posixpath.dirname(name)
        tree = self.xml(_links_of(name))
        found: dict[str, str] = {}
        for link in tree.iter(_RELATIONSHIPS) if tree is not None else ():
            if link.get("Type", "").rpartition("/")[2] == kind and link.get("TargetMode") != "External":
                target = link.get("Target", "")
                joined = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
                found[link.get("Id", "")] = posixpath.normpath(joined)
        return found
