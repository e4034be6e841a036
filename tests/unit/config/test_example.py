"""config.example.yaml shows every key, and the defaults that it shows are the defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from pipeline.config.builtin import LOCAL_MODELS
from pipeline.config.load import load_config
from pipeline.config.model import Config, FailureName, RoleConfig
from pipeline.config.source import read_source
from pipeline.failover.kinds import FailureKind
from pipeline.failover.target import CallPolicy, CooldownPolicy, Times
from pipeline.providers.local import catalog
from tests.unit.config.conftest import Environment

EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"


def missing(model: type[BaseModel], data: dict[str, Any], path: str = "") -> Iterator[str]:
    """Fields of ``model`` that ``data`` does not show, all the way down."""
    for name, field in model.model_fields.items():
        here = f"{path}.{name}" if path else name
        if name not in data:
            # A role may tweak any key of a preset, which the presets show already.
            if model is not RoleConfig or name == "preset":
                yield here
            continue
        inner, several = models_in(field.annotation)
        # An empty map (on_error) is a default too; its comment shows the keys.
        if inner is None or not data[name]:
            continue
        parts = data[name].values() if several is dict else data[name] if several is tuple else [data[name]]
        # Several presets show the keys together: one of them shows all.
        yield from min((list(missing(inner, part, here)) for part in parts), key=len, default=[])


def models_in(annotation: Any) -> tuple[type[BaseModel] | None, Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, None
    for arg in get_args(annotation):
        found, _ = models_in(arg)
        if found is not None:
            return found, get_origin(annotation)
    return None, None


def defaults(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude={"presets", "kb", "collections"})


@pytest.fixture
def config(environment: Environment) -> Config:
    return load_config(environment(VLLM_KEY="a", ANTHROPIC_API_KEY="b"), EXAMPLE).config


def test_the_example_loads_and_shows_every_key(config: Config) -> None:
    assert config.presets["vision"].max_parallel == 8
    assert list(missing(Config, read_source(EXAMPLE.read_text()).data)) == []


def test_the_walk_sees_a_missing_key() -> None:
    data = read_source(EXAMPLE.read_text()).data
    del data["presets"]["vision"]["lane"]
    del data["kb"]["embedder"]["fallbacks"][0]["dim"]
    del data["park"]

    assert list(missing(Config, data)) == ["presets.lane", "kb.embedder.fallbacks.dim", "park"]


def test_the_examples_values_are_the_defaults(config: Config) -> None:
    assert defaults(config) == defaults(Config())


def test_the_core_has_the_same_defaults() -> None:
    failover = Config().failover
    for core in (Times(), CooldownPolicy(), CallPolicy()):
        for name in core.__slots__:
            if name in type(failover).model_fields:
                assert getattr(core, name) == getattr(failover, name)


def test_rules_may_be_given_for_every_kind_but_the_callers_and_our_own() -> None:
    assert set(get_args(FailureName)) == set(FailureKind) - {"cancelled", "deadline", "internal"}


def test_what_is_said_of_local_models_is_what_they_are() -> None:
    assert LOCAL_MODELS.keys() == catalog.LOCAL_MODELS.keys()
    for name, stated in LOCAL_MODELS.items():
        real = catalog.LOCAL_MODELS[name]
        assert (stated.modalities, stated.json_schema) == (real.modalities, real.json_schema)
        assert (stated.dim, stated.context_window) == (real.dim, real.context_window)
