"""The log of the calls a host has seen."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

Outcome = Literal[
    "open",  # still being served
    "ok",  # answered to the end
    "status",  # answered with the error status that its act asked for
    "rejected",  # the request itself was wrong: answered 400 or 404
    "body",  # answered with a scripted body
    "client_closed",  # the client closed the socket first
    "reset",  # closed by the host before any header
    "cut",  # closed by the host in the middle
    "eof",  # ended properly, but without a finish_reason
    "stream_error",  # an error event (or an error in a 200) ended it
    "dropped",  # the host went away: refuse() or stop()
    "crashed",  # a bug in the fake or in an answer function
]

# Wall time that only ever moves forward, so that differences are exact and stamps of several processes compare.
_EPOCH = time.time() - time.monotonic()


def now() -> float:
    """Unix time in seconds, never going back."""
    return _EPOCH + time.monotonic()


@dataclass
class Call:
    """One call to the host. Times are Unix seconds; `in_flight_at_start` counts this call too (1 = alone)."""

    n: int
    path: str
    received_at: float
    model: str = ""
    stream: bool = False
    act: str = "ok"
    status: int | None = None
    outcome: Outcome = "open"
    headers_at: float | None = None
    first_content_at: float | None = None
    ended_at: float | None = None
    chunks: int = 0
    in_flight_at_start: int = 0
    authorization: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body_bytes: int = 0
    body_digest: str = ""
    prompt_digest: str = ""
    image_digests: list[str] = field(default_factory=list)
    inputs: int = 0
    input_tokens: int = 0
    request: dict[str, Any] = field(default_factory=dict)

    @property
    def first_byte_at(self) -> float | None:
        """When the headers went out."""
        return self.headers_at

    @property
    def duration_s(self) -> float:
        """Seconds from receipt to the end, or until now while it is open."""
        return (self.ended_at or now()) - self.received_at

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"first_byte_at": self.headers_at}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Call":
        names = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in names})


@dataclass(frozen=True)
class Want:
    """A filter over calls; None means any. `ended`: only those that are over, or only those still open."""

    model: str | None = None
    path: str | None = None
    outcome: str | None = None
    ended: bool | None = None

    def takes(self, call: Call) -> bool:
        return (
            (self.model is None or call.model == self.model)
            and (self.path is None or call.path.endswith(self.path))
            and (self.outcome is None or call.outcome == self.outcome)
            and (self.ended is None or (call.ended_at is not None) == self.ended)
        )


class CallLog:
    """Calls in order of arrival, safe to read from any thread while the host serves."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[Call] = []
        self._open: Counter[str] = Counter()
        self._peak: Counter[str] = Counter()
        self._peak_all = 0
        self._n = 0

    def begin(self, call: Call) -> None:
        """Enter a call; it counts as in flight from here."""
        with self._changed:
            self._n += 1
            call.n = self._n
            self._open[call.model] += 1
            call.in_flight_at_start = self._open[call.model]
            self._peak[call.model] = max(self._peak[call.model], self._open[call.model])
            self._peak_all = max(self._peak_all, self._open.total())
            self._calls.append(call)
            self._changed.notify_all()

    def touch(self, change: Callable[[], None]) -> None:
        """Change a call under the lock."""
        with self._changed:
            change()
            self._changed.notify_all()

    def end(self, call: Call, outcome: Outcome) -> None:
        """Close a call; the first outcome stands."""
        with self._changed:
            if call.ended_at is not None:
                return
            call.outcome, call.ended_at = outcome, now()
            self._open[call.model] -= 1
            self._changed.notify_all()

    def drop_open(self) -> None:
        """Close all open calls as `dropped`."""
        with self._changed:
            still_open = [c for c in self._calls if c.ended_at is None]
        for call in still_open:
            self.end(call, "dropped")

    def select(self, want: Want) -> list[Call]:
        with self._changed:
            return [replace(c) for c in self._calls if want.takes(c)]

    def wait(self, n: int, want: Want, timeout_s: float) -> list[Call]:
        """Wait until at least `n` calls pass the filter and return them; after `timeout_s`, whatever there is."""
        with self._changed:
            self._changed.wait_for(lambda: sum(map(want.takes, self._calls)) >= n, timeout_s)
        return self.select(want)

    def peak_in_flight(self, model: str | None = None) -> int:
        with self._changed:
            return self._peak_all if model is None else self._peak[model]

    def in_flight(self, model: str | None = None) -> int:
        with self._changed:
            return self._open.total() if model is None else self._open[model]

    def reset(self) -> None:
        """Forget what is over; open calls stay, and stay counted."""
        with self._changed:
            self._calls = [c for c in self._calls if c.ended_at is None]
            self._peak = Counter(self._open)
            self._peak_all = self._open.total()
            self._changed.notify_all()
