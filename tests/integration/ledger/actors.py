"""Processes in miniature: real use cases in threads that take turns, one transaction at a time.

An actor stops before each transaction that it begins and wherever it waits for a model. Only one runs at any time, so
what interleaves is chosen by the test, and the same choices give the same history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from enum import Enum, auto
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session, sessionmaker

from pipeline.domain.errors import ServiceUnavailable
from pipeline.work import Done

__all__ = ["Actor", "Jobs", "Killed", "ModelWait", "Order", "Place", "Stopping", "Turns"]

_PATIENCE_S = 30.0


class Killed(BaseException):
    """What a process does next after SIGKILL: nothing."""


class Place(Enum):
    """Where an actor stands."""

    RUNNING = auto()
    BEFORE_TRANSACTION = auto()
    WAITS_FOR_MODEL = auto()
    ENDED = auto()


class Order(Enum):
    """What becomes of an actor's next transaction."""

    GO = auto()
    KILL = auto()
    """The process dies before it."""
    AWAY = auto()
    """Postgres does not answer."""
    UNHEARD = auto()
    """It is committed, and the reply is lost."""


class ModelWait(Future[list[Done]]):
    """A job that an actor waits for: a model's answer, or work in another thread.

    Attributes:
        number: The how manieth of its actor's jobs it is, from 0 on.
    """

    def __init__(self, actor: Actor, work: Callable[[], list[Done]], drop: Callable[[], None]) -> None:
        super().__init__()
        self.actor, self.work, self._drop = actor, work, drop
        self.number = actor.jobs
        self._taken_up = False
        actor.jobs += 1

    def result(self, timeout: float | None = None) -> list[Done]:
        self._take_up()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._take_up()
        return super().exception(timeout)

    def cancelled(self) -> bool:
        self._take_up()
        return super().cancelled()

    def _take_up(self) -> None:
        """However its actor asks what came of it, and how often, it is taken up once."""
        if not self._taken_up:
            self._taken_up = True
            self.actor.taken_up()

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled and self in self.actor.waits:
            self.actor.waits.remove(self)
            self._drop()
        return cancelled

    def drop(self) -> None:
        """The work is not done after all."""
        self._drop()


class Actor:
    """A thread that does one piece of work.

    Attributes:
        waits: Jobs that it waits for, of all the ``jobs`` that it has begun.
        error: What it ended with; None when it ended well.
        value: What its work returned.
    """

    def __init__(self, name: str, turns: Turns, work: Callable[[], Any]) -> None:
        self.name = name
        self.waits: list[ModelWait] = []
        self.jobs = 0
        self.error: BaseException | None = None
        self.value: Any = None
        self._turns, self._work = turns, work
        self._changed = threading.Condition()
        self._place = Place.RUNNING
        self._order: Order | None = None
        self._to_take_up = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        turns.starting(self)
        self._thread.start()
        self._settled()

    @property
    def place(self) -> Place:
        return self._place

    @property
    def ended(self) -> bool:
        return self._place is Place.ENDED

    def step(self, order: Order = Order.GO) -> None:
        """Let it do its next transaction, and what follows up to the next stop."""
        assert self._place is Place.BEFORE_TRANSACTION, self._place
        with self._changed:
            self._place, self._order = Place.RUNNING, order
            self._changed.notify_all()
        self._settled()

    def answer(self, wait: ModelWait, value: list[Done] | BaseException | None) -> None:
        """End a job that it waits for, and let it go on to its next stop; None cancels the job."""
        assert self._place is Place.WAITS_FOR_MODEL, self._place
        with self._changed:
            self._place = Place.RUNNING
            self._to_take_up += 1
        if value is None:
            assert wait.cancel()
        else:
            self.waits.remove(wait)
            if isinstance(value, BaseException):
                wait.drop()
                wait.set_exception(value)
            else:
                wait.set_result(value)
        self._settled()

    # --- called by its own thread ---------------------------------------------------------------------------------

    def before_transaction(self) -> Order:
        with self._changed:
            self._place = Place.BEFORE_TRANSACTION
            self._changed.notify_all()
            while self._order is None:
                self._changed.wait()
            order, self._order = self._order, None
        if order is Order.KILL:
            raise Killed
        if order is Order.AWAY:
            raise ServiceUnavailable("Postgres does not answer", "it comes back")
        return order

    def looks_around(self) -> None:
        """It is at the top of its waiting loop: idle, unless an answer has come that it has not taken up yet."""
        with self._changed:
            if self.waits and not self._to_take_up and self._place is Place.RUNNING:
                self._place = Place.WAITS_FOR_MODEL
                self._changed.notify_all()

    def taken_up(self) -> None:
        with self._changed:
            self._to_take_up = max(0, self._to_take_up - 1)

    def _run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:
            self.error = error
        with self._changed:
            self._place = Place.ENDED
            self._changed.notify_all()

    def _settled(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._place is not Place.RUNNING, _PATIENCE_S), f"{self.name} hangs"
        if self._place is Place.ENDED:
            self._thread.join(_PATIENCE_S)
            self._turns.ended(self)


class Turns(sessionmaker[Session]):
    """Sessions that make an actor wait for its turn; everybody else's are ordinary ones."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, expire_on_commit=False)
        self._actors: dict[int, Actor] = {}
        self._new: dict[str, Actor] = {}

    def starting(self, actor: Actor) -> None:
        self._new[actor.name] = actor

    def ended(self, actor: Actor) -> None:
        self._new.pop(actor.name, None)

    def mine(self) -> Actor | None:
        """The actor whose thread asks."""
        return self._new.get(threading.current_thread().name)

    def __call__(self, **local_kw: Any) -> Session:
        actor = self.mine()
        order = actor.before_transaction() if actor is not None else Order.GO
        session = super().__call__(**local_kw)
        if order is Order.UNHEARD:
            event.listen(session, "after_commit", _unheard)
        return session


def _unheard(_session: Session) -> None:
    raise ServiceUnavailable("Postgres has cut the connection", "it comes back")


class Stopping(threading.Event):
    """A worker's stop signal, which tells by the way that its thread has nothing to do but wait."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def is_set(self) -> bool:
        if (actor := self._turns.mine()) is not None:
            actor.looks_around()
        return super().is_set()


class Jobs(Executor):
    """Where an actor's jobs wait until the test lets them be done."""

    def __init__(self, turns: Turns, run: Callable[[Coroutine[Any, Any, list[Done]]], list[Done]]) -> None:
        self._turns, self._run_coroutine = turns, run
        self.started: Callable[[Actor], None] = lambda _: None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._wait(lambda: fn(*args, **kwargs), lambda: None)

    def submit_coroutine(self, coroutine: Coroutine[Any, Any, list[Done]]) -> Future[list[Done]]:
        return self._wait(lambda: self._run_coroutine(coroutine), coroutine.close)

    def _wait(self, work: Callable[[], list[Done]], drop: Callable[[], None]) -> ModelWait:
        actor = self._turns.mine()
        assert actor is not None
        self.started(actor)
        wait = ModelWait(actor, work, drop)
        actor.waits.append(wait)
        return wait
