"""The blob store: originals and page images, by the SHA-256 of their bytes, outside the database.

A blob is written once and never changed. Beside the blobs lie *secrets* (documents' passwords): they are no rows, so
that no dump, query or message of ours ever holds one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from pipeline.domain.errors import ConfigError, RejectedInput

__all__ = ["BlobSource", "BlobStore", "StoredBlob", "file_chunks", "missing", "open_blobs", "write_all"]

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob in the store.

    Attributes:
        digest: SHA-256 of its bytes, in hex.
        created: False when the store held it before.
    """

    digest: str
    size_bytes: int
    created: bool


@dataclass(frozen=True, slots=True)
class BlobSource:
    """A file to store, as it was read a moment ago.

    Attributes:
        digest: What its bytes hashed to, in hex.
        data: The bytes; None for a file that is to be read once more.
    """

    path: Path
    digest: str
    size_bytes: int
    data: bytes | None = None


class BlobStore(Protocol):
    """Content-addressed bytes. Every operation may raise ``ServiceUnavailable`` (full, forbidden, unreachable)."""

    def put_all(self, sources: Sequence[BlobSource]) -> list[StoredBlob | OSError]:
        """Store many files, which costs less than one after the other; all are there for good when it returns.

        Returns:
            A blob for each, or the error where the file itself can't be read any more. The digest is that of the
            bytes that were stored: of a file that somebody has written to meanwhile it is another one.
        """
        ...

    def read(self, digest: str) -> bytes:
        """A blob's bytes.

        Raises:
            RejectedInput: ``blob_missing``: the store does not hold it.
        """
        ...

    def local_path(self, digest: str) -> AbstractContextManager[Path]:
        """A context in which the blob lies in a local file, for readers that need one. Never write to it.

        Raises:
            RejectedInput: ``blob_missing``: the store does not hold it.
        """
        ...

    def exists(self, digest: str) -> bool: ...

    def delete(self, digest: str) -> None:
        """Remove a blob; one that is not there is no error. Only for blobs that no row refers to."""
        ...

    def put_secret(self, name: str, secret: str) -> None:
        """Keep a document's password under the document's id."""
        ...

    def read_secret(self, name: str) -> str | None: ...

    def delete_secret(self, name: str) -> None: ...


def open_blobs(url: str) -> BlobStore:
    """Open the store that ``TIDEGATE_BLOB_URL`` names: ``file:///folder`` or ``s3://bucket/prefix``.

    Raises:
        ConfigError: The URL is of another kind, or boto3 is not installed.
        ServiceUnavailable: The folder can't be made or written to.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        from pipeline.store.file_blobs import FileBlobs

        return FileBlobs(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        # boto3 is an extra and takes half a second to import.
        from pipeline.store.s3 import open_s3

        return open_s3(parts.netloc, parts.path.strip("/"))
    raise ConfigError(
        f"TIDEGATE_BLOB_URL is {url!r}, which names no blob store",
        "write it as file:///absolute/folder or s3://bucket/prefix",
    )


def file_chunks(file: BinaryIO) -> Iterator[bytes]:
    """An open file's bytes, a piece at a time."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def write_all(handle: int, data: bytes) -> None:
    """Write without a buffer: one that could not be written is written again when it is closed, and fails anew."""
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def missing(digest: str, where: str) -> RejectedInput:
    return RejectedInput(
        "blob_missing", f"the stored file {digest[:12]}… is not in {where}; enqueue the original again"
    )
