"""What the broker has lost is handed out again; what it still holds, or has delivered, is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from sqlalchemy import text

from pipeline.deliveries import Deliveries
from pipeline.dispatch import WAKE_TTL_S
from pipeline.documents.sniff import sniff
from pipeline.domain.unit import Stage
from pipeline.enqueue import enqueue
from pipeline.store.window import forget_stale_wakes
from pipeline.store.workers import beat
from tests.integration.worker.conftest import Fleet
from worker.bootstrap import Container
from worker.broker import BrokerContents
from worker.stack import choose_port

SLICES = 30


class Window:
    """Thirty slices of parse that were handed out a while ago, and nobody who takes them."""

    def __init__(self, container: Container, redis_url: str) -> None:
        self.container = container
        self.redis = redis.Redis.from_url(redis_url)
        self.queue = f"{container.key_prefix}:parse"
        self.broker = BrokerContents(redis_url, f"{container.key_prefix}:")
        self.now_s = 0.0
        self.deliveries = Deliveries(container.sessions, self.broker, lambda: self.now_s)

    def looks(self, count: int, *, every_s: float = 5.0) -> list[int]:
        """What each of so many passes finds lost."""
        found = []
        for _ in range(count):
            self.now_s += every_s
            found.append(self.deliveries.look())
        return found

    def dispatch(self) -> int:
        """Hand out what may be, long enough ago to be looked for."""
        handed_out = self.container.dispatch()
        self.pass_time()
        return handed_out

    def pass_time(self, seconds: float = 3.0) -> None:
        with self.container.sessions.begin() as session:
            statement = text("update unit set dispatched_at = dispatched_at - make_interval(secs => :s)")
            session.execute(statement, {"s": seconds})

    def close(self) -> None:
        self.redis.close()
        self.broker.close()
        self.container.close()


@pytest.fixture
def window(fleet: Fleet, redis_url: str, tmp_path: Path) -> Iterator[Window]:
    made = Window(fleet.container(), redis_url)
    container = made.container
    with container.sessions.begin() as session:
        beat(session, "w", role="worker", host="here", pid=1, queues=["parse"], slots=SLICES, cpu_slots=SLICES // 2)
    paths = [tmp_path / f"{number}.md" for number in range(SLICES)]
    for path in paths:
        path.write_text(f"text of {path.stem}", encoding="utf-8")
    enqueue(
        container.sessions,
        container.blobs,
        paths,
        recipe=container.recipe_for("default"),
        limits=container.config.limits.to_domain(),
        sniff=sniff,
    )
    assert made.dispatch() == SLICES
    yield made
    made.close()


def test_what_waits_in_the_broker_is_not_handed_out_again(window: Window) -> None:
    assert window.looks(3) == [0, 0, 0]
    assert window.dispatch() == 0


def test_what_nobody_takes_stays_in_the_window_however_long_and_is_never_sent_twice(window: Window) -> None:
    with window.container.sessions() as session:
        wakes = set(session.scalars(text("select wake from unit")))
    for _ in range(4):
        window.pass_time(WAKE_TTL_S * 0.7)
        assert window.looks(1) == [0]
        with window.container.sessions.begin() as session:
            assert forget_stale_wakes(session, Stage.PARSE, WAKE_TTL_S) == 0
        assert window.container.dispatch() == 0
    with window.container.sessions() as session:
        assert set(session.scalars(text("select wake from unit"))) == wakes
    assert window.redis.llen(window.queue) == SLICES


def test_a_flushed_brokers_slices_are_handed_out_again_by_the_second_pass(window: Window) -> None:
    window.redis.flushall()

    assert window.looks(2) == [0, SLICES], "one look may fall into the moment in which a worker takes a message"
    assert window.dispatch() == SLICES
    assert window.redis.llen(window.queue) == SLICES
    assert window.looks(2) == [0, 0]


def test_delivered_messages_that_are_not_acknowledged_are_not_missed(window: Window) -> None:
    queue = next(queue for queue in window.container.app.conf.task_queues if queue.name == "parse")
    with window.container.app.connection_for_read() as connection:
        channel = connection.channel()
        taken = [queue(channel).get(no_ack=False) for _ in range(10)]
        assert all(taken)
        assert window.redis.hlen(f"{window.container.key_prefix}:unacked") == 10
        assert window.looks(3) == [0, 0, 0]
        assert window.dispatch() == 0

        # One that was taken and lost for good is one that is missed, and only that.
        taken[0].ack()
        assert window.looks(2) == [0, 1]
        assert window.dispatch() == 1


def test_a_beat_that_looks_twice_a_second_takes_its_time(window: Window) -> None:
    window.redis.flushall()
    assert window.looks(8, every_s=0.5) == [0] * 6 + [SLICES, 0]


def test_a_few_messages_lost_out_of_a_full_queue_are_missed(window: Window) -> None:
    window.redis.ltrim(window.queue, 3, -1)
    assert window.looks(2) == [0, 3]
    assert window.dispatch() == 3


def test_a_slice_that_was_only_just_handed_out_is_not_looked_for(window: Window) -> None:
    window.redis.flushall()
    with window.container.sessions.begin() as session:
        session.execute(text("update unit set dispatched_at = now()"))
    assert window.looks(3) == [0, 0, 0]


def test_a_broker_that_is_away_says_nothing_of_what_it_holds(window: Window) -> None:
    away = BrokerContents(f"redis://127.0.0.1:{choose_port(0)}/0", f"{window.container.key_prefix}:")
    assert away() is None
    window.deliveries = Deliveries(window.container.sessions, away, lambda: window.now_s)
    assert window.looks(3) == [0, 0, 0]
    away.close()
