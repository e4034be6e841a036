"""Sends slices to the broker, after the commit that made them due (``pipeline.dispatch``)."""

from __future__ import annotations

from collections.abc import Sequence

from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.unit import Stage, queue_of
from pipeline.store.window import Slice
from worker.app import task_name

__all__ = ["SlicePublisher", "ordinals_text", "slice_id", "slice_text"]

_DOCUMENT_DIGITS = 8
_PAGE_STAGES = (Stage.DESCRIBE, Stage.FORMAT)
_CHUNK_STAGES = (Stage.RETRIEVE, Stage.EMBED)


class SlicePublisher:
    """Publishes slices, readable in Flower; safe to use from several threads."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def __call__(self, slices: Sequence[Slice]) -> None:
        """Send every slice to its stage's queue, once and without waiting for better times.

        Raises:
            ServiceUnavailable: The broker is away; some of the slices may have been sent.
        """
        try:
            with self._app.producer_pool.acquire(block=True) as producer:
                for piece in slices:
                    self._app.send_task(
                        task_name(piece.stage),
                        args=(piece.run_id, piece.stage.value, list(piece.ordinals)),
                        task_id=slice_id(piece),
                        queue=queue_of(piece.stage).value,
                        argsrepr=slice_text(piece),
                        kwargsrepr="{}",
                        producer=producer,
                        retry=False,
                        ignore_result=True,
                    )
        except (KombuError, RedisError, OSError) as error:
            raise ServiceUnavailable(
                f"Redis does not take messages: {error or type(error).__name__}",
                "nothing is lost; check TIDEGATE_REDIS_URL, or start the embedded services: tidegate up",
            ) from error


def slice_id(piece: Slice) -> str:
    """A slice's task id: stage, document, ordinals and wake number, like ``describe:7f3a90bc:3-10:17``."""
    document = str(piece.document_id)[:_DOCUMENT_DIGITS]
    return f"{piece.stage.value}:{document}:{ordinals_text(piece.ordinals)}:{piece.wake}"


def slice_text(piece: Slice) -> str:
    """A slice's arguments as people read them."""
    document = f"document {str(piece.document_id)[:_DOCUMENT_DIGITS]}, run {piece.run_id}"
    if piece.stage in _PAGE_STAGES:
        return f"{document}, pages {ordinals_text(piece.ordinals)}"
    if piece.stage in _CHUNK_STAGES:
        return f"{document}, chunks {ordinals_text(piece.ordinals)}"
    return document


def ordinals_text(ordinals: Sequence[int]) -> str:
    """Sorted ordinals with runs drawn together: ``1,3-5``."""
    spans: list[list[int]] = []
    for ordinal in ordinals:
        if spans and ordinal == spans[-1][1] + 1:
            spans[-1][1] = ordinal
        else:
            spans.append([ordinal, ordinal])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
