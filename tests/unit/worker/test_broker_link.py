"""What is said of a lost broker."""

from __future__ import annotations

import io
import json
import logging

import pytest
from celery.exceptions import Reject

from pipeline.observe.logging import configure_logging
from worker.app import make_app
from worker.broker_link import losses_said_once

_CONSUMER = logging.getLogger("celery.worker.consumer.consumer")
_CONNECTED = logging.getLogger("celery.worker.consumer.connection")
_REQUEST = logging.getLogger("celery.worker.request")


@pytest.fixture
def stream() -> io.StringIO:
    made = io.StringIO()
    configure_logging("info", "json", stream=made)
    return made


def _lose() -> None:
    try:
        raise ConnectionError("Error 111 connecting to redis")
    except ConnectionError as error:
        _CONSUMER.warning("consumer: Connection to broker lost. Trying again", exc_info=True)
        _CONSUMER.error("consumer: Cannot connect to %s: %s.\n%s", "redis://", error, "Trying again in 2 seconds")


def test_an_outage_is_one_warning_without_a_traceback_and_its_end_one_line(stream: io.StringIO) -> None:
    with losses_said_once():
        _CONNECTED.info("Connected to %s", "redis://")
        for _ in range(2):
            _lose()
            _lose()
            _CONNECTED.info("Connected to %s", "redis://")
        _CONSUMER.info("not for our log")
        _CONSUMER.error("something else")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    outage = [("broker.lost", "warning"), ("broker.restored", "info")]
    assert [(line["event"], line["level"]) for line in lines] == [*outage, *outage, ("something else", "error")]
    assert lines[0]["error"] == "Redis: Error 111 connecting to redis"
    assert "TIDEGATE_REDIS_URL" in lines[0]["remedy"]
    assert "Traceback" not in stream.getvalue()


def test_a_message_that_could_not_be_acknowledged_is_no_lost_broker(stream: io.StringIO) -> None:
    with losses_said_once():
        try:
            raise TimeoutError("Timeout reading from socket")
        except TimeoutError as error:
            _REQUEST.critical("Couldn't ack %r, reason:%r", "tag", error, exc_info=True)
        # The connection has lived on; when it is lost for good, that is told.
        _lose()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [(line["event"], line["level"]) for line in lines]
    assert told == [("slice.not_acknowledged", "info"), ("broker.lost", "warning")]
    assert "Traceback" not in stream.getvalue()


def test_a_message_that_is_handed_back_at_the_end_is_no_warning(stream: io.StringIO) -> None:
    trace = logging.getLogger("celery.app.trace")
    with losses_said_once():
        try:
            raise Reject("this worker is about to end", requeue=True)
        except Reject as reject:
            named = {"name": "tidegate.embed", "id": "embed:7f3a90bc:1:17", "exc": reject}
            trace.warning("Task %(name)s[%(id)s] %(exc)s", named, exc_info=True)
        trace.error("Task %(name)s[%(id)s] raised unexpected: %(exc)s", named)
    handed_back, failed = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (handed_back["event"], handed_back["level"]) == ("slice.handed_back", "info")
    assert handed_back["slice"] == "embed:7f3a90bc:1:17"
    assert failed["level"] == "error"


def test_outside_the_block_celerys_loggers_are_as_they_were(stream: io.StringIO) -> None:
    before = [(logger.level, list(logger.filters)) for logger in (_CONSUMER, _CONNECTED, _REQUEST)]
    with losses_said_once():
        pass
    assert [(logger.level, list(logger.filters)) for logger in (_CONSUMER, _CONNECTED, _REQUEST)] == before
    _CONNECTED.info("Connected to %s", "redis://")
    assert not stream.getvalue()


def test_the_pause_between_tries_to_reach_a_lost_broker_does_not_grow() -> None:
    waits: list[float] = []

    def tell(_error: Exception, interval: float) -> None:
        waits.append(interval)
        if len(waits) == 20:
            raise _Enough

    app = make_app("redis://127.0.0.1:1/0", "tests:")
    connection = app.connection_for_read()
    with pytest.raises(_Enough):
        connection.ensure_connection(tell, interval_start=0)
    assert waits == [0.0] * 20
    connection.release()
    app.close()


class _Enough(Exception):
    """The test has seen enough."""
