"""One response on the wire: headers, bytes, silences and the ways of breaking off."""

import asyncio
import socket
import struct
from collections.abc import Callable

from aiohttp import web

from tests.upstream.act import Act
from tests.upstream.calls import Call, CallLog, Outcome, now
from tests.upstream.wire import encode

_FULL = 16_384


async def for_ever() -> None:
    """Wait until cancelled, which is what the client's closing the socket does."""
    await asyncio.get_running_loop().create_future()


def abort(transport: asyncio.BaseTransport | None, *, with_rst: bool) -> None:
    """Close a connection now, as FIN after what was written, or as RST."""
    if not isinstance(transport, asyncio.Transport):
        return
    if with_rst:
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()


class Reply:
    """Writes the response of one call as its act says, and keeps the call's record.

    The record is closed *before* the bytes that let the client know: a test that has its answer finds the call ended.
    """

    def __init__(self, request: web.Request, call: Call, act: Act, log: CallLog) -> None:
        self._request = request
        self._call = call
        self._act = act
        self._log = log
        self._response: web.StreamResponse | None = None
        self._waiting = bytearray()
        self._uncounted = 0
        self.keepalive: Callable[[], str] | None = None

    async def before_headers(self) -> None:
        """Delay, hang or close before anything is sent."""
        if self._act.delay_s:
            await asyncio.sleep(self._act.delay_s)
        if self._act.reset is not None:
            await self._break(self._act.reset, "reset")
        if self._act.hang == "before_headers":
            await for_ever()

    async def open(self, status: int, content_type: str, length: int | None = None) -> None:
        """Send the headers; with a length the body is plain, without one it is chunked. Then hang, if told to."""
        response = web.StreamResponse(status=status, headers={"Content-Type": content_type} | self._act.headers)
        if length is not None:
            response.content_length = length
        stamp = now()

        def note() -> None:
            self._call.status, self._call.headers_at = status, stamp

        self._log.touch(note)
        await response.prepare(self._request)
        if not response.prepared:
            raise ConnectionResetError("the client left before the headers")
        self._response = response
        if self._act.hang == "after_headers":
            await response.write(b"")
            await for_ever()

    async def write(self, data: bytes) -> None:
        """Send bytes, in pieces if told to."""
        response = self._opened()
        step = self._act.split_bytes or max(1, len(data))
        for i in range(0, len(data), step):
            await response.write(data[i : i + step])
            if self._act.split_bytes:
                await asyncio.sleep(0)

    async def event(self, data: str, *, content: bool = False) -> None:
        """Send one SSE event, and count it if it carries content.

        Events with no pause between them leave in one write, as they would arrive; `gap_s` sends each by itself.
        """
        nl = self._act.newline
        self._waiting += encode(f"data: {data}{nl}{nl}")
        self._uncounted += content
        if len(self._waiting) > _FULL:
            await self.flush()

    async def flush(self) -> None:
        """Send the events that wait."""
        self._count()
        data, self._waiting = bytes(self._waiting), bytearray()
        if data:
            await self.write(data)

    def _count(self) -> None:
        if not self._uncounted:
            return
        n, self._uncounted = self._uncounted, 0

        def note() -> None:
            self._call.chunks += n
            self._call.first_content_at = self._call.first_content_at or now()

        self._log.touch(note)

    async def silence(self, seconds: float | None) -> None:
        """Send no content for so long (None: until the client goes), only the keep-alives that the act asks for."""
        await self.flush()
        if self.keepalive is None:
            await (for_ever() if seconds is None else asyncio.sleep(seconds))
            return
        until = None if seconds is None else now() + seconds
        while until is None or now() < until:
            left = self._act.keepalive_s if until is None else min(self._act.keepalive_s, until - now())
            await asyncio.sleep(max(0.0, left))
            await self.write(encode(self.keepalive()))

    async def cut(self) -> None:
        """Close the connection in the middle. Does not return."""
        await self.flush()
        await self._break(self._act.cut_with, "cut")

    async def finish(self, outcome: Outcome, last: bytes = b"") -> web.StreamResponse:
        """Close the record, send the last bytes and end the response properly."""
        response = self._opened()
        self._count()
        self._log.end(self._call, outcome)
        if last := bytes(self._waiting) + last:
            await self.write(last)
        await response.write_eof()
        return response

    async def _break(self, how: str, outcome: Outcome) -> None:
        self._log.end(self._call, outcome)
        abort(self._request.transport, with_rst=how == "rst")
        await for_ever()

    def _opened(self) -> web.StreamResponse:
        assert self._response is not None, "open() comes first"
        return self._response
