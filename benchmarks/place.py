"""Servers of one benchmark, with the command over them, in a folder that goes when it ends."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from pipeline.store.migrate import upgrade
from pipeline.store.session import make_engine
from worker.embedded import EmbeddedPostgres, EmbeddedValkey

__all__ = ["Place", "Ran", "open_place"]

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    seconds: float
    cpu_s: float
    peak_mb: float
    out: bytes


class Place:
    """Durable servers, the documents, and the command over them, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.postgres = EmbeddedPostgres(folder / "home")
        self.valkey = EmbeddedValkey(folder / "home")
        self.blobs = folder / "blobs"

    def start(self) -> None:
        self.postgres.start()
        self.valkey.start()

    def stop(self) -> None:
        self.valkey.stop()
        self.postgres.stop()

    def database(self, name: str) -> str:
        """The URL of a new migrated database."""
        server = make_url(self.postgres.url)
        plain = server.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(f"create database {name}".encode())
        url = server.set(database=name).render_as_string(hide_password=False)
        engine = make_engine(url, pool_size=2)
        upgrade(engine)
        engine.dispose()
        return url

    def command(self, database_url: str, *words: str) -> Ran:
        """Run ``tidegate`` to its end.

        Raises:
            RuntimeError: It failed; why stands on standard error.
        """
        # Modules are compiled once, as they are where it is installed.
        dropped = ("TIDEGATE_", "MODEL_", "PYTHONDONTWRITEBYTECODE")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        environment = {
            **kept,
            "TIDEGATE_HOME": str(self.folder / "home"),
            "TIDEGATE_DATABASE_URL": database_url,
            "TIDEGATE_REDIS_URL": self.valkey.url,
            "TIDEGATE_BLOB_URL": self.blobs.as_uri(),
            "PYTHONPATH": str(ROOT),
        }
        out = self.folder / "out"
        began = time.perf_counter()
        with out.open("wb") as file:
            argv = [sys.executable, "-P", "-m", "worker", *words]
            process = subprocess.Popen(argv, cwd=self.folder, env=environment, stdout=file)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if process.returncode:
            msg = f"{words!r} ended with {process.returncode}"
            raise RuntimeError(msg)
        return Ran(seconds, used.ru_utime + used.ru_stime, _megabytes(used), out.read_bytes())


def _megabytes(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


@contextmanager
def open_place() -> Iterator[Place]:
    """A place whose servers run for the time of the block."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    place = Place(folder)
    try:
        place.start()
        yield place
    finally:
        place.stop()
        shutil.rmtree(folder, ignore_errors=True)
