"""Answering one call: whole bodies, scripted bodies and streams, with what the act does to them."""

import itertools
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.upstream.act import Act
from tests.upstream.calls import Outcome
from tests.upstream.reply import Reply
from tests.upstream.request import ChatRequest
from tests.upstream.wire import chunk, deltas, dumps, encode, error_body, stream_error, usage


def maybe_broken(body: str, act: Act) -> bytes:
    return encode(body[: len(body) * 2 // 3] if act.broken_json else body)


async def send_scripted(reply: Reply, act: Act) -> web.StreamResponse:
    """A status or a body that the act spells out."""
    kind = act.content_type or "application/json"
    if act.body is None:
        body = dumps(error_body(act)) if act.status >= 400 else ""
    else:
        body = act.body if isinstance(act.body, str) else dumps(act.body)
    outcome: Outcome = "status" if act.status >= 300 else "body"
    await reply.open(act.status, kind, len(encode(body)))
    return await reply.finish(outcome, encode(body))


async def send_whole(reply: Reply, act: Act, status: int, body: bytes, outcome: Outcome = "ok") -> web.StreamResponse:
    """An answer that is not streamed; the ends that are not ends come in the middle of it."""
    half = len(body) // 2
    await reply.open(status, act.content_type or "application/json", None if act.eof_after is not None else len(body))
    if act.first_content_s:
        await reply.silence(act.first_content_s)
    if act.stall_after is not None or act.cut_after is not None or act.eof_after is not None:
        await reply.write(body[:half])
        body = body[half:]
    if act.stall_after is not None:
        await reply.silence(act.stall_s)
    if act.cut_after is not None:
        await reply.cut()
    if act.eof_after is not None:
        return await reply.finish("eof")
    return await reply.finish(outcome, body)


class Stream:
    """One streamed chat answer."""

    def __init__(self, reply: Reply, act: Act, request: ChatRequest) -> None:
        self._reply = reply
        self._act = act
        self._request = request

    async def run(self, text: str, finish: str) -> web.StreamResponse:
        act, reply = self._act, self._reply
        reply.keepalive = self._keepalive()
        await reply.open(200, act.content_type or "text/event-stream; charset=utf-8")
        for _ in range(act.role_chunks):
            await reply.event(self._chunk({"role": "assistant", "content": ""}))
        if act.first_content_s:
            await reply.silence(act.first_content_s)
        sent, said = 0, 0
        for delta in deltas(self._request, act, text):
            if (ended := await self._at(sent, last=False)) is not None:
                return ended
            if sent and act.gap_s:
                await reply.silence(act.gap_s)
            data = self._chunk(delta)
            await reply.event(data[: len(data) // 2] if act.broken_json and sent == 0 else data, content=True)
            sent, said = sent + 1, said + len(delta.get("content", ""))
        if (ended := await self._at(sent, last=True)) is not None:
            return ended
        return await reply.finish("ok", encode(self._tail(finish, (said + 3) // 4)))

    async def _at(self, sent: int, *, last: bool) -> web.StreamResponse | None:
        """Do what is set for after `sent` content chunks; what is set for later than the last happens at the last."""

        def due(after: int | None) -> bool:
            return after is not None and (after == sent or (last and after > sent))

        act, reply = self._act, self._reply
        if due(act.stall_after):
            await reply.silence(act.stall_s)
        if due(act.cut_after):
            await reply.cut()
        if due(act.eof_after):
            return await reply.finish("eof")
        if due(act.error_after):
            return await reply.finish("stream_error", encode(self._sse(dumps(stream_error(act)))))
        return None

    def _tail(self, finish: str, completion: int) -> str:
        act, request = self._act, self._request
        tail = self._sse(self._chunk({}, finish))
        if act.usage or (act.usage is None and request.include_usage):
            tail += self._sse(dumps(chunk(request, None) | {"usage": usage(request, completion)}))
        return tail + (self._sse("[DONE]") if act.done else "")

    def _keepalive(self) -> Callable[[], str] | None:
        kinds: dict[str, Callable[[int], str]] = {
            "comment": lambda i: f": keep-alive {i}{self._act.newline * 2}",
            "newline": lambda _: self._act.newline,
            "role": lambda _: self._sse(self._chunk({"role": "assistant", "content": ""})),
            "empty": lambda _: self._sse(self._chunk({})),
            "metadata": lambda _: self._sse(dumps(chunk(self._request, None))),
        }
        if self._act.keepalive is None:
            return None
        make, numbers = kinds[self._act.keepalive], itertools.count()
        return lambda: make(next(numbers))

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> str:
        return dumps(chunk(self._request, delta, finish))

    def _sse(self, data: str) -> str:
        return f"data: {data}{self._act.newline * 2}"
