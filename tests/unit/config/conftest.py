from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config.load import ConfigProblems, LoadedConfig, parse_config
from pipeline.settings import Settings, read_settings

Environment = Callable[..., Settings]
Refused = Callable[..., tuple[str, ...]]
Loads = Callable[..., LoadedConfig]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("TIDEGATE_", "MODEL_", "OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    def make(**variables: str) -> Settings:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return read_settings()

    return make


@pytest.fixture
def loads(environment: Environment) -> Loads:
    def make(text: str, **variables: str) -> LoadedConfig:
        return parse_config(text, "tidegate.yaml", environment(**variables))

    return make


@pytest.fixture
def refused(environment: Environment) -> Refused:
    """Every line that a configuration is refused with."""

    def make(text: str, **variables: str) -> tuple[str, ...]:
        with pytest.raises(ConfigProblems) as caught:
            parse_config(text, "tidegate.yaml", environment(**variables))
        return caught.value.problems

    return make
