"""Loopback ports: one to listen on, and ones that refuse for as long as they are held."""

import atexit
import socket

_held: list[socket.socket] = []


def bound(port: int = 0, host: str = "127.0.0.1") -> socket.socket:
    """A TCP socket bound to the port (0 = a free one) and not listening, so that connecting to it is refused."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def dead_port() -> int:
    """A port that refuses connections until this process ends.

    The port stays bound, so nothing else can be given it meanwhile: a port that was merely free a moment ago may be
    alive by the time a test connects to it.
    """
    if not _held:
        atexit.register(_release)
    sock = bound()
    _held.append(sock)
    port: int = sock.getsockname()[1]
    return port


def _release() -> None:
    while _held:
        _held.pop().close()
