"""What ``tidegate up`` runs: the services that are not given, the migration, and one process for each job."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from pipeline.domain.unit import Queue
from pipeline.settings import Settings
from pipeline.store.fleet import fresh_workers
from pipeline.store.migrate import upgrade
from pipeline.store.reader import reader_of
from pipeline.store.session import Sessions, make_engine, make_sessions
from worker.embedded import EmbeddedPostgres, EmbeddedValkey, Part, ProcessId, Step, Supervisor
from worker.services import redis_info

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LOOPBACK", "StackPlan", "choose_port", "make_supervisor", "program"]

LOOPBACK = "127.0.0.1"
_PROBE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class StackPlan:
    """What to run.

    Attributes:
        queues: One worker process each.
        threads: Slices at once in each of them.
        flower_port: None for no Flower.
        leash: A process without which nobody wants the stack.
    """

    queues: Sequence[Queue]
    threads: int
    flower_port: int | None
    leash: ProcessId | None = field(default=None)


def program(*words: str) -> list[str]:
    """A ``tidegate`` command as a process of its own.

    ``-P``, or a folder named ``worker`` where the user stands would be taken for ours.
    """
    return [sys.executable, "-P", "-m", "worker", *words]


def choose_port(wanted: int) -> int:
    """``wanted`` if nobody listens there, else one that the system picks."""
    for port in (wanted, 0):
        with closing(socket.socket()) as probe:
            # As the server itself will: a connection that is winding down does not hold the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    return wanted


@contextmanager
def make_supervisor(settings: Settings, plan: StackPlan) -> Iterator[Supervisor]:
    """The supervisor of a plan. Nothing is started before its ``run``.

    Raises:
        ServiceUnavailable: The home can't be used, or an embedded server is not installed.
    """
    items: list[Part | Step] = []
    database_url = settings.database_url.get_secret_value() if settings.database_url else None
    redis_url = given = settings.redis_url.get_secret_value() if settings.redis_url else None
    if given is not None:
        # Workers wait for a broker that is away; whoever starts a stack is told.
        items.append(Step(name="redis", action=lambda: _ask_redis(given)))
    if database_url is None:
        postgres = EmbeddedPostgres(settings.home)
        items.append(postgres.part())
        database_url = postgres.url
    if redis_url is None:
        valkey = EmbeddedValkey(settings.home)
        items.append(valkey.part())
        redis_url = valkey.url
    engine = make_engine(database_url, pool_size=2, application_name="tidegate supervisor")
    items.append(Step(name="migrate", action=lambda: upgrade(engine)))
    items += _processes(plan, make_sessions(engine))
    try:
        yield Supervisor(settings.home, items, database_url=database_url, redis_url=redis_url, leash=plan.leash)
    finally:
        engine.dispose()


def _ask_redis(url: str) -> None:
    redis_info(url)


def _processes(plan: StackPlan, sessions: Sessions) -> Iterator[Part]:
    for queue in plan.queues:
        yield Part(
            name=f"worker.{queue.value}",
            role="worker",
            argv=program("worker", "--queues", queue.value, "--threads", str(plan.threads)),
            queues=(queue.value,),
            is_ready=_Beats(sessions, "worker", queue.value),
        )
    yield Part(name="beat", role="beat", argv=program("beat"), is_ready=_Beats(sessions, "beat"))
    if plan.flower_port is not None:
        port = plan.flower_port
        yield Part(
            name="flower",
            role="flower",
            argv=program("flower", "--port", str(port)),
            port=port,
            is_ready=lambda: _answers(port),
        )


@dataclass(frozen=True, slots=True)
class _Beats:
    """Whether a process of this host, alive now, has written its row."""

    sessions: Sessions
    role: str
    queue: str | None = None

    def __call__(self) -> bool:
        host = socket.gethostname()
        with self.sessions() as session:
            rows = fresh_workers(reader_of(session))
        return any(
            row.role == self.role
            and row.host == host
            and (self.queue is None or self.queue in row.queues)
            # A killed predecessor's row stays fresh for a while.
            and ProcessId.of(row.pid) is not None
            for row in rows
        )


def _answers(port: int) -> bool:
    connection = HTTPConnection(LOOPBACK, port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/healthcheck")
        return connection.getresponse().status < 500
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
