"""Whom the servers run as. Postgres refuses root, and nothing here needs it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.domain.errors import ServiceUnavailable

__all__ = ["Account", "choose_account"]

# Tried in this order where neither the data nor the home says whose it is.
_FALLBACK_USERS = ("postgres", "nobody", "daemon")
# capabilities(7): what it takes to hand on the right to pass closed folders.
_SETGID, _SETUID, _SETPCAP, _DAC_READ_SEARCH = 6, 7, 8, 2
_PASS_FOLDERS = (
    "--inh-caps",
    "+dac_read_search",
    "--ambient-caps",
    "+dac_read_search",
    "--securebits",
    "+no_setuid_fixup",
)
_REMEDY = "run Tidegate as an ordinary user, or set TIDEGATE_DATABASE_URL and TIDEGATE_REDIS_URL to servers of your own"


@dataclass(frozen=True, slots=True)
class Account:
    """The user that the embedded servers run as.

    Attributes:
        uid: The user.
        gid: Its group.
        switches: Whether that is somebody else than we are, which only root can bring about.
        passes_folders: Whether the servers can be given the right to pass folders that are closed to their user.
    """

    uid: int
    gid: int
    switches: bool = False
    passes_folders: bool = False

    def command(self, argv: Sequence[str], death_signal: int) -> list[str]:
        """The command that runs ``argv`` as this user.

        Args:
            argv: Program and arguments.
            death_signal: What the program gets when its parent dies. Changing the user undoes an earlier setting.

        Raises:
            ServiceUnavailable: The user must be changed and the tool for it is missing.
        """
        if not self.switches:
            return list(argv)
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise ServiceUnavailable("root can't run Postgres, and 'setpriv' (util-linux) is not installed", _REMEDY)
        return [
            setpriv,
            *("--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups"),
            *(_PASS_FOLDERS if self.passes_folders else ()),
            *("--pdeathsig", signal.Signals(death_signal).name.removeprefix("SIG")),
            *argv,
        ]

    def give(self, path: Path) -> None:
        """Make this user the owner of a file or folder."""
        if self.switches:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def check_reach(self, program: Path, home: Path) -> None:
        """Make sure that the user can get at the program and into the home, where closed folders stop it.

        A home that is root's own is handed to the user: it stays closed to everyone else, and root passes anyway.
        No mode is changed, here or above.

        Raises:
            ServiceUnavailable: A folder is in the way; the text names it.
        """
        if not self.switches or self.passes_folders:
            return
        inside = home / ".gitignore"  # any file that is surely there
        if self._closed_folder(inside) == home and home.stat().st_uid == 0:
            self.give(home)
        for path in (program, inside):
            closed = self._closed_folder(path)
            if closed is not None and not self._gets_at(path):
                raise ServiceUnavailable(
                    f"the embedded servers run as uid {self.uid} because root can't run Postgres, and the folder "
                    f"{str(closed)!r} is closed to that user (this root lacks CAP_DAC_READ_SEARCH)",
                    f"open it:  chmod o+x {closed}  ; or {_REMEDY}",
                )

    def _closed_folder(self, path: Path) -> Path | None:
        real = Path(os.path.realpath(path))
        for folder in reversed(real.parents):
            found = folder.stat()
            bit = 0o100 if found.st_uid == self.uid else 0o010 if found.st_gid == self.gid else 0o001
            if not found.st_mode & bit:
                return folder
        return None

    def _gets_at(self, path: Path) -> bool:
        # Access lists can open what the mode bits close, so the user's own word is the last one.
        probe = self.command(["test", "-e", str(path)], signal.SIGKILL)
        return subprocess.run(probe, check=False, capture_output=True).returncode == 0  # noqa: S603 - our own words


def choose_account(home: Path, data: Path) -> Account:
    """The user for the servers: ourselves, or for root whoever owns the data or the home, or a system user.

    Raises:
        ServiceUnavailable: Root may not change the user here, or no system user is known.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    held = _capabilities()
    if not {_SETUID, _SETGID} <= held:
        raise ServiceUnavailable("root can't run Postgres, and this root may not change its user", _REMEDY)
    passes = {_SETPCAP, _DAC_READ_SEARCH} <= held
    for folder in (data, home):
        if folder.exists() and (owner := folder.stat()).st_uid != 0 and _is_known(owner.st_uid):
            return Account(owner.st_uid, owner.st_gid, switches=True, passes_folders=passes)
    for name in _FALLBACK_USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(user.pw_uid, user.pw_gid, switches=True, passes_folders=passes)
    names = ", ".join(_FALLBACK_USERS)
    raise ServiceUnavailable(f"root can't run Postgres, and this system has none of the users {names}", _REMEDY)


def _is_known(uid: int) -> bool:
    # initdb looks its user up and gives up on one without a name.
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _capabilities() -> frozenset[int]:
    """Numbers of the capabilities that this process has and may hand on."""
    masks = dict.fromkeys(("CapEff", "CapBnd"), 0)
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name in masks:
            masks[name] = int(value, 16)
    both = masks["CapEff"] & masks["CapBnd"]
    return frozenset(bit for bit in range(both.bit_length()) if both >> bit & 1)
