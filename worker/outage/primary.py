"""The simulated primaries: one OpenAI-compatible server that is healthy, busy or hanging by a script.

    python -m worker.outage.primary PORT SCRIPT

It is healthy until ``POST /outage/begin`` starts the script. ``GET /outage/calls`` is its own log of what came and
how it ended, to hold against what Tidegate says.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from aiohttp import web

from pipeline.failover.upstream import ChatRequest
from worker.outage.answers import Answerer, BadRequestError, read_request
from worker.outage.script import Mode, Script

__all__ = ["ANSWER_S", "RETRY_AFTER_S", "Outcome", "Primary", "Served", "main"]

Outcome = Literal["open", "answered", "refused", "dropped"]

ANSWER_S = 0.25
"""How long an answer takes at least: first content after a half of it, the rest in the other half."""
RETRY_AFTER_S = 2
_PIECES = 4
_MOST_BYTES = 64 * 1024 * 1024
_BUSY = (
    (429, {"message": "too many requests, slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}),
    (503, {"message": "the model is overloaded, try again later", "type": "server_error", "code": "overloaded"}),
)


@dataclass(slots=True)
class Served:
    """One call, as the server saw it.

    Attributes:
        phase: Index in the script.
        at_s: Seconds after the script's begin; below zero for before.
        outcome: ``refused`` with a status; ``dropped`` by the client, who waited in vain; ``open`` until it ends.
    """

    model: str
    phase: int
    at_s: float
    outcome: Outcome = "open"
    status: int | None = None
    seconds: float | None = field(default=None)


class Primary:
    """The server's state, and its handlers."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._answerer = Answerer()
        self._began_s: float | None = None
        self._calls: list[Served] = []
        self._refused = 0

    def app(self) -> web.Application:
        """The application, to be run with ``handler_cancellation``: a client that leaves ends its call."""
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/outage/begin", self._begin)
        app.router.add_get("/outage/calls", self._list)
        app.cleanup_ctx.append(self._lifetime)
        return app

    async def _lifetime(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        await self._answerer.close()

    async def _begin(self, _request: web.Request) -> web.Response:
        self._began_s = asyncio.get_running_loop().time()
        return web.json_response({"script": str(self._script)})

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response({"calls": [asdict(call) for call in self._calls]})

    def _elapsed_s(self) -> float:
        return -1.0 if self._began_s is None else asyncio.get_running_loop().time() - self._began_s

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        at_s = self._elapsed_s()
        phase = self._script.index_at(at_s)
        body = await request.json()
        call = Served(str(body.get("model")), phase, round(at_s, 3))
        self._calls.append(call)
        began_s = asyncio.get_running_loop().time()
        try:
            match self._script.phases[phase].mode:
                case Mode.BUSY:
                    return self._refuse(call)
                case Mode.HANGING:
                    await asyncio.get_running_loop().create_future()
            return await self._answer(request, body, call)
        except (asyncio.CancelledError, ConnectionError):
            call.outcome = "dropped"
            raise
        finally:
            call.seconds = round(asyncio.get_running_loop().time() - began_s, 3)

    def _refuse(self, call: Served) -> web.Response:
        status, error = _BUSY[self._refused % len(_BUSY)]
        self._refused += 1
        call.outcome, call.status = "refused", status
        return web.json_response({"error": error}, status=status, headers={"Retry-After": str(RETRY_AFTER_S)})

    async def _answer(self, request: web.Request, body: dict[str, Any], call: Served) -> web.StreamResponse:
        try:
            asked = read_request(body)
        except BadRequestError as error:
            call.outcome, call.status = "refused", 400
            return web.json_response({"error": {"message": str(error)}}, status=400)
        if body.get("stream"):
            return await self._stream(request, asked, call)
        await asyncio.sleep(ANSWER_S)
        text = await self._answerer.answer(asked)
        call.outcome, call.status = "answered", 200
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"object": "chat.completion", "model": call.model, "choices": [choice]})

    async def _stream(self, request: web.Request, asked: ChatRequest, call: Served) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(ANSWER_S / 2)
        if asked.stage == "describe":
            # Reading takes seconds. As a model that reasons does, this one shows at once that it is at work.
            size = len(asked.inputs["image"])
            await _send(
                response, call, {"reasoning_content": f"A page image of {size:,} bytes; I read it line by line."}
            )
        text = await self._answerer.answer(asked)
        step = max(1, -(-len(text) // _PIECES))
        for start in range(0, len(text), step):
            await _send(response, call, {"content": text[start : start + step]})
            await asyncio.sleep(ANSWER_S / 2 / _PIECES)
        # Before the bytes that let the client know: who then asks for the log finds the call ended.
        call.outcome, call.status = "answered", 200
        await _send(response, call, {}, "stop")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


async def _send(response: web.StreamResponse, call: Served, delta: dict[str, str], reason: str | None = None) -> None:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"object": "chat.completion.chunk", "model": call.model, "choices": [choice]}
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def main(words: list[str]) -> None:
    """Serve on loopback until SIGTERM."""
    port, script = int(words[0]), Script.parse(words[1])
    web.run_app(
        Primary(script).app(),
        host="127.0.0.1",
        port=port,
        print=None,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=0.5,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
