"""A proxy before Postgres that cuts a connection when a COMMIT has been carried out and its reply not yet been heard.

It reads as much of the protocol as that takes: where the client's messages begin, and which of them is a COMMIT.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

from sqlalchemy.engine import make_url

__all__ = ["PostgresProxy"]

_CHUNK_BYTES = 65536
_PROTOCOL_3 = 3 << 16
_LOCAL = "127.0.0.1"


class PostgresProxy:
    """Clients go through ``url`` instead of the server's own address. A context manager.

    Args:
        url: Of the server, whose socket lies in the folder that its ``host`` names.
    """

    def __init__(self, url: str) -> None:
        self._behind = make_url(url)
        folder, port = self._behind.query["host"], self._behind.query["port"]
        self._socket_file = f"{folder}/.s.PGSQL.{port}"
        self._listener = socket.create_server((_LOCAL, 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._to_lose = 0
        self._lost = 0
        self._closing = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> PostgresProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where clients connect to."""
        query = {"sslmode": "disable", "gssencmode": "disable"}
        there = self._behind.set(host=_LOCAL, port=self._listener.getsockname()[1]).set(query=query)
        return there.render_as_string(hide_password=False)

    @property
    def lost(self) -> int:
        """How many COMMITs were carried out unheard."""
        return self._lost

    def lose_commits(self, count: int) -> None:
        """Cut the connections of the next ``count`` COMMITs, each after it was carried out."""
        with self._lock:
            self._to_lose += count

    def close(self) -> None:
        """Cut every connection, and listen no more."""
        self._closing = True
        # A close alone does not wake who waits in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        with self._lock:
            for one in self._open:
                _cut(one)

    # --- connections ------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with client, server:
            try:
                server.connect(self._socket_file)
            except OSError:
                # Postgres is away: the client's connection ends, as its own would.
                return
            with self._lock:
                self._open |= {client, server}
            swallow = threading.Event()
            answered = threading.Event()
            back = threading.Thread(target=self._backward, args=(server, client, swallow, answered), daemon=True)
            back.start()
            with suppress(OSError):
                self._forward(client, server, swallow, answered)
            _cut(client)
            _cut(server)
            back.join()
            with self._lock:
                self._open -= {client, server}

    def _forward(
        self, client: socket.socket, server: socket.socket, swallow: threading.Event, answered: threading.Event
    ) -> None:
        messages = _Messages()
        while data := client.recv(_CHUNK_BYTES):
            if messages.holds_commit(data) and self._loses():
                swallow.set()
                server.sendall(data)
                answered.wait(10)
                return
            server.sendall(data)

    def _backward(
        self, server: socket.socket, client: socket.socket, swallow: threading.Event, answered: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK_BYTES):
                if swallow.is_set():
                    answered.set()
                    return
                client.sendall(data)
        answered.set()
        _cut(client)

    def _loses(self) -> bool:
        with self._lock:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            self._lost += 1
            return True


class _Messages:
    """Finds the beginnings of a client's messages in its stream."""

    def __init__(self) -> None:
        self._kept = b""
        self._started = False

    def holds_commit(self, data: bytes) -> bool:
        """Take in the next bytes; whether a COMMIT ends in them."""
        self._kept += data
        found = False
        while (message := self._next()) is not None:
            found = found or (message[:1] == b"Q" and message[5:].rstrip(b"\0").strip().upper() == b"COMMIT")
        return found

    def _next(self) -> bytes | None:
        # The first messages have no type: requests for encryption, then the one that names the protocol.
        head = 1 if self._started else 0
        if len(self._kept) < head + 4:
            return None
        end = head + struct.unpack_from("!I", self._kept, head)[0]
        if len(self._kept) < end:
            return None
        message, self._kept = self._kept[:end], self._kept[end:]
        if not self._started:
            self._started = bool(struct.unpack_from("!I", message, 4)[0] == _PROTOCOL_3)
        return message


def _cut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
