"""A document's page images on their way into the blob store: many at a time, with one sync for all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipeline.store.blobs import BlobSource, BlobStore, StoredBlob

__all__ = ["put_images"]

_PORTION_BYTES = 32 << 20
_PORTION_FILES = 256


def put_images(blobs: BlobStore, files: Iterable[tuple[int, Path]]) -> dict[int, StoredBlob]:
    """Store page images, by page number.

    Raises:
        ServiceUnavailable: The store is full or away; what it took already is swept up when nothing refers to it.
        OSError: A file can't be read.
    """
    stored: dict[int, StoredBlob] = {}
    for portion in _portions(files):
        outcomes = blobs.put_all([source for _, source in portion])
        for (number, _), outcome in zip(portion, outcomes, strict=True):
            if isinstance(outcome, OSError):
                raise outcome
            stored[number] = outcome
    return stored


def _portions(files: Iterable[tuple[int, Path]]) -> Iterator[list[tuple[int, BlobSource]]]:
    """The files with their bytes, as many at a time as a process may hold."""
    portion: list[tuple[int, BlobSource]] = []
    held = 0
    for number, path in files:
        data = path.read_bytes()
        portion.append((number, BlobSource(path, hashlib.sha256(data).hexdigest(), len(data), data)))
        held += len(data)
        if held >= _PORTION_BYTES or len(portion) >= _PORTION_FILES:
            yield portion
            portion, held = [], 0
    if portion:
        yield portion
