"""A host that sends exactly the bytes it is told to, and says what it received: for what no HTTP server will send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class RawHost:
    """Answers every request with ``pieces``, then waits for the next one on the same connection, or hangs up.

    Attributes:
        requests: Head and body of each request, in order.
        connections: Sockets accepted.
        closed: Set when a client has closed a socket.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.hang_up = False
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = asyncio.Event()
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line), 0
                )
                self.requests.append(head + await reader.readexactly(length))
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)  # a read of its own for each piece
                if self.hang_up:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed.set()
        except asyncio.CancelledError:
            return  # the test is over; asyncio would report it as a crash
        finally:
            writer.close()


@asynccontextmanager
async def raw_host(*pieces: bytes, hang_up: bool = False) -> AsyncIterator[RawHost]:
    host = RawHost()
    host.pieces, host.hang_up = list(pieces), hang_up
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()
        await server.wait_closed()
