"""The host itself: routes, the treatment of a call and the listening socket. Runs on one event loop."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from tests.upstream.act import Act
from tests.upstream.answers import Answer, default_answer
from tests.upstream.calls import Call, CallLog, now
from tests.upstream.control import Control
from tests.upstream.ports import bound
from tests.upstream.reply import Reply, abort
from tests.upstream.request import (
    BadRequestError,
    ChatRequest,
    EmbedRequest,
    digest,
    read_chat,
    read_embed,
    read_json,
    without_images,
)
from tests.upstream.script import Question, Rule, Script
from tests.upstream.serve import Stream, maybe_broken, send_scripted, send_whole
from tests.upstream.wire import chat_body, completion_text, dumps, embed_body, encode, error_body, stream_error

_RULES: TypeAdapter[list[Rule]] = TypeAdapter(list[Rule])
_LARGEST_BODY = 256 * 1024 * 1024

Serve = Callable[[Reply, Act], Awaitable[web.StreamResponse]]


class Host:
    """A model endpoint on one port of the loopback interface."""

    def __init__(self, dim: int, models: tuple[str, ...]) -> None:
        self.dim = dim
        self.models = models
        self.log = CallLog()
        self.script = Script()
        self.answers: dict[str, Answer] = {}
        self.port = 0
        self.control_port = 0
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        self._held: socket.socket | None = None
        self._reopen: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- life

    async def start(self, port: int, control: bool) -> None:
        """Listen on the port (0 = a free one), and for control alone on a second one that `refuse` leaves open."""
        app = web.Application(client_max_size=_LARGEST_BODY)
        Control(self).add_routes(app.router)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # handler_cancellation: the handler is cancelled the moment the client closes its socket.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        sock = bound(port)
        self.port = sock.getsockname()[1]
        self._site = web.SockSite(self._runner, sock)
        await self._site.start()
        if control:
            sock = bound()
            self.control_port = sock.getsockname()[1]
            await web.SockSite(self._runner, sock).start()

    async def stop(self) -> None:
        if self._reopen is not None:
            self._reopen.cancel()
        if self._held is not None:
            self._held.close()
        self._drop_connections()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def listening(self) -> bool:
        return self._site is not None

    async def refuse(self, seconds: float | None = None, spare: asyncio.BaseTransport | None = None) -> None:
        """Stop listening and close all connections, as if the process had died; listen again after `seconds`."""
        if self._reopen is not None:
            self._reopen.cancel()
            self._reopen = None
        if self._site is not None:
            await self._site.stop()
            self._site = None
            self._held = bound(self.port)  # nobody else may take the port meanwhile
        self._drop_connections(spare)
        if seconds is not None:
            self._reopen = asyncio.get_running_loop().call_later(seconds, self._listen_soon)

    async def listen(self) -> None:
        """Listen again on the same port."""
        if self._reopen is not None:
            self._reopen.cancel()
            self._reopen = None
        if self._held is not None and self._runner is not None:
            self._site, self._held = web.SockSite(self._runner, self._held), None
            await self._site.start()

    def _listen_soon(self) -> None:
        task = asyncio.get_running_loop().create_task(self.listen())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _drop_connections(self, spare: asyncio.BaseTransport | None = None) -> None:
        if self._runner is None or self._runner.server is None:
            return
        self.log.drop_open()
        for connection in self._runner.server.connections:
            transport = connection.transport
            name = transport.get_extra_info("sockname") if transport is not None else None
            if transport is not spare and name is not None and name[1] == self.port:
                abort(transport, with_rst=False)

    # ---- calls

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        call = Call(
            n=0,
            path=request.path,
            received_at=now(),
            authorization=request.headers.get("Authorization"),
            headers=dict(request.headers),
        )
        body = await request.read()
        call.body_bytes, call.body_digest = len(body), digest(body)
        serve, prompt, problem = self._read(request, call, body)
        self.log.begin(call)
        act = self.script.pick(
            Question(
                call.model,
                call.path,
                call.authorization,
                prompt,
                call.stream,
                call.in_flight_at_start,
                call.input_tokens,
            )
        )
        call.act = act.label
        reply = Reply(request, call, act, self.log)
        try:
            await reply.before_headers()
            if act.status >= 300 or act.body is not None:
                return await send_scripted(reply, act)
            if problem is not None:
                return await send_whole(reply, Act(), problem.status, encode(dumps(error_body(problem))), "rejected")
            return await serve(reply, act)
        except (asyncio.CancelledError, ConnectionError):
            self.log.end(call, "client_closed")
            raise
        except Exception:
            self.log.end(call, "crashed")
            raise

    def _read(self, request: web.Request, call: Call, body: bytes) -> tuple[Serve, str, Act | None]:
        """What serves the call, its prompt, and what is wrong with it. Fills in the call's record."""
        path = request.path
        try:
            if request.method == "POST" and path.endswith("/v1/chat/completions"):
                data = read_json(body)
                _note(call, data)
                chat = read_chat(data)
                call.stream, call.input_tokens, call.prompt_digest = chat.stream, chat.input_tokens, chat.prompt_digest
                call.inputs, call.image_digests = 1, [i.digest for i in chat.images]
                return lambda reply, act: self._chat(reply, act, chat), chat.text, None
            if request.method == "POST" and path.endswith("/v1/embeddings"):
                data = read_json(body)
                _note(call, data)
                texts = read_embed(data)
                call.inputs, call.input_tokens, call.prompt_digest = (
                    len(texts.texts),
                    texts.input_tokens,
                    texts.prompt_digest,
                )
                return lambda reply, act: self._embed(reply, act, texts), "\n".join(texts.texts), None
        except BadRequestError as e:
            return self._health, "", Act(status=400, message=str(e))
        if request.method == "GET" and path.endswith("/v1/models"):
            return self._list_models, "", None
        if request.method == "GET" and path.endswith("/health"):
            return self._health, "", None
        return self._health, "", Act(status=404, message=f"Invalid URL ({request.method} {path})", code="unknown_url")

    async def _health(self, reply: Reply, act: Act) -> web.StreamResponse:
        return await send_whole(reply, act, 200, b'{"status":"ok"}')

    async def _list_models(self, reply: Reply, act: Act) -> web.StreamResponse:
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "upstream"} for name in self.models]
        return await send_whole(reply, act, 200, encode(dumps({"object": "list", "data": data})))

    async def _embed(self, reply: Reply, act: Act, request: EmbedRequest) -> web.StreamResponse:
        return await send_whole(reply, act, 200, maybe_broken(dumps(embed_body(request, act, self.dim)), act))

    async def _chat(self, reply: Reply, act: Act, request: ChatRequest) -> web.StreamResponse:
        answer = self.answers.get(request.model, default_answer)
        usual = answer if isinstance(answer, str) else answer(request)
        text, finish = completion_text(request, act, usual)
        if request.stream:
            return await Stream(reply, act, request).run(text, finish)
        if act.error_after is not None:
            return await send_whole(reply, act, 200, encode(dumps(stream_error(act))), "stream_error")
        return await send_whole(reply, act, 200, maybe_broken(dumps(chat_body(request, act, text, finish)), act))

    # ---- control

    async def apply(self, items: list[Any], spare: asyncio.BaseTransport | None = None) -> None:
        """Add rules in their JSON form; `{"do": "refuse", "seconds": …}` and `{"do": "listen"}` act on the socket.

        `spare` is the connection that the order came by, which is not closed. Raises pydantic.ValidationError.
        """
        sockets = [i for i in items if isinstance(i, dict) and i.get("do") in ("refuse", "listen")]
        self.script.add(*_RULES.validate_python([i for i in items if i not in sockets]))
        for item in sockets:
            if item["do"] == "refuse":
                await self.refuse(item.get("seconds"), spare)
            else:
                await self.listen()

    async def reset(self) -> None:
        """No rules, no answers of its own, an empty log, listening."""
        self.script.clear()
        self.answers.clear()
        await self.listen()
        self.log.reset()


def _note(call: Call, data: dict[str, Any]) -> None:
    model = data.get("model")
    call.model = model if isinstance(model, str) else ""
    call.request = without_images(data)
