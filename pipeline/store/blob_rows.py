"""The rows of blobs: who refers to them, and the sweep of those that nobody does."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.orm import Session

from pipeline.store.blobs import BlobStore
from pipeline.store.session import Sessions

__all__ = ["record_blobs", "sweep_blobs"]

_PORTION = 200


def record_blobs(session: Session, blobs: Iterable[tuple[str, int, str]]) -> set[str]:
    """Make the rows of blobs (digest, bytes, media type) that the store holds; returns the digests that were new.

    The rows stay locked until the transaction ends, so that the sweep of unused blobs can't take one away before
    something refers to it. A new row for a blob that the store *already* held may have crossed such a sweep: look
    after the commit whether the store still holds it.
    """
    rows = sorted({digest: (digest, size, media_type) for digest, size, media_type in blobs}.values())
    # One document and not an array a column: psycopg writes it in a tenth of the time.
    listed = [{"digest": digest, "size_bytes": size, "media_type": media_type} for digest, size, media_type in rows]
    made = session.execute(_RECORD_BLOBS, {"blobs": listed})
    return {row.digest for row in made if row.is_new}


_RECORD_BLOBS = text(
    """
    insert into blob (digest, size_bytes, media_type)
    select * from json_to_recordset(:blobs) as listed (digest text, size_bytes bigint, media_type text)
    on conflict (digest) do update set created_at = now()
    returning digest, xmax = 0 as is_new
    """
).bindparams(bindparam("blobs", type_=JSON))


def sweep_blobs(sessions: Sessions, blobs: BlobStore, digests: Collection[str] | None = None) -> int:
    """Delete the blobs that no document, run or page refers to; returns how many.

    Args:
        digests: Only among these; None for a portion of all that have been unused for an hour, since what has
            only just been stored is referred to by the transaction that ends its unit.

    Raises:
        ServiceUnavailable: Postgres or the store is away; what is left is found by the next sweep.
    """
    if digests is None:
        return _sweep(sessions, blobs, None)
    asked = sorted(digests)
    return sum(_sweep(sessions, blobs, asked[at : at + _PORTION]) for at in range(0, len(asked), _PORTION))


def _sweep(sessions: Sessions, blobs: BlobStore, digests: list[str] | None) -> int:
    among = f"and {_OLD}" if digests is None else "and blob.digest = any(cast(:digests as text[]))"
    with sessions.begin() as session:
        # Locked first and looked at again: a reference that was committed in between is seen by the second statement,
        # and none can be added while the lock is held.
        locked = list(
            session.scalars(
                text(f"select digest from blob where {_UNUSED} {among} order by digest limit :limit{_SKIP}"),  # noqa: S608
                {"limit": _PORTION, **({"digests": digests} if digests is not None else {})},
            )
        )
        gone = session.scalars(
            text(f"delete from blob where digest = any(cast(:locked as text[])) and {_UNUSED} returning digest"),  # noqa: S608
            {"locked": locked},
        ).all()
        # Within the transaction: who stores the same bytes meanwhile waits for the row, then looks at the store.
        for digest in gone:
            blobs.delete(digest)
    return len(gone)


_SKIP = " for update skip locked"
_OLD = "blob.created_at < now() - interval '1 hour'"
_UNUSED = """
    not exists (select from document where document.blob_digest = blob.digest)
    and not exists (select from run where run.blob_digest = blob.digest)
    and not exists (select from page where page.image_digest = blob.digest)
"""
