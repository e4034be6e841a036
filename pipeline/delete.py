"""Delete: a document with everything that was made of it, its reusable results and its bytes included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from pipeline.domain.errors import UsageError
from pipeline.sources import source_uri
from pipeline.store.blob_rows import sweep_blobs
from pipeline.store.blobs import BlobStore
from pipeline.store.reader import reader_of
from pipeline.store.removal import remove_document
from pipeline.store.reports import documents_named
from pipeline.store.session import Sessions, transact

__all__ = ["DeleteResult", "Deleted", "delete"]


@dataclass(frozen=True, slots=True)
class Deleted:
    document: UUID
    path: str


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What is gone. ``blobs`` counts the files that nothing refers to any more."""

    documents: list[Deleted]
    blobs: int

    def to_json(self) -> dict[str, Any]:
        return {
            "documents": [{"id": str(one.document), "path": one.path} for one in self.documents],
            "counts": {"documents": len(self.documents), "blobs": self.blobs},
        }


def delete(sessions: Sessions, blobs: BlobStore, documents: Sequence[str]) -> DeleteResult:
    """Delete documents and what came out of them. A run in progress ends with its document; a late answer is dropped.

    All names are looked up before anything is deleted.

    Args:
        documents: As people name them; a mail goes with its attachments, and an archive's name stands for what it held.

    Raises:
        UsageError: There is no such document; nothing was deleted.
        ServiceUnavailable: Postgres or the blob store is away; the documents before are deleted.
    """
    if not documents:
        raise UsageError("nothing says what to delete", "tidegate delete DOC; tidegate status lists the documents")
    with sessions() as session:
        reader = reader_of(session)
        found = {
            one.id: one.uri
            for name in documents
            for one in documents_named(reader, name, as_uri=source_uri(name), with_members=True)
        }
    deleted: list[Deleted] = []
    digests: set[str] = set()
    for document_id, path in found.items():
        digests |= transact(sessions, partial(remove_document, document_id=document_id))
        # After the commit: a document whose password is gone could not be read again.
        blobs.delete_secret(str(document_id))
        deleted.append(Deleted(document_id, path))
    return DeleteResult(deleted, sweep_blobs(sessions, blobs, digests))
