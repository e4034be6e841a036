"""A model server that costs as little as one can: every byte that it sends is made before the first call.

It speaks as much HTTP as clients need to keep a connection alive, and OpenAI's chat completions. The last line of the
last message says what to answer: ``500 4`` is 500 tokens, 4 ms apart; a gap of 0 sends the stream in one write. Each
event is an HTTP chunk of its own, as servers of models send them, and streams of one pace advance together, as a server
that decodes them as one batch sends them.

    python -m benchmarks.sse_server         prints its port, serves until its standard input ends
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, ClassVar

import orjson

__all__ = ["Connection", "answer_text", "serve"]

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n\r\n"
_STREAM_HEAD = _HEAD % (b"text/event-stream; charset=utf-8", b"Transfer-Encoding: chunked")
_END = b"0\r\n\r\n"
_MODEL = "bench"
_CREATED = 1_767_225_600


def answer_text(tokens: int) -> str:
    """What the server says in so many tokens; it never repeats itself."""
    return "".join(_words(tokens))


def _words(tokens: int) -> list[str]:
    return [f" word{number * 7919 % 10_007}" for number in range(tokens)]


@cache
def _events(tokens: int) -> tuple[bytes, tuple[bytes, ...], bytes]:
    """A stream's first bytes, those of each token, and its last."""
    first = _event({"delta": {"role": "assistant", "content": ""}})
    pieces = tuple(_event({"delta": {"content": word}}) for word in _words(tokens))
    last = _event({"delta": {}}, finish="stop") + _event(None, usage=_usage(tokens)) + _chunked(b"data: [DONE]\n\n")
    return _STREAM_HEAD + first, pieces, last + _END


@cache
def _burst(tokens: int) -> bytes:
    first, pieces, last = _events(tokens)
    return first + b"".join(pieces) + last


@cache
def _whole(tokens: int) -> bytes:
    message = {"role": "assistant", "content": answer_text(tokens)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    body = orjson.dumps(_document("chat.completion", [choice]) | {"usage": _usage(tokens)})
    return _HEAD % (b"application/json", b"Content-Length: %d" % len(body)) + body


def _event(choice: dict[str, Any] | None, finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    choices = [] if choice is None else [{"index": 0, **choice, "logprobs": None, "finish_reason": finish}]
    document = _document("chat.completion.chunk", choices) | ({"usage": usage} if usage else {})
    return _chunked(b"data: " + orjson.dumps(document) + b"\n\n")


def _document(kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "chatcmpl-bench", "object": kind, "created": _CREATED, "model": _MODEL, "choices": choices}


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class _Batch:
    """Streams of one pace, which advance together: one token each at every tick, as a server decodes a batch.

    A client is woken once for all of them, so the limit that lanes are held to is as low as it can be, and how their
    calls happen to start makes no difference.
    """

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._streams: dict[Connection, Iterator[bytes]] = {}
        self._ticking = False

    def add(self, connection: Connection, pieces: Iterable[bytes]) -> None:
        self._streams[connection] = iter(pieces)
        if not self._ticking:
            self._ticking = True
            self._wait()

    def remove(self, connection: Connection) -> None:
        self._streams.pop(connection, None)

    def _wait(self) -> None:
        # From now and not from when it was due: a server that is late must not make up for it with a burst.
        asyncio.get_running_loop().call_later(self._gap_s, self._tick)

    def _tick(self) -> None:
        for connection, pieces in list(self._streams.items()):
            piece = next(pieces, None)
            if piece is None:
                self.remove(connection)
            else:
                connection.write(piece)
        self._ticking = bool(self._streams)
        if self._ticking:
            self._wait()


class Connection(asyncio.Protocol):
    """One keep-alive connection; its requests come one after the other."""

    _batches: ClassVar[dict[int, _Batch]] = {}

    def __init__(self) -> None:
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.write = transport.write

    def connection_lost(self, _: Exception | None) -> None:
        for batch in self._batches.values():
            batch.remove(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        length = next(
            int(line.partition(b":")[2])
            for line in bytes(self._received[:head_end]).lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        end = head_end + 4 + length
        if len(self._received) >= end:
            request = orjson.loads(self._received[head_end + 4 : end])
            del self._received[:end]
            self._answer(request)

    def _answer(self, request: dict[str, Any]) -> None:
        tokens, gap_ms = map(int, request["messages"][-1]["content"].split("\n")[-1].split())
        if not request.get("stream"):
            self.write(_whole(tokens))
        elif gap_ms == 0:
            self.write(_burst(tokens))
        else:
            first, pieces, last = _events(tokens)
            self.write(first)
            batch = self._batches.setdefault(gap_ms, _Batch(gap_ms / 1000))
            batch.add(self, (*pieces[:-1], pieces[-1] + last))


async def serve() -> None:
    """Serve on a free port of the loopback, which is printed, until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
