"""aiohttp sessions that both lanes send through: one a loop, no cookies, no timers, no redirects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
from yarl import URL

__all__ = ["KEEPALIVE_S", "AnswerTooLargeError", "LoopSessions", "RedirectRefusedError", "host_of"]

# Below the 5 s after which uvicorn (vLLM, SGLang) closes an idle connection: a call sent into that close would look
# like a refused one and cool a healthy target.
KEEPALIVE_S = 3.0
_OFF = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


class RedirectRefusedError(aiohttp.ClientError):
    """An upstream answered with a redirect; following it would carry the key to wherever it points."""

    def __init__(self, host: str, status: int) -> None:
        super().__init__(host, status)
        self.host = host
        self.status = status

    def __str__(self) -> str:
        return f"redirects to host {self.host!r}, which was not followed; set base_url to the final address"


class AnswerTooLargeError(aiohttp.ClientError):
    """An upstream sends more than any answer has."""

    def __init__(self, bound: str) -> None:
        super().__init__(bound)
        self.bound = bound

    def __str__(self) -> str:
        return f"{self.bound} bytes"


async def _refuse_redirects(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        raise RedirectRefusedError(host_of(response.headers.get("Location", ""), response.url.host), response.status)
    return response


class LoopSessions:
    """One aiohttp session a loop, made at first use. No timeouts, no cookies, no redirects, no bound of its own."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._headers = headers
        # A session belongs to the loop that made it; a process has one loop, tests and commands have many.
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    def get(self) -> aiohttp.ClientSession:
        """The running loop's session."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            for dead in [known for known in self._sessions if known.is_closed()]:
                del self._sessions[dead]
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
                timeout=_OFF,
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=(_refuse_redirects,),
            )
            self._sessions[loop] = session
        return session

    async def close(self) -> None:
        """Close the running loop's session."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()


def host_of(location: str, otherwise: str | None) -> str:
    """The host that a ``Location`` names, or ``otherwise`` when it names none."""
    try:
        return URL(location).host or str(otherwise)
    except ValueError:
        return str(otherwise)
