"""The Celery app: queues, acknowledgement and bounds. Messages are wake-ups; the rows in Postgres are the truth."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.events.dispatcher import EventDispatcher
from kombu import Exchange, Queue

from pipeline.domain.unit import QUEUES, Stage
from worker.broker_link import PromptAmqp

__all__ = ["UnbufferedDispatcher", "make_app", "task_name"]

_VISIBILITY_TIMEOUT_S = 7200
"""Above ``unit.hard_deadline_s``. Redelivery is harmless (the lease token decides), and useless before that."""


class UnbufferedDispatcher(EventDispatcher):
    """Sends each event at once, under the dispatcher's lock.

    Celery buffers task events for its hub to flush; an event that a pool's thread adds between the flush's sending and
    its clearing is lost, and Flower shows that task as received for ever.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "buffer_group": None, "on_send_buffered": None})


def task_name(stage: Stage) -> str:
    """What a stage's slices are called in Celery; chunk has a name of its own on parse's queue."""
    return f"tidegate.{stage.value}"


def make_app(broker: str, key_prefix: str) -> Celery:
    """Make the app. Nothing connects before the first message.

    Args:
        broker: The broker in Celery's form (``worker.embedded.broker_url``).
        key_prefix: Of all its keys in Redis, so that two installations don't see each other.
    """
    app = Celery("tidegate", set_as_current=False, amqp=f"{PromptAmqp.__module__}:{PromptAmqp.__name__}")
    app.events.dispatcher_cls = f"{UnbufferedDispatcher.__module__}:{UnbufferedDispatcher.__name__}"
    # The anonymous exchange routes by the queue's name alone: no binding is kept in Redis that a flush could take.
    queues = [Queue(queue.value, Exchange(""), routing_key=queue.value) for queue in QUEUES]
    app.conf.update(
        broker_url=broker,
        broker_connection_timeout=3,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # What Redis refuses (it became a replica, its disk is full) ends no worker: it waits for better times.
        broker_channel_error_retry=True,
        broker_transport_options={
            "global_keyprefix": key_prefix,
            "visibility_timeout": _VISIBILITY_TIMEOUT_S,
            "socket_timeout": 5,
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
        },
        task_queues=queues,
        task_default_queue=queues[0].name,
        task_default_exchange="",
        task_create_missing_queues=False,
        task_serializer="json",
        accept_content=["json"],
        event_serializer="json",
        result_backend=None,
        # There is none; otherwise each thread would look for it anew among all that is installed.
        result_backend_thread_safe=True,
        task_ignore_result=True,
        task_acks_late=True,
        # A poison task would come back for ever; lost leases are counted in Postgres, and bounded.
        task_reject_on_worker_lost=False,
        task_publish_retry=False,
        worker_pool="threads",
        worker_prefetch_multiplier=1,
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        enable_utc=True,
        timezone="UTC",
    )
    return app
