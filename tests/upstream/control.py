"""The control API: the same as `FakeUpstream`'s methods, over HTTP, for tests that are another process."""

import asyncio
from typing import Any, Protocol

from aiohttp import web
from pydantic import ValidationError

from tests.upstream.calls import CallLog, Want
from tests.upstream.script import Script


class Controlled(Protocol):
    """What the control API needs of a host."""

    script: Script
    log: CallLog

    @property
    def listening(self) -> bool: ...
    async def apply(self, items: list[Any], spare: asyncio.BaseTransport | None = None) -> None: ...
    async def reset(self) -> None: ...


class Control:
    """The routes below `/control`."""

    def __init__(self, host: Controlled) -> None:
        self._host = host

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_route("*", "/control", self._rules)
        router.add_get("/control/calls", self._calls)
        router.add_get("/control/peak", self._peak)
        router.add_post("/control/reset", self._reset)

    async def _rules(self, request: web.Request) -> web.Response:
        """GET the rules; DELETE them (`?model=`); POST a rule or a list of rules, `refuse` and `listen` among them."""
        if request.method == "DELETE":
            self._host.script.clear(request.query.get("model"))
        elif request.method == "POST":
            try:
                given = await request.json()
                await self._host.apply(given if isinstance(given, list) else [given], request.transport)
            except ValidationError as e:
                problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in e.errors())
                return web.json_response({"error": problems}, status=400)
            except ValueError as e:
                return web.json_response({"error": str(e)}, status=400)
        return web.json_response({"rules": self._host.script.describe(), "listening": self._host.listening})

    async def _calls(self, request: web.Request) -> web.Response:
        q = request.query
        ended = {"true": True, "false": False}.get(q.get("ended", ""))
        want = Want(q.get("model"), q.get("path"), q.get("outcome"), ended)
        at_least, timeout_s = int(q.get("at_least", 0)), float(q.get("timeout_s", 0))
        calls = await asyncio.to_thread(self._host.log.wait, at_least, want, timeout_s)
        return web.json_response([c.to_json() for c in calls])

    async def _peak(self, request: web.Request) -> web.Response:
        model = request.query.get("model")
        return web.json_response(
            {"peak": self._host.log.peak_in_flight(model), "in_flight": self._host.log.in_flight(model)}
        )

    async def _reset(self, request: web.Request) -> web.Response:
        await self._host.reset()
        return web.json_response({})
