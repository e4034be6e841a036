from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from pipeline.domain.errors import ServiceUnavailable, UsageError
from worker.embedded import Home


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_home_is_private_and_ignored_by_git(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.prepare()
    assert _mode(home.path) == 0o700
    assert (home.path / ".gitignore").read_text() == "*\n"


def test_folders_that_exist_keep_their_modes(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir(mode=0o750)
    (above / "home").mkdir(mode=0o755)
    Home(above / "home").prepare()
    assert (_mode(above), _mode(above / "home")) == (0o750, 0o755)


def test_a_home_that_everyone_can_write_is_refused_with_a_remedy(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ServiceUnavailable, match="written by everyone") as caught:
        Home(tmp_path).prepare()
    assert "TIDEGATE_HOME" in caught.value.remedy


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ServiceUnavailable, match="is a file"):
        Home(file).prepare()


def test_a_home_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceUnavailable, match="cannot be written"):
        Home(tmp_path / "file" / "home").prepare()


def test_a_file_is_replaced_at_once_and_private(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.write(home.state, "one")
    home.write(home.state, "two")
    assert home.state.read_text() == "two"
    assert _mode(home.state) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]


def test_a_secret_is_drawn_once(tmp_path: Path) -> None:
    first = Home(tmp_path).secret("postgres.password")
    assert len(first) >= 24
    assert Home(tmp_path).secret("postgres.password") == first
    assert _mode(tmp_path / "postgres.password") == 0o600


def test_sockets_are_in_the_home_when_its_path_is_short_and_plain(tmp_path: Path) -> None:
    home = Home(Path("/srv/tidegate"))
    assert home.sockets == Path("/srv/tidegate/run")


@pytest.mark.parametrize("name", ["x" * 90, "a,b", "a b", "naïve", "50%"])
def test_a_path_no_good_for_sockets_gets_a_private_stand_in_that_is_remembered(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / name)
    home.prepare()
    folder = home.sockets
    assert _mode(folder) == 0o700
    assert len(os.fsencode(folder)) < 60
    assert Home(home.path).sockets == folder
    home.remove_stand_in()
    assert not folder.exists()


def test_a_stand_in_that_was_swept_away_or_opened_is_not_used_again(tmp_path: Path) -> None:
    home = Home(tmp_path / ("x" * 90))
    home.prepare()
    swept = home.sockets
    swept.rmdir()
    opened = home.sockets
    opened.chmod(0o755)
    third = home.sockets
    assert third not in {opened}
    assert _mode(third) == 0o700
    for folder in (opened, third):
        shutil.rmtree(folder)


def test_two_supervisors_cannot_hold_one_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.locked():
        assert home.is_locked
        with pytest.raises(UsageError, match="already runs") as caught, Home(tmp_path).locked():
            pass
    assert "tidegate down" in caught.value.remedy


def test_a_home_is_free_again_when_its_supervisor_is_gone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.locked():
        pass
    assert not home.is_locked
