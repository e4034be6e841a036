"""Rows as the ledger leaves them, written directly: for tests of what reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, update

from pipeline.store.documents import make_batch, make_collection
from pipeline.store.schema import Attempt, Blob, ChunkRow, Collection, Document, Embedding, Page, Run, Unit
from pipeline.store.session import Sessions
from pipeline.store.text import index_terms, tsv_of

__all__ = ["Seed"]

_BODY: dict[str, Any] = {"stages": {"embed": {"model": "test", "dim": 3}}}


class Seed:
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    def document(
        self, uri: str, *, collection: str = "default", batch: str | None = None, digest: str | None = None
    ) -> UUID:
        digest = digest or hashlib.sha256(uri.encode()).hexdigest()
        with self.sessions.begin() as session:
            collection_id = make_collection(session, collection)
            batch_id = make_batch(session, collection_id, batch)[0] if batch else None
            if session.get(Blob, digest) is None:
                session.add(Blob(digest=digest, size_bytes=1, media_type="text/plain"))
                session.flush()
            document = Document(
                collection_id=collection_id,
                batch_id=batch_id,
                source_uri=uri,
                blob_digest=digest,
                media_type="text/plain",
                size_bytes=1,
            )
            session.add(document)
            session.flush()
            return document.id

    def run(self, document_id: UUID, state: str = "queued", *, live: bool = False, **values: Any) -> int:
        with self.sessions.begin() as session:
            document = session.get_one(Document, document_id)
            values = {"recipe": _BODY, "recipe_digest": "r", "blob_digest": document.blob_digest, **values}
            if state in ("done", "empty", "failed", "cancelled"):
                values.setdefault("finished_at", func.now())
            run = Run(
                document_id=document_id,
                collection_id=document.collection_id,
                batch_id=document.batch_id,
                media_type=document.media_type,
                state=state,
                **values,
            )
            session.add(run)
            session.flush()
            if live:
                document.live_run_id = run.id
            return run.id

    def units(self, run_id: int, stage: str, ordinals: Sequence[int], state: str = "done", **values: Any) -> None:
        with self.sessions.begin() as session:
            run = session.get_one(Run, run_id)
            if state == "leased":
                values |= {"lease_token": UUID(int=1), "lease_expires_at": func.now()}
            if state == "parked":
                values.setdefault("resume_at", run.resume_at)
            for ordinal in ordinals:
                session.add(
                    Unit(
                        run_id=run_id,
                        collection_id=run.collection_id,
                        priority=run.priority,
                        queued_at=run.queued_at,
                        stage=stage,
                        ordinal=ordinal,
                        state=state,
                        **values,
                    )
                )

    def page(self, run_id: int, number: int, text: str, **values: Any) -> None:
        with self.sessions.begin() as session:
            session.add(
                Page(
                    run_id=run_id,
                    number=number,
                    text_layer=text,
                    text_format="plain",
                    text_quality="good",
                    has_figures=False,
                    blank=False,
                    width_pt=1,
                    height_pt=1,
                    **values,
                )
            )

    def chunk(
        self,
        run_id: int,
        ordinal: int,
        text: str,
        vector: Sequence[float] | None = None,
        space_id: int = 0,
        **values: Any,
    ) -> int:
        with self.sessions.begin() as session:
            run = session.get_one(Run, run_id)
            values = {"page_from": ordinal, "page_to": ordinal, "tokens": 1, "context": "", **values}
            chunk = ChunkRow(
                run_id=run_id,
                collection_id=run.collection_id,
                ordinal=ordinal,
                text=text,
                tsv=tsv_of(index_terms(text), index_terms(values["context"])),
                **values,
            )
            session.add(chunk)
            session.flush()
            if vector is not None:
                session.execute(
                    update(Collection)
                    .where(Collection.id == run.collection_id, Collection.active_space_id.is_(None))
                    .values(active_space_id=space_id)
                )
                session.execute(
                    insert(Embedding).values(
                        space_id=space_id, chunk_id=chunk.id, text_digest=str(chunk.id), vector=list(vector)
                    )
                )
            return chunk.id

    def attempt(self, run_id: int, stage: str, **values: Any) -> None:
        with self.sessions.begin() as session:
            values = {"role": "vlm", "call_id": "c", "position": 0, **values}
            session.add(Attempt(run_id=run_id, stage=stage, **values))

    def published(self, uri: str, *texts: str, **options: Any) -> UUID:
        """A live document with a chunk a text."""
        document = self.document(uri, **options)
        run = self.run(document, "done", live=True)
        for ordinal, text in enumerate(texts, 1):
            self.chunk(run, ordinal, text)
        return document
