"""The folder that holds everything of an embedded stack: ``TIDEGATE_HOME``."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import select
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.domain.errors import ServiceUnavailable, UsageError

__all__ = ["Home"]

# sun_path has 108 bytes with its end mark; Postgres' name is the longest of those put into the folder.
_SOCKET_PATH_BYTES = 107
_LONGEST_SOCKET = "/.s.PGSQL.5432"
# libpq splits a host at commas, URLs at the rest; a folder with other characters gets a stand-in.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/-]*")
_LOCK_PATIENCE_S = 1.0
_LOCK_POLL_S = 0.05
_PRIVATE = stat.S_IRWXU
_REMEDY = "set TIDEGATE_HOME to a folder that you own"


class Home:
    """Where the embedded stack keeps its data, logs, sockets and state.

    Nothing is made until ``prepare``. What exists already keeps its mode, and so do all folders above.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.logs = self.path / "logs"
        self.state = self.path / "stack.json"
        self._lock = self.path / "stack.lock"
        self._sockets = self.path / "run"
        self._stand_in = self.path / "run.path"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def prepare(self) -> None:
        """Make the folder, private, unless it is there, and check that it is ours to use.

        Raises:
            ServiceUnavailable: It can't be made or written, or others could tamper with it.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self.path.mkdir(mode=_PRIVATE)
            self._refuse_strangers()
            self.logs.mkdir(mode=_PRIVATE, exist_ok=True)
            self.own(self.logs)
            # Also the proof that the folder can be written, which mode bits are not.
            self.write(self.path / ".gitignore", "*\n")
        except OSError as error:
            raise ServiceUnavailable(
                f"the home folder {str(self.path)!r} cannot be written: {error}", _REMEDY
            ) from error

    def _refuse_strangers(self) -> None:
        found = self.path.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise ServiceUnavailable(f"the home folder {str(self.path)!r} is a file", _REMEDY)
        if os.geteuid() not in (0, found.st_uid):
            raise ServiceUnavailable(
                f"the home folder {str(self.path)!r} belongs to uid {found.st_uid}, not to you (uid {os.geteuid()})",
                _REMEDY,
            )
        if found.st_mode & stat.S_IWOTH:
            raise ServiceUnavailable(
                f"the home folder {str(self.path)!r} can be written by everyone, its secrets and data with it",
                f"{_REMEDY}, or close it:  chmod 700 {self.path}",
            )

    def own(self, path: Path) -> None:
        """Give a file that root made to the folder's owner, who may come without root next time."""
        if os.geteuid() != 0:
            return
        found = self.path.stat()
        if found.st_uid != 0:
            os.chown(path, found.st_uid, found.st_gid, follow_symlinks=False)

    def write(self, path: Path, text: str) -> None:
        """Replace a file in the folder at once, readable by its owner alone."""
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=self.path)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
            self.own(Path(temporary))
            os.replace(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def secret(self, name: str) -> str:
        """A password that is drawn once and then kept in the file ``name``."""
        path = self.path / name
        if not path.exists():
            fd, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=self.path)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(24))
            self.own(Path(temporary))
            # A link, unlike a rename, leaves the one that another process put there first.
            with suppress(FileExistsError):
                os.link(temporary, path)
            os.unlink(temporary)
        return path.read_text(encoding="ascii").strip()

    @property
    def sockets(self) -> Path:
        """The folder for sockets: ``run``, or a short private stand-in where that path is no good for sockets.

        Raises:
            ServiceUnavailable: No folder for temporary files can be written.
        """
        if self._takes_sockets(self._sockets):
            return self._sockets
        recorded = self._recorded()
        if recorded is not None:
            return recorded
        with suppress(FileNotFoundError):
            self._stand_in.unlink()
        for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - mkdtemp makes it private
            if not self._takes_sockets(Path(parent, "tidegate-12345678")):
                continue
            try:
                folder = Path(tempfile.mkdtemp(prefix="tidegate-", dir=parent))
            except OSError:
                continue
            self.write(self._stand_in, f"{folder}\n")
            return folder
        raise ServiceUnavailable(
            f"the home folder's path is too long or too unusual for sockets, and no temporary folder is writable: "
            f"{str(self.path)!r}",
            "set TIDEGATE_HOME to a shorter path of plain letters",
        )

    def make_sockets(self, uid: int, gid: int) -> None:
        """Make the folder for sockets, private to the user that the servers run under."""
        folder = self.sockets
        folder.mkdir(mode=_PRIVATE, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(folder, uid, gid, follow_symlinks=False)

    def remove_stand_in(self) -> None:
        """Take away the stand-in for sockets, once no server is left; the next start makes another."""
        recorded = self._recorded()
        if recorded is not None:
            shutil.rmtree(recorded)
            self._stand_in.unlink()

    def _takes_sockets(self, folder: Path) -> bool:
        path = f"{folder}{_LONGEST_SOCKET}"
        return len(os.fsencode(path)) <= _SOCKET_PATH_BYTES and _PLAIN_PATH.fullmatch(path) is not None

    def _recorded(self) -> Path | None:
        """The stand-in, if it is still the private folder that was made: a cleaner of /tmp may have come by."""
        try:
            folder = Path(self._stand_in.read_text(encoding="utf-8").strip())
            found = folder.lstat()
        except OSError:
            return None
        private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == _PRIVATE
        return folder if private and (os.geteuid() in (0, found.st_uid)) else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only supervisor of this folder.

        Raises:
            UsageError: Another one is.
        """
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            self.own(self._lock)
            self._acquire(fd)
            yield
        finally:
            os.close(fd)

    def _acquire(self, fd: int) -> None:
        # One that is on its last line lets go in a moment.
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UsageError(
                        f"a stack already runs under {str(self.path)!r}", "to stop it:  tidegate down"
                    ) from None
            else:
                return
            _pause(_LOCK_POLL_S)

    @property
    def is_locked(self) -> bool:
        """Whether a supervisor holds the folder now."""
        try:
            fd = os.open(self._lock, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two askers don't take each other for a supervisor.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False


def _pause(duration_s: float) -> None:
    """Wait for a lock, which offers nothing to wait on with a time limit."""
    select.select([], [], [], duration_s)
