from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from pipeline.domain.errors import ConfigError, RejectedInput, ServiceUnavailable, TidegateError, UsageError
from worker.cli import setup
from worker.cli.main import main

_HEAVY = ("sqlalchemy", "celery", "litellm", "pydantic", "redis", "rich", "structlog", "yaml", "numpy")


def _raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let ``db check`` end with an error."""

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(setup, "services", fail)


def test_the_help_imports_nothing_heavy() -> None:
    code = "import sys; from worker.cli.app import command; command(); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(_HEAVY) & set(modules)


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    commands = (
        "up down demo doctor enqueue status why attempts requeue cancel delete targets show search ask config db "
        "worker beat flower"
    )
    assert all(f"\n  {name} " in listed for name in commands.split())


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (UsageError("fact", "remedy"), 2, "usage"),
        (ConfigError("fact", "remedy"), 3, "config"),
        (ServiceUnavailable("fact", "remedy"), 4, "service_unavailable"),
        (RejectedInput("corrupt", "detail"), 1, "failed"),
        (TidegateError("fact"), 1, "failed"),
    ],
)
def test_each_error_has_its_exit_code_and_its_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: TidegateError, code: int, kind: str
) -> None:
    _raising(monkeypatch, error)
    assert main(["db", "check", "--json"]) == code
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["kind"] == kind
    assert 1 <= len(said.err.splitlines()) <= 2


def test_a_bug_is_one_line_and_a_traceback_only_with_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _raising(monkeypatch, RuntimeError("went wrong"))
    assert main(["db", "check"]) == 1
    said = capsys.readouterr().err
    assert "RuntimeError: went wrong" in said
    assert "--debug" in said
    assert "Traceback" not in said
    assert main(["--debug", "db", "check"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_with_130_and_without_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _raising(monkeypatch, KeyboardInterrupt())
    assert main(["db", "check"]) == 130
    assert capsys.readouterr().err == ""


def test_json_and_debug_are_taken_before_and_behind_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _raising(monkeypatch, UsageError("fact"))
    for words in (["--json", "db", "check"], ["db", "--json", "check"], ["db", "check", "--json"]):
        assert main(words) == 2
        assert json.loads(capsys.readouterr().out)["error"]["message"] == "fact"


def test_behind_two_dashes_they_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--", "--json"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "'--json'" in said.err


def test_a_slip_of_the_pen_is_answered_with_the_right_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statsu"]) == 2
    said = capsys.readouterr().err
    assert "statsu" in said
    assert "tidegate --help" in said
