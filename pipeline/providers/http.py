"""One POST of JSON through aiohttp: the socket's life, the key's way, and what refusals and cuts are.

It has no timers of its own (the core owns them), but for one short wait for an error's words.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from yarl import URL

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.providers.classify import failure_of
from pipeline.providers.complaint import complaint_of
from pipeline.providers.redact import Redactor
from pipeline.providers.sessions import LoopSessions, RedirectRefusedError

__all__ = [
    "MAX_BODY_BYTES",
    "HttpCaller",
    "cut",
    "read_body",
    "reason_of",
]

MAX_BODY_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
# An error's status is known; its words are not worth a longer wait.
_ERROR_BODY_S = 2.0
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "Accept-Encoding": "identity",  # a compressing proxy would hold tokens back
    "User-Agent": "tidegate",
}


class HttpCaller:
    """Makes calls, each exactly once.

    Args:
        now: Seconds since the epoch, for dates in ``Retry-After``.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sessions = LoopSessions(_HEADERS)

    @asynccontextmanager
    async def post(
        self, base_url: str, path: str, body: Mapping[str, Any], *, key: str | None, redactor: Redactor
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """One POST; yields its response when the status says success. Leaving early closes the socket at once.

        Args:
            base_url: Where the API is; a user and password in it are sent when there is no ``key``.
            path: Of the call, below ``base_url``.
            body: What is sent; ``extra_headers`` and ``extra_body`` in it are laid over headers and body.
            key: Sent as a bearer token.
            redactor: Cleans what the upstream says.

        Raises:
            UpstreamFailure: The upstream was not reached, or refused.
        """
        url, headers = _address(base_url, path, key)
        plain = {name: value for name, value in body.items() if name not in {"extra_headers", "extra_body"}}
        headers |= body.get("extra_headers") or {}
        data = orjson.dumps(plain | dict(body.get("extra_body") or {}))
        try:
            response = await self._sessions.get().post(url, data=data, headers=headers, allow_redirects=False)
        except RedirectRefusedError as error:
            raise UpstreamFailure(FailureKind.NOT_FOUND, redactor.message(str(error)), error.status) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error, url) from None
        try:
            if not 200 <= response.status < 300:
                raise await self._refusal(response, redactor)
            yield response
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def close(self) -> None:
        """Close the running loop's connections."""
        await self._sessions.close()

    async def _refusal(self, response: aiohttp.ClientResponse, redactor: Redactor) -> UpstreamFailure:
        body = b""
        try:
            async with asyncio.timeout(_ERROR_BODY_S):
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > _MAX_ERROR_BYTES:
                        break
        except (aiohttp.ClientError, OSError):
            body = b""  # the status alone classifies it (TimeoutError is an OSError)
        return failure_of(
            complaint_of(body), redactor, status=response.status, headers=response.headers, now=self._now()
        )


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """The whole body of an answer that is not streamed.

    Raises:
        UpstreamFailure: It was cut, or is larger than ``MAX_BODY_BYTES``.
    """
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise UpstreamFailure(
                    FailureKind.INVALID_OUTPUT, f"a body above {MAX_BODY_BYTES} bytes", response.status
                )
            pieces.append(piece)
    except (aiohttp.ClientError, OSError) as error:
        raise cut(error, after_content=False) from None
    return b"".join(pieces)


def cut(error: BaseException, *, after_content: bool) -> UpstreamFailure:
    """A connection that ended in the middle of an answer.

    Before any content it is as if nothing had come (``connect``): the call goes on elsewhere, streamed or not.
    """
    if after_content:
        return UpstreamFailure(FailureKind.PARTIAL_STREAM, f"the connection was cut: {reason_of(error)}", 200)
    return UpstreamFailure(FailureKind.CONNECT, f"the connection was cut before any content: {reason_of(error)}", 200)


def _unreachable(error: Exception, url: URL) -> UpstreamFailure:
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return UpstreamFailure(FailureKind.NOT_FOUND, "the target's base_url is no http(s) URL")
    return UpstreamFailure(FailureKind.CONNECT, f"{url.host}:{url.port}: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """What went wrong with a connection; only texts of the system's own, since aiohttp's hold URLs and bytes."""
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error.__cause__ or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {inner.verify_message}"
    if isinstance(inner, OSError) and inner.strerror:
        return f"{type(error).__name__}: {inner.strerror}"
    return type(error).__name__


def _address(base_url: str, path: str, key: str | None) -> tuple[URL, dict[str, str]]:
    try:
        base = URL(base_url)
        url = (base / path).with_query(base.query)
    except ValueError:
        raise UpstreamFailure(FailureKind.NOT_FOUND, "the target's base_url is no URL") from None
    if key is not None:
        # Keys read from files end in a newline, which no header may hold.
        return _bare(url), {"Authorization": f"Bearer {key.strip()}"}
    if base.user is not None:
        return _bare(url), {"Authorization": aiohttp.encode_basic_auth(base.user, base.password or "")}
    return url, {}


def _bare(url: URL) -> URL:
    return url.with_user(None) if url.is_absolute() else url
