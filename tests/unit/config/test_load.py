"""Which configuration is used, and what it then says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config.builtin import ROLES
from pipeline.config.load import ConfigProblems, load_config
from pipeline.config.model import Config
from pipeline.config.roles import members_of
from pipeline.domain.errors import ConfigError
from pipeline.domain.unit import When
from tests.unit.config.conftest import Environment, Loads

TEXT = 'presets:\n  text: {model: openai/x, base_url: "http://h/v1"}\nkb: {answer_llm: {preset: text}}\n'


def models(config: Config) -> dict[str, list[str]]:
    return {role: [member.preset.model for member in members_of(config, role)] for role in ROLES}


LOCAL = {
    "vlm": ["local/ocr"],
    "vlm_formatter": ["local/layout"],
    "retrieval_llm": ["local/cues"],
    "answer_llm": ["local/extract"],
    "embedder": ["local/wordllama"],
}


def test_nothing_configured_means_the_local_chains(environment: Environment) -> None:
    loaded = load_config(environment())

    assert models(loaded.config) == LOCAL
    assert loaded.file is None
    assert loaded.warnings == ()


def test_a_file_in_the_working_directory_is_read(environment: Environment) -> None:
    Path("tidegate.yaml").write_text(TEXT)

    loaded = load_config(environment())

    assert models(loaded.config) == LOCAL | {"answer_llm": ["openai/x"]}
    assert str(loaded.file) == "tidegate.yaml"


def test_the_variable_wins_over_the_working_directory(environment: Environment, tmp_path: Path) -> None:
    Path("tidegate.yaml").write_text("no: config\n")
    other = tmp_path / "other.yaml"
    other.write_text(TEXT)

    assert load_config(environment(TIDEGATE_CONFIG=str(other))).file == other


def test_a_named_file_that_is_missing_is_an_error_even_with_one_in_the_working_directory(
    environment: Environment,
) -> None:
    Path("tidegate.yaml").write_text(TEXT)

    with pytest.raises(ConfigError, match=r"there is no configuration at 'gone.yaml' \(TIDEGATE_CONFIG\)"):
        load_config(environment(TIDEGATE_CONFIG="gone.yaml"))


def test_a_file_that_is_no_text_or_no_file_is_an_error(environment: Environment, tmp_path: Path) -> None:
    Path("latin.yaml").write_bytes(b"presets: {caf\xe9: 1}")

    with pytest.raises(ConfigError, match=r"latin.yaml: this is no UTF-8 text \(byte 13\)"):
        load_config(environment(), Path("latin.yaml"))
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        load_config(environment(), tmp_path)


def test_an_empty_file_and_empty_sections_mean_the_defaults(loads: Loads) -> None:
    assert loads("# all commented out\n").config == Config()
    assert loads("presets:\nkb:\ncollections:\n  seashore:\nfailover:\n").config.failover == Config().failover


def test_model_variables_make_a_chain_for_the_text_roles(environment: Environment) -> None:
    loaded = load_config(
        environment(
            MODEL_NAME="gpt-5",
            MODEL_FALLBACK_CHAIN=" claude-sonnet-5, openai/gpt-5 ,ollama/qwen3,",
            OPENAI_API_KEY="a",
            ANTHROPIC_API_KEY="b",
        )
    )

    chain = ["openai/gpt-5", "anthropic/claude-sonnet-5", "ollama/qwen3"]
    text = dict.fromkeys(("vlm_formatter", "retrieval_llm", "answer_llm"), chain)
    assert models(loaded.config) == LOCAL | text


def test_a_model_name_alone_is_that_one_model(environment: Environment) -> None:
    loaded = load_config(environment(MODEL_NAME="ollama/qwen3"))

    assert models(loaded.config)["answer_llm"] == ["ollama/qwen3"]


def test_a_chain_without_a_model_name_begins_with_its_first(environment: Environment) -> None:
    loaded = load_config(environment(MODEL_FALLBACK_CHAIN="ollama/a,ollama/b"))

    assert models(loaded.config)["answer_llm"] == ["ollama/a", "ollama/b"]


def test_a_model_variable_without_its_key_or_provider_is_named(environment: Environment) -> None:
    with pytest.raises(ConfigProblems, match="MODEL_NAME names 'openai/gpt-5', and OPENAI_API_KEY is not set"):
        load_config(environment(MODEL_NAME="openai/gpt-5"))
    with pytest.raises(ConfigError, match="MODEL_NAME is 'qwen3', which names no provider"):
        load_config(environment(MODEL_NAME="qwen3"))


def test_a_server_of_ones_own_behind_the_providers_variable_needs_no_key(environment: Environment) -> None:
    config = load_config(environment(MODEL_NAME="openai/qwen3", OPENAI_BASE_URL="http://127.0.0.1:8000/v1")).config

    preset = config.presets["openai/qwen3"]
    assert (preset.base_url, preset.api_key_env) == ("http://127.0.0.1:8000/v1", None)


def test_model_variables_are_ignored_with_one_warning_beside_a_file(environment: Environment) -> None:
    Path("tidegate.yaml").write_text(TEXT)

    loaded = load_config(environment(MODEL_NAME="gpt-5", MODEL_FALLBACK_CHAIN="x"))

    assert loaded.warnings == ("MODEL_NAME and MODEL_FALLBACK_CHAIN ignored: tidegate.yaml names the models",)
    assert models(loaded.config)["answer_llm"] == ["openai/x"]


def test_keys_that_are_not_set_are_a_warning_for_who_only_looks(environment: Environment) -> None:
    Path("tidegate.yaml").write_text(TEXT.replace("{model", "{api_key_env: K, model"))

    assert load_config(environment(), missing_keys="warn").warnings == (
        "tidegate.yaml:2: presets.text.api_key_env names 'K', which is not set in the environment; "
        "set it, or take the key out",
    )


def test_what_is_allowed_and_probably_not_meant_is_a_warning(loads: Loads) -> None:
    text = TEXT + "collections: {c: {allow_targets: [text]}}\n"
    text = text.replace("kb:", "  cloud: {model: anthropic/claude-sonnet-5}\n  idle: {model: ollama/y}\nkb:")
    text = text.replace("{preset: text}", "{preset: text, fallbacks: [cloud]}")

    assert loads(text).warnings == (
        "tidegate.yaml:3: presets.cloud has no api_key_env and ANTHROPIC_API_KEY is not set, "
        "so anthropic will refuse it",
        "tidegate.yaml:4: presets.idle is in no role's chain, so nothing calls it",
        "tidegate.yaml:6: collections.c.allow_targets names no target of vlm, vlm_formatter, retrieval_llm; "
        "those chains stay whole",
    )


def test_the_older_spelling_is_read(loads: Loads) -> None:
    config = loads("agents:\n  presets: {a: {model: openai/x}}\nkb: {answer_llm: {preset: a}}\n").config

    assert models(config)["answer_llm"] == ["openai/x"]


def test_scalars_are_read_as_they_look(loads: Loads) -> None:
    values = "a: 1e-3, b: no, c: 010, d: 2026-11-29, e: 1:30, f: .5, g: 0x10, h: ~"
    params = loads(f"presets: {{a: {{model: openai/x, params: {{{values}}}}}}}").config.presets["a"].params

    assert params == {"a": 0.001, "b": "no", "c": 10, "d": "2026-11-29", "e": "1:30", "f": 0.5, "g": 16, "h": None}


def test_anchors_and_merges_work(loads: Loads) -> None:
    text = "presets:\n  a: &a {model: openai/x, max_parallel: 1_000}\n  b: {<<: *a, model: openai/y}\n"

    presets = loads(text).config.presets
    assert (presets["b"].model, presets["b"].max_parallel) == ("openai/y", 1000)


def test_names_that_look_like_numbers_or_booleans_are_names(loads: Loads) -> None:
    assert set(loads("collections: {2026: {}, on: {}}\n").config.collections) == {"2026", "on"}


def test_a_collection_has_its_own_settings_over_the_common_ones(loads: Loads) -> None:
    config = loads(
        "chunk: {max_tokens: 300}\nformat: {when: never}\n"
        "collections: {c: {describe: {when: always}, chunk: {overlap_tokens: 10}, budget_usd: 5}}\n"
    ).config

    own, other = config.collection("c"), config.collection("default")
    assert (own.describe, own.format, own.budget_usd) == (When.ALWAYS, When.NEVER, 5)
    assert (own.chunk.max_tokens, own.chunk.overlap_tokens) == (300, 10)
    assert (other.describe, other.format, other.retrieve) == (When.AUTO, When.NEVER, When.ALWAYS)
    assert (other.chunk.max_tokens, other.allow_targets) == (300, None)
