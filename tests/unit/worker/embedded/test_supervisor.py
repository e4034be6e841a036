from __future__ import annotations

import signal
from pathlib import Path

import pytest

from worker.embedded import Part, Supervisor
from worker.embedded.account import Account
from worker.embedded.keeper import restart_delay_s


def test_restarts_slow_down_to_a_cap_and_a_service_gets_one_at_once() -> None:
    assert [restart_delay_s(n, is_service=False) for n in (1, 2, 3, 6, 7, 500)] == [0.5, 1, 2, 16, 30, 30]
    assert [restart_delay_s(n, is_service=True) for n in (1, 2, 3)] == [0, 0.5, 1]


def test_two_parts_cannot_share_a_name(tmp_path: Path) -> None:
    part = Part(name="beat", role="beat", argv=["true"])
    with pytest.raises(ValueError, match="beat"):
        Supervisor(tmp_path, [part, part])


def test_variables_need_an_environment_to_add_them_to(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="base_env"):
        Supervisor(tmp_path, [Part(name="beat", role="beat", argv=["true"], env={"A": "b"})])


def test_a_parts_variables_are_not_shown() -> None:
    assert "hunter2" not in repr(Part(name="beat", role="beat", argv=["true"], env={"KEY": "hunter2"}))


def test_an_ordinary_user_runs_the_servers_as_itself() -> None:
    assert Account(1000, 1000).command(["postgres"], signal.SIGINT) == ["postgres"]


def test_root_runs_them_as_the_other_user_with_the_right_to_pass_closed_folders() -> None:
    words = Account(101, 104, switches=True, passes_folders=True).command(["postgres", "-D", "x"], signal.SIGINT)
    assert words[0].endswith("setpriv")
    assert " ".join(words[1:]) == (
        "--reuid 101 --regid 104 --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search"
        " --securebits +no_setuid_fixup --pdeathsig INT postgres -D x"
    )
