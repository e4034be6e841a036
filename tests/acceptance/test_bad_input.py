"""Mistakes: one or two lines with the remedy, the promised exit code, and no traceback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.command import Tidegate
from tests.acceptance.shapes import ERROR, assert_shape


@pytest.fixture
def tidegate(tmp_path: Path) -> Tidegate:
    return Tidegate(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("enqueue", "x.pdf"),
        ("status",),
        ("search", "gate"),
        ("targets",),
        ("requeue", "--batch", "b"),
        ("worker",),
        ("beat",),
        ("db", "check"),
    ],
    ids=" ".join,
)
def test_without_services_a_command_exits_4_and_names_up(tidegate: Tidegate, words: tuple[str, ...]) -> None:
    ran = tidegate.run(*words, code=4)
    assert "tidegate up" in ran.err
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) <= 2
    assert not tidegate.home.exists()


def test_with_json_the_error_is_a_document_too(tidegate: Tidegate) -> None:
    error = tidegate.json("status", code=4)
    assert_shape(error, ERROR)
    assert error["error"]["kind"] == "service_unavailable"


def test_a_password_file_that_is_off_is_a_mistake_of_the_command_and_its_line_is_not_shown(tidegate: Tidegate) -> None:
    assert "no such file" in tidegate.run("enqueue", "x.pdf", "--password-file", "missing", code=2).err
    (tidegate.folder / "passwords.txt").write_text("plan.pdf opensesame\n")
    ran = tidegate.run("enqueue", "x.pdf", "--password-file", "passwords.txt", code=2)
    assert "line 1 of the password file 'passwords.txt'" in ran.err
    assert "opensesame" not in ran.out + ran.err


def test_services_that_do_not_answer_exit_4(tmp_path: Path) -> None:
    nowhere = {
        "TIDEGATE_DATABASE_URL": "postgresql://me:secret-word@127.0.0.1:1/tidegate",
        "TIDEGATE_REDIS_URL": "redis://127.0.0.1:1/0",
    }
    ran = Tidegate(tmp_path, nowhere).run("status", code=4)
    assert "127.0.0.1:1" in ran.err
    assert "secret-word" not in ran.err


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("presets: {vision: {model: openai/x, fallbacks: [vison-cloud]}}\n", "vison-cloud"),
        ("failover: {ttft_timeout: 8}\n", "ttft_timeout_s"),
        ("presets: [\n", "tidegate.yaml"),
    ],
    ids=["unknown fallback", "unknown key", "no YAML"],
)
def test_a_wrong_configuration_exits_3_and_names_the_key(tidegate: Tidegate, config: str, said: str) -> None:
    (tidegate.folder / "tidegate.yaml").write_text(config)
    for words in (("config", "check"), ("up", "--detach")):
        ran = tidegate.run(*words, code=3)
        assert said in ran.err
    checked = tidegate.json("config", "check", code=3)
    assert checked["ok"] is False
    assert checked["problems"]


def test_a_configuration_that_is_not_there_exits_3(tidegate: Tidegate) -> None:
    assert "nowhere.yaml" in tidegate.run("config", "check", "nowhere.yaml", code=3).err


def test_the_built_in_configuration_is_fine(tidegate: Tidegate) -> None:
    assert tidegate.json("config", "check") == {"ok": True, "file": None, "problems": [], "warnings": []}


def test_without_a_file_the_check_says_whose_models_are_used(tmp_path: Path) -> None:
    named = Tidegate(tmp_path, {"MODEL_NAME": "ollama/llama3"}).run("config", "check").out
    assert "MODEL_NAME" in named
    assert "built-in" in Tidegate(tmp_path).run("config", "check").out


@pytest.mark.parametrize(
    "words",
    [
        ("statsu",),
        ("status", "--nope"),
        ("enqueue",),
        ("up", "--threads", "0"),
        ("up", "--stages", "parse,dscribe"),
        ("enqueue", "x.pdf", "--timeout", "3"),
        ("enqueue", "x.pdf", "--wait", "--dry-run"),
        ("show", "x", "--format", "xml"),
        ("attempts", "x", "--stage", "publish"),
        ("status", "--watch", "--json"),
        ("ask", " "),
    ],
    ids=" ".join,
)
def test_words_that_are_off_exit_2_with_a_remedy(tidegate: Tidegate, words: tuple[str, ...]) -> None:
    ran = tidegate.run(*words, code=2)
    assert 1 <= len(ran.err.strip().splitlines()) <= 2


def test_a_stack_does_not_start_with_a_redis_that_does_not_answer(tmp_path: Path) -> None:
    ran = Tidegate(tmp_path, {"TIDEGATE_REDIS_URL": "redis://:secret-word@127.0.0.1:1/0"}).run("up", "--detach", code=4)
    assert "127.0.0.1:1" in ran.err
    assert "TIDEGATE_REDIS_URL" in ran.err
    assert "secret-word" not in ran.err


def test_a_home_that_cannot_be_written_exits_4(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ran = Tidegate(tmp_path, {"TIDEGATE_HOME": str(tmp_path / "file" / "home")}).run("up", "--detach", code=4)
    assert "TIDEGATE_HOME" in ran.err


def test_down_where_nothing_runs_is_no_error(tidegate: Tidegate) -> None:
    assert tidegate.json("down")["stopped"] is False


def test_a_reader_that_leaves_ends_a_command_quietly(tidegate: Tidegate) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            tidegate.argv("--help"), stdout=write_end, stderr=subprocess.PIPE, env=tidegate.env, cwd=tidegate.folder
        )
    finally:
        os.close(write_end)
    assert done.stderr == b""


@pytest.mark.parametrize("command", ["up", "enqueue", "status", "requeue", "targets", "search", "worker", "db"])
def test_every_help_has_an_example(tidegate: Tidegate, command: str) -> None:
    words = (command, "check") if command == "db" else (command,)
    assert f"tidegate {' '.join(words)}" in tidegate.run(*words, "--help").out.split("Example", 1)[1]
