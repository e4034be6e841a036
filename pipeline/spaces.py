"""By which embedding model each collection is searched, and what is left to do when another is configured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import Any

from pipeline.domain.space import EmbedSpace, Space
from pipeline.store.reader import Reads
from pipeline.store.space_reports import CollectionSpace, space_reports

__all__ = ["SpaceStanding", "space_standing"]


@dataclass(frozen=True, slots=True)
class SpaceStanding:
    """One collection.

    Attributes:
        note: What a person should know, with the command that helps after two spaces; empty when all is as configured.
    """

    report: CollectionSpace
    note: str = ""

    @property
    def command(self) -> str:
        """The command of the note, if it names one."""
        return self.note.partition(":  ")[2]

    def to_json(self) -> dict[str, Any]:
        return {
            "collection": self.report.collection,
            "active": _named(self.report.active),
            "next": _named(self.report.next),
            "ready": self.report.ready,
            "documents": self.report.documents,
        }


def space_standing(
    reads: Reads, configured: Callable[[], EmbedSpace], collection: str | None = None
) -> list[SpaceStanding]:
    """How collections stand beside the configured embedding model; those without any vector are left out.

    Args:
        configured: Asked only where there is a vector: it takes a whole configuration to say.

    Raises:
        ServiceUnavailable: Postgres is away.
    """
    with reads() as reader:
        reports = space_reports(reader, collection)
    embedded = [one for one in reports if one.active is not None]
    if not embedded:
        return []
    wanted = configured()
    return [SpaceStanding(one, _note(one, wanted)) for one in embedded]


def _note(one: CollectionSpace, configured: EmbedSpace) -> str:
    again = f":  tidegate requeue --collection {quote(one.collection)} --from-stage embed"
    if one.next is not None:
        told = (
            f"{one.collection} is searched by {one.active}; {one.ready} of {one.documents} documents are ready in"
            f" {one.next}, and it switches when all are"
        )
        return told if _same(one.next, configured) else told + again
    if one.active is not None and not _same(one.active, configured):
        return f"{one.collection} is searched by {one.active}, and kb.embedder is {configured.model}{again}"
    return ""


def _same(space: Space, configured: EmbedSpace) -> bool:
    return (space.model, space.dim) == (configured.model, configured.dim)


def _named(space: Space | None) -> dict[str, Any] | None:
    return None if space is None else {"model": space.model, "dim": space.dim}
