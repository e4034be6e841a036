import os
import signal
import threading
from pathlib import Path

import pytest

from pipeline.domain.errors import ServiceUnavailable, UsageError
from pipeline.domain.unit import QUEUES, Queue
from pipeline.settings import Settings
from worker.flower import flower_login
from worker.processes import parse_queues
from worker.services import find_services
from worker.signals import stop_on_signals


def test_no_queues_means_all() -> None:
    assert parse_queues(None) == QUEUES
    assert parse_queues([]) == QUEUES


def test_queues_are_taken_in_a_documents_order() -> None:
    assert parse_queues(["embed", "parse"]) == (Queue.PARSE, Queue.EMBED)


def test_an_unknown_queue_is_named_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"'chunk' is no queue\nthere are: parse, describe"):
        parse_queues(["chunk"])


def test_configured_services_need_no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", "postgresql://u:p@db/x")
    monkeypatch.setenv("TIDEGATE_REDIS_URL", "redis://r:6379/0")
    found = find_services(Settings(home=tmp_path))
    assert (found.redis_url, found.embedded) == ("redis://r:6379/0", False)
    assert found.blob_url == f"file://{tmp_path}/blobs"
    assert "p@db" not in repr(found)


def test_without_services_the_remedy_names_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_DATABASE_URL", raising=False)
    monkeypatch.delenv("TIDEGATE_REDIS_URL", raising=False)
    with pytest.raises(ServiceUnavailable, match="tidegate up"):
        find_services(Settings(home=tmp_path))


def test_flowers_password_is_drawn_once_and_kept_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_FLOWER_BASIC_AUTH", raising=False)
    first, second = flower_login(Settings(home=tmp_path)), flower_login(Settings(home=tmp_path))
    assert first == second
    assert first.file is not None
    assert first.file.stat().st_mode & 0o077 == 0
    assert first.password not in repr(first)


def test_flowers_login_is_the_environments_where_it_gives_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_FLOWER_BASIC_AUTH", "eve:pa:ss")
    login = flower_login(Settings(home=tmp_path))
    assert (login.user, login.password, login.file) == ("eve", "pa:ss", None)


def test_a_signal_sets_the_event_and_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stopping = threading.Event()
    with stop_on_signals(stopping):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(5)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_strikes_while_a_lock_is_held_waits_for_nothing() -> None:
    lock, taken = threading.Lock(), threading.Semaphore(0)

    def stop() -> None:
        if lock.acquire(timeout=5):
            lock.release()
            taken.release()

    with stop_on_signals(stop), lock:
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
    # Each was acted on, once whoever held the lock had let go of it.
    assert [taken.acquire(blocking=False) for _ in range(4)] == [True, True, True, False]
