"""Server-sent events, read from bytes.

Bytes, not text: a reader that splits *text* into lines also splits at U+2028 and U+0085, which stand unescaped inside
JSON, and pays for decoding what is decoded again by the JSON parser. Follows the WHATWG rules for event streams.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MAX_EVENT_BYTES", "MAX_STREAM_BYTES", "ServerEvent", "SseParser", "SseTooLarge"]

MAX_EVENT_BYTES = 4 * 1024 * 1024
# About 250 bytes of wrapping a token: a million tokens. The core bounds the answer itself much lower.
MAX_STREAM_BYTES = 256 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_LF = 0x0A
_CR = 0x0D


class SseTooLarge(ValueError):
    """One event, or the stream, is larger than the parser was told to take."""


class ServerEvent(NamedTuple):
    """``name`` is empty where the event had none; ``data`` has its lines joined by LF."""

    name: bytes
    data: bytes


class SseParser:
    """Turns reads of any size into events; comments, ids and retry lines are left out.

    Args:
        max_event_bytes: Cap of one event, and of one line.
        max_stream_bytes: Cap of everything fed.
    """

    __slots__ = (
        "_between",
        "_data",
        "_fed",
        "_max_event",
        "_max_stream",
        "_name",
        "_pending",
        "_size",
        "_skip_lf",
        "_started",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES, max_stream_bytes: int = MAX_STREAM_BYTES) -> None:
        self._max_event = max_event_bytes
        self._max_stream = max_stream_bytes
        self._pending = bytearray()  # of a line that has not ended
        self._data: list[bytes] = []
        self._name = b""
        self._size = 0
        self._fed = 0
        self._skip_lf = False
        self._started = False
        self._between = False  # nothing is pending: the next byte begins an event

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that ``chunk`` completes.

        Raises:
            SseTooLarge: A cap was passed.
        """
        self._fed += len(chunk)
        if self._fed > self._max_stream:
            msg = f"a stream above {self._max_stream} bytes"
            raise SseTooLarge(msg)
        if self._between and chunk.startswith(b"data: ") and len(chunk) <= self._max_event:
            # A read that is one event of one line: nearly every read of a stream whose tokens come one by one.
            end = len(chunk) - 2
            if chunk.find(b"\n") == end and chunk.endswith(b"\n") and b"\r" not in chunk:
                return [tuple.__new__(ServerEvent, (b"", chunk[6:end]))]
        self._between = False
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        return self._lines(chunk) if chunk else []

    def flush(self) -> list[ServerEvent]:
        """What stands unfinished at the end of the stream; some servers leave out the last blank line."""
        lines = [bytes(self._pending), b""] if self._pending else [b""]
        self._pending.clear()
        return self._events(lines)

    def _lines(self, chunk: bytes) -> list[ServerEvent]:
        if b"\n" not in chunk and b"\r" not in chunk:
            self._keep(chunk)
            return []
        if self._pending:
            self._pending += chunk
            chunk = bytes(self._pending)
            self._pending.clear()
        # bytes.splitlines knows CR, LF and CRLF only, which is exactly the format's set.
        lines = chunk.splitlines()
        last = chunk[-1]
        if last == _CR:
            self._skip_lf = True
        elif last != _LF:
            self._keep(lines.pop())
        events = self._events(lines)
        self._between = not (self._pending or self._data or self._name or self._skip_lf)
        return events

    def _keep(self, piece: bytes) -> None:
        self._pending += piece
        if len(self._pending) > self._max_event:
            msg = f"a line above {self._max_event} bytes"
            raise SseTooLarge(msg)

    def _events(self, lines: list[bytes]) -> list[ServerEvent]:
        # One call for all lines of a read, and no constructor of Python's own: this runs for every token.
        events: list[ServerEvent] = []
        new = tuple.__new__
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        name, data, size = self._name, self._data, self._size
        for line in lines:
            if not line:
                if data:
                    events.append(new(ServerEvent, (name, data[0] if len(data) == 1 else b"\n".join(data))))
                    data.clear()
                name, size = b"", 0
            elif line.startswith(b"data:"):
                value = line[6:] if line.startswith(b" ", 5) else line[5:]
                size += len(value)
                if size > self._max_event:
                    msg = f"an event above {self._max_event} bytes"
                    raise SseTooLarge(msg)
                data.append(value)
            elif line.startswith(b"event:"):
                name = line[6:].removeprefix(b" ")
            elif line == b"data":
                data.append(b"")
        self._name, self._size = name, size
        return events
