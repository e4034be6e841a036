"""What litellm's one async transport may not do: follow a redirect, or hold an answer without an end in memory.

Imported with litellm only, for it imports httpx.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx

from pipeline.providers.http import MAX_BODY_BYTES
from pipeline.providers.sessions import AnswerTooLargeError, RedirectRefusedError, host_of
from pipeline.providers.sse import MAX_EVENT_BYTES, MAX_STREAM_BYTES

__all__ = ["BoundedStream", "guard"]


def guard(transport: Any) -> None:
    """Make a transport class refuse redirects and bound answers; guarding it again changes nothing.

    litellm's clients follow redirects, httpx drops only ``Authorization`` on the way to another host, and Anthropic's
    key travels in ``x-api-key``. Some of the clients are made at import, so that nothing less than the class reaches
    them all.
    """
    original = transport.handle_async_request
    if getattr(original, "is_guarded", False):
        return

    async def handle_async_request(self: Any, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = await original(self, request)
        if 300 <= response.status_code < 400:
            await response.aclose()
            host = host_of(response.headers.get("Location", ""), request.url.host)
            raise RedirectRefusedError(host, response.status_code)
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = BoundedStream(response.stream, response.headers.get("Content-Type", ""))
        return response

    handle_async_request.is_guarded = True  # type: ignore[attr-defined]
    transport.handle_async_request = handle_async_request


class BoundedStream(httpx.AsyncByteStream):
    """A response's bytes, up to the fast lane's bounds: of a whole body, or of an event stream and each of its lines.

    Whoever reads events by line keeps a line until it ends.
    """

    def __init__(self, stream: httpx.AsyncByteStream, content_type: str) -> None:
        self._stream = stream
        # Amazon's are "vnd.amazon.eventstream" and have no lines, but lengths.
        self._is_stream = "event" in content_type or "ndjson" in content_type
        self._by_line = self._is_stream and "vnd." not in content_type

    async def __aiter__(self) -> AsyncIterator[bytes]:
        most = MAX_STREAM_BYTES if self._is_stream else MAX_BODY_BYTES
        size = line = 0
        async for piece in self._stream:
            size += len(piece)
            first, last = piece.find(b"\n"), piece.rfind(b"\n")
            longest = line + (len(piece) if first < 0 else first)
            line = longest if last < 0 else len(piece) - last - 1
            if size > most or (self._by_line and longest > MAX_EVENT_BYTES):
                await self.aclose()
                bound = f"a line above {MAX_EVENT_BYTES}" if size <= most else f"a body above {most}"
                raise AnswerTooLargeError(bound)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
