"""Bytes into a blob store, for tests that have no file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pipeline.store.blobs import BlobSource, BlobStore, StoredBlob

__all__ = ["put"]


def put(store: BlobStore, data: bytes) -> StoredBlob:
    """Store bytes."""
    (blob,) = store.put_all([BlobSource(Path("bytes"), hashlib.sha256(data).hexdigest(), len(data), data)])
    assert isinstance(blob, StoredBlob)
    return blob
