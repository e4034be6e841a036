"""A space's reference vector: what its model made of the fixed probe text when it was first asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

from sqlalchemy import select, update

from pipeline.store.patience import outlasting
from pipeline.store.schema import EmbeddingSpace
from pipeline.store.session import Sessions
from pipeline.store.spaces import ensure_space

__all__ = ["PostgresReference"]

T = TypeVar("T")


class PostgresReference:
    """The reference of one space (port ``SpaceReference``). The loop never touches Postgres: an executor does.

    Args:
        patient: Whether a proposal waits for Postgres to come back: its vector is part of an answer that has been paid
            for. Whoever cancels the task ends that.
    """

    def __init__(self, sessions: Sessions, executor: Executor, model: str, dim: int, *, patient: bool) -> None:
        self._patient = patient
        self._sessions = sessions
        self._executor = executor
        self._model = model
        self._dim = dim

    async def reference(self) -> list[float] | None:
        """See ``SpaceReference.reference``."""
        return await self._run(self._read)

    async def propose(self, vector: list[float]) -> list[float]:
        """See ``SpaceReference.propose``."""

        def write() -> Awaitable[list[float]]:
            return self._run(lambda: self._propose(vector))

        return await (outlasting(write) if self._patient else write())

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _read(self) -> list[float] | None:
        with self._sessions() as session:
            return session.scalar(
                select(EmbeddingSpace.reference).where(
                    EmbeddingSpace.model == self._model, EmbeddingSpace.dim == self._dim
                )
            )

    def _propose(self, vector: list[float]) -> list[float]:
        space_id = ensure_space(self._sessions, self._model, self._dim)
        with self._sessions.begin() as session:
            # Guarded: the first answer stands, whoever comes later.
            session.execute(
                update(EmbeddingSpace)
                .where(EmbeddingSpace.id == space_id, EmbeddingSpace.reference.is_(None))
                .values(reference=vector)
                .execution_options(synchronize_session=False)
            )
            standing = session.scalar(select(EmbeddingSpace.reference).where(EmbeddingSpace.id == space_id))
        return vector if standing is None else standing
