from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.domain.errors import ConfigError
from pipeline.settings import Settings, read_settings


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TIDEGATE_", "MODEL_")):
            monkeypatch.delenv(name)


def read(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return read_settings()


def test_an_empty_environment_means_the_embedded_stack_under_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read(monkeypatch, TIDEGATE_DATABASE_URL="", TIDEGATE_CONFIG="")

    assert settings.home == tmp_path / ".tidegate"
    assert (settings.database_url, settings.redis_url, settings.blob_url, settings.config) == (None,) * 4


def test_every_variable_of_the_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(
        monkeypatch,
        TIDEGATE_CONFIG="other.yaml",
        TIDEGATE_HOME="/data/tg",
        TIDEGATE_DATABASE_URL="postgresql://tide:pw@db/tide",
        TIDEGATE_REDIS_URL="rediss://:pw@cache:6380/1",
        TIDEGATE_BLOB_URL="s3://bucket/prefix",
        TIDEGATE_FLOWER_PORT="5601",
        TIDEGATE_FLOWER_BASIC_AUTH="me:secret",
        TIDEGATE_METRICS_PORT="9100",
        TIDEGATE_LOG_LEVEL="DEBUG",
        MODEL_NAME="openai/gpt-5",
        MODEL_FALLBACK_CHAIN="openai/gpt-5-mini",
    )

    assert settings.config == Path("other.yaml")
    assert settings.home == Path("/data/tg")
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://tide:pw@db/tide"
    assert (settings.flower_port, settings.metrics_port, settings.log_level) == (5601, 9100, "debug")
    assert (settings.model_name, settings.model_fallback_chain) == ("openai/gpt-5", "openai/gpt-5-mini")
    assert "pw" not in repr(settings)
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        (
            "TIDEGATE_DATABASE_URL",
            "mysql://u:hunter2@h/d",
            "TIDEGATE_DATABASE_URL begins with 'mysql://'; it takes postgres",
        ),
        ("TIDEGATE_DATABASE_URL", "hunter2", "TIDEGATE_DATABASE_URL is no URL; it takes postgresql://"),
        ("TIDEGATE_DATABASE_URL", "postgresql://u:hunter2@h:port/d", "TIDEGATE_DATABASE_URL is no URL"),
        ("TIDEGATE_REDIS_URL", "http://hunter2@h", "TIDEGATE_REDIS_URL begins with 'http://'; it takes redis://"),
        ("TIDEGATE_BLOB_URL", "ftp://h/x", "TIDEGATE_BLOB_URL is 'ftp://h/x'; it takes file:///"),
        ("TIDEGATE_BLOB_URL", "s3://key:hunter2@bucket", "TIDEGATE_BLOB_URL carries a user name or password"),
        ("TIDEGATE_FLOWER_PORT", "five", "TIDEGATE_FLOWER_PORT is 'five': input should be a valid integer"),
        ("TIDEGATE_FLOWER_BASIC_AUTH", "hunter2", "TIDEGATE_FLOWER_BASIC_AUTH takes user:password"),
        ("TIDEGATE_LOG_LEVEL", "loud", "TIDEGATE_LOG_LEVEL is 'loud': input should be 'debug'"),
    ],
)
def test_a_wrong_variable_is_named_and_no_password_is_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(monkeypatch, **{variable: value})

    assert str(caught.value).startswith(says)
    assert "hunter2" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_keys_are_looked_up_in_the_snapshot_and_stay_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, VLLM_KEY=" sk-1\n", EMPTY_KEY="")
    monkeypatch.setenv("VLLM_KEY", "changed")

    key = settings.secret("VLLM_KEY")
    assert key is not None
    assert key.get_secret_value() == "sk-1"
    assert settings.secret("EMPTY_KEY") is None
    assert "sk-1" not in repr(settings)


def test_a_slip_in_a_variables_name_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, TIDEGATE_DATBASE_URL="x")

    assert settings.warnings == ("TIDEGATE_DATBASE_URL means nothing here; did you mean TIDEGATE_DATABASE_URL?",)


def test_an_installation_apart_keeps_keys_and_none_of_the_services(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = read(
        monkeypatch,
        TIDEGATE_DATABASE_URL="postgresql://me@host/db",
        TIDEGATE_REDIS_URL="redis://host",
        TIDEGATE_LOG_LEVEL="debug",
        MODEL_NAME="gpt-4.1-mini",
        VLLM_KEY="sk-1",
    )

    apart = settings.apart(tmp_path / "home", tmp_path / "tidegate.yaml")

    assert (apart.home, apart.config) == (tmp_path / "home", tmp_path / "tidegate.yaml")
    assert (apart.database_url, apart.redis_url, apart.model_name, apart.log_level) == (None, None, None, "debug")
    assert apart.has("VLLM_KEY")
    ours = {name for name in apart.environ if name.startswith(("TIDEGATE_", "MODEL_"))}
    assert ours == {"TIDEGATE_HOME", "TIDEGATE_CONFIG", "TIDEGATE_LOG_LEVEL"}
    assert settings.database_url is not None
