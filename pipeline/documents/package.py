"""The parts of a zipped document, found by the names that its markup gives them."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote
from xml.etree import ElementTree

from pipeline.documents.limits import check_markup

__all__ = ["Package"]

_RELATIONSHIPS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
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


class Package:
    """A package that ``limits.check_archive`` has let pass; what it lacks or garbles is None, not an error."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
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
            name: The part that refers.
            kind: The last word of the relationship's type: ``slide``, ``notesSlide``, ``image``.
        """
        folder, file = posixpath.split(name)
        tree = self.xml(f"{folder}/_rels/{file}.rels")
        found: dict[str, str] = {}
        for link in tree.iter(_RELATIONSHIPS) if tree is not None else ():
            if link.get("Type", "").rpartition("/")[2] == kind and link.get("TargetMode") != "External":
                target = link.get("Target", "")
                joined = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
                found[link.get("Id", "")] = posixpath.normpath(joined)
        return found
