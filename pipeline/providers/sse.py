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

    __slots__ = ("_data", "_fed", "_max_event", "_max_stream", "_name", "_pending", "_size", "_skip_lf", "_started")

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

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that ``chunk`` completes.

        Raises:
            SseTooLarge: A cap was passed.
        """
        self._fed += len(chunk)
        if self._fed > self._max_stream:
            msg = f"a stream above {self._max_stream} bytes"
            raise SseTooLarge(msg)
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        if not chunk:
            return []
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
        events: list[ServerEvent] = []
        for line in lines:
            self._line(line, events)
        return events

    def flush(self) -> list[ServerEvent]:
        """What stands unfinished at the end of the stream; some servers leave out the last blank line."""
        events: list[ServerEvent] = []
        if self._pending:
            self._line(bytes(self._pending), events)
            self._pending.clear()
        self._line(b"", events)
        return events

    def _keep(self, piece: bytes) -> None:
        self._pending += piece
        if len(self._pending) > self._max_event:
            msg = f"a line above {self._max_event} bytes"
            raise SseTooLarge(msg)

    def _line(self, line: bytes, events: list[ServerEvent]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(ServerEvent(self._name, data))
                self._data = []
            self._name = b""
            self._size = 0
            return
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._size += len(value)
            if self._size > self._max_event:
                msg = f"an event above {self._max_event} bytes"
                raise SseTooLarge(msg)
            self._data.append(value)
        elif line.startswith(b"event:"):
            self._name = line[6:].removeprefix(b" ")
        elif line == b"data":
            self._data.append(b"")
