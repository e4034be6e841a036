"""`FakeUpstream`: a host in a thread of this process."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from tests.upstream.answers import Answer
from tests.upstream.calls import Call, Want
from tests.upstream.host import Host
from tests.upstream.remote import Upstream

T = TypeVar("T")


class FakeUpstream(Upstream):
    """A model server on 127.0.0.1, in its own thread with its own event loop.

    It may be started, scripted and read from any thread, inside or outside a running loop; the methods that wait block
    the calling thread, so a coroutine calls `wait_for_calls` with `asyncio.to_thread`. Use it as a context manager, or
    `start` and `stop`.

    Args:
        dim: width of the embeddings when a request names none.
        models: what `GET /v1/models` lists; other names are served too.
        port: the port, 0 for a free one.
        control: also open a control port that `refuse` leaves alone (a process has one; a thread needs none).
    """

    def __init__(
        self, *, dim: int = 256, models: tuple[str, ...] = ("fake-model",), port: int = 0, control: bool = False
    ) -> None:
        self._host = Host(dim, models)
        self._wanted = (port, control)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Listen; raises OSError where the port is taken."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="fake-upstream", daemon=True)
        self._thread.start()
        try:
            self._on_loop(self._host.start(*self._wanted))
        except OSError:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Close everything and end the thread; a second call does nothing."""
        if self._loop is None or self._thread is None:
            return
        self._on_loop(self._host.stop())
        self._on_loop(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        return self._host.port

    @property
    def control_port(self) -> int:
        return self._host.control_port or self._host.port

    def answer(self, model: str, answer: Answer) -> None:
        """Set what this model says: a text, or a function of the `ChatRequest`, called on the host's thread."""
        self._host.answers[model] = answer

    def in_flight(self, model: str | None = None) -> int:
        """Calls being served at this moment."""
        return self._host.log.in_flight(model)

    def add(self, items: list[dict[str, Any]]) -> None:
        self._on_loop(self._host.apply(items))

    def clear(self, model: str | None = None) -> None:
        self._host.script.clear(model)

    def reset(self) -> None:
        self._on_loop(self._host.reset())

    def peak_in_flight(self, model: str | None = None) -> int:
        return self._host.log.peak_in_flight(model)

    def select(self, want: Want, at_least: int = 0, timeout_s: float = 0.0) -> list[Call]:
        return self._host.log.wait(at_least, want, timeout_s)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def _on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise RuntimeError("the fake upstream is not running; use it as a context manager or call start()")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=10)
