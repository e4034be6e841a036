from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.adapters.chains import Chains, build_chains
from pipeline.config.model import Config
from pipeline.domain.errors import ConfigError, UsageError
from pipeline.failover.kinds import PRESET_RULES, STANDARD_RULES, Action, Cooldown, FailureKind

VISION = {"model": "openai/qwen-vl", "base_url": "http://vllm-1:8000/v1", "modalities": ["text", "image"]}
TEXT = {"model": "openai/qwen3", "base_url": "http://vllm-2:8000/v1"}


def build(
    *, secrets: dict[str, str] | None = None, key: bytes = b"installation", pool_size: int | None = 2, **config: Any
) -> Chains:
    values = {name: SecretStr(value) for name, value in (secrets or {}).items()}
    return build_chains(
        Config.model_validate(config), values.get, fingerprint_key=key, hostname="box", pool_size=pool_size
    )


def keys(chains: Chains, role: str) -> list[str]:
    return [target.key for target in chains.chain(role).targets]


def test_the_built_in_chains_are_local_with_the_times_that_suit_them() -> None:
    chains = build(failover={"ttft_timeout_s": 3})

    assert [target.key for target in chains.targets] == [
        "ocr@local:box",
        "layout@local:box",
        "cues@local:box",
        "extract@local:box",
        "wordllama@local:box",
    ]
    ocr = chains.chain("vlm").primary
    assert (ocr.times.ttft_timeout_s, ocr.max_parallel, ocr.is_free) == (120, 2, True)
    assert ocr.modalities == {"text", "image"}
    assert chains.chain("retrieval_llm").primary.json_schema
    assert chains.chain("embedder").primary.dim == 256
    assert chains.chain("answer_llm").policy.interactive
    assert not chains.chain("vlm").policy.interactive
    assert chains.secrets == {}


def test_a_chain_holds_what_is_configured_in_order_and_nothing_else() -> None:
    chains = build(
        presets={
            "vision": VISION | {"fallbacks": ["cloud", "ocr"], "max_parallel": 8, "timeout_s": 60},
            "cloud": {
                "model": "anthropic/claude-sonnet-5",
                "modalities": ["text", "image"],
                "ttft_timeout_s": 30,
                # A fallback's own fallbacks are ignored.
                "fallbacks": ["vision"],
            },
            "ocr": {"model": "local/ocr", "max_parallel": 5},
        },
        kb={"vlm": {"preset": "vision"}},
        failover={"max_attempts": 3},
        secrets={"ANTHROPIC_API_KEY": "sk-a"},
    )

    assert keys(chains, "vlm") == ["qwen-vl@vllm-1:8000", "claude-sonnet-5@anthropic", "ocr@local:box"]
    vision, cloud, ocr = chains.chain("vlm").targets
    assert (vision.max_parallel, vision.times.ttft_timeout_s, vision.times.timeout_s) == (8, 8, 60)
    assert (cloud.times.ttft_timeout_s, cloud.price.input_per_mtok) == (30, None)
    assert ocr.max_parallel == 5
    assert chains.chain("vlm").policy.max_attempts == 3
    # A hosted provider's own variable is looked up where none is named.
    assert chains.secrets["claude-sonnet-5@anthropic"].get_secret_value() == "sk-a"
    assert "sk-a" not in repr(chains)


def test_keys_beside_the_preset_tweak_the_primary_only() -> None:
    chains = build(
        presets={
            "text": TEXT | {"params": {"temperature": 0.1}, "fallbacks": ["small"]},
            "small": {"model": "openai/s"},
        },
        kb={
            "vlm_formatter": {"preset": "text", "params": {"top_p": 0.5}, "ttft_timeout_s": 20, "deadline_s": 60},
            "answer_llm": {"preset": "text"},
        },
    )

    primary, fallback = chains.chain("vlm_formatter").targets
    assert (primary.params, primary.times.ttft_timeout_s) == ({"temperature": 0.1, "top_p": 0.5}, 20)
    assert (fallback.params, fallback.times.ttft_timeout_s) == ({}, 8)
    assert chains.chain("vlm_formatter").policy.deadline_s == 60
    assert chains.chain("answer_llm").primary.params == {"temperature": 0.1}
    assert chains.chain("answer_llm").policy.deadline_s == 300


def test_two_spellings_of_one_endpoint_are_one_target() -> None:
    chains = build(
        presets={
            "a": TEXT | {"fallbacks": ["b", "c"], "max_parallel": 4},
            "b": {"model": "hosted_vllm/qwen3", "base_url": "http://VLLM-2:8000/"},
            "c": {"model": "openai/s"},
        },
        kb={"answer_llm": {"preset": "a"}, "vlm_formatter": {"preset": "b"}},
    )

    assert keys(chains, "answer_llm") == ["qwen3@vllm-2:8000", "s@openai"]
    # The bound belongs to the target, whichever preset states it.
    assert chains.chain("vlm_formatter").primary.max_parallel == 4
    known = next(known for known in chains.known if known.target.key == "qwen3@vllm-2:8000")
    assert known.presets == ("b", "a")
    assert known.roles == ("vlm_formatter", "answer_llm")


def test_two_accounts_at_one_endpoint_are_two_targets_told_apart_by_a_keyed_hash() -> None:
    presets = {
        "a": TEXT | {"api_key_env": "A", "fallbacks": ["b", "none", "c"], "max_parallel": 4},
        "b": TEXT | {"api_key_env": "B", "max_parallel": 8},
        "none": TEXT,
        "c": TEXT | {"model": "openai/other", "api_key_env": "B"},
    }
    kb = {"answer_llm": {"preset": "a"}}
    secrets = {"A": "sk-a", "B": "sk-b"}

    chains = build(presets=presets, kb=kb, secrets=secrets)
    first, second, third, other = keys(chains, "answer_llm")

    assert first.startswith("qwen3@vllm-2:8000#")
    assert second.startswith("qwen3@vllm-2:8000#")
    assert first != second
    assert (third, other) == ("qwen3@vllm-2:8000", "other@vllm-2:8000")
    assert {key: value.get_secret_value() for key, value in chains.secrets.items()} == {
        first: "sk-a",
        second: "sk-b",
        other: "sk-b",
    }
    assert keys(build(presets=presets, kb=kb, secrets=secrets), "answer_llm")[0] == first
    assert keys(build(presets=presets, kb=kb, secrets=secrets, key=b"another"), "answer_llm")[0] != first


def test_two_variables_with_one_accounts_key_are_one_target_and_may_not_contradict() -> None:
    presets = {
        "a": TEXT | {"api_key_env": "A", "fallbacks": ["b"], "max_parallel": 4},
        "b": TEXT | {"api_key_env": "B", "max_parallel": 8},
    }

    with pytest.raises(
        ConfigError, match=r"'a' and 'b' are the same target qwen3@vllm-2:8000, but give max_parallel 4"
    ):
        build(presets=presets, kb={"answer_llm": {"preset": "a"}}, secrets={"A": "k", "B": "k"})


def test_a_replica_inherits_all_but_the_quota_group_and_the_key_only_for_the_same_host() -> None:
    chains = build(
        kb={
            "embedder": {
                "model": "openai/bge-m3",
                "dim": 1024,
                "base_url": "http://embed-1:8080/v1",
                "api_key_env": "K",
                "params": {"truncate": True},
                "max_parallel": 3,
                "quota_group": "g",
                "fallbacks": [
                    {"base_url": "http://embed-1:8081/v1"},
                    {"base_url": "http://embed-2:8080/v1", "api_key_env": "K2"},
                ],
            }
        },
        secrets={"K": "k1", "K2": "k2"},
    )

    first, same_host, other_host = chains.chain("embedder").targets
    assert (first.preset, same_host.preset, other_host.preset) == ("embedder", "embedder-2", "embedder-3")
    assert (other_host.model, other_host.dim, other_host.params) == ("openai/bge-m3", 1024, {"truncate": True})
    assert (first.quota_group, other_host.quota_group, other_host.max_parallel) == ("g", None, 3)
    assert [chains.secrets[t.key].get_secret_value() for t in (first, same_host, other_host)] == ["k1", "k1", "k2"]


def test_a_replica_on_another_host_gets_no_key_by_itself() -> None:
    replica = {"base_url": "http://embed-2/v1"}
    embedder = {
        "model": "openai/m",
        "dim": 8,
        "base_url": "http://embed-1/v1",
        "api_key_env": "K",
        "fallbacks": [replica],
    }

    chains = build(kb={"embedder": embedder}, secrets={"K": "k"})

    assert list(chains.secrets) == ["m@embed-1:80"]


def test_policy_fallbacks_are_targets_too() -> None:
    chains = build(
        presets={"a": TEXT | {"content_policy_fallbacks": ["p"]}, "p": {"model": "ollama/free"}},
        kb={"answer_llm": {"preset": "a"}},
    )

    assert keys(chains, "answer_llm") == ["qwen3@vllm-2:8000"]
    assert [target.key for target in chains.chain("answer_llm").content_policy_fallbacks] == ["free@ollama"]
    assert chains.resolve_target("p").key == "free@ollama"


def test_rules_follow_on_error() -> None:
    assert build().chain("vlm").primary.rules == STANDARD_RULES
    assert build(failover={"on_error": "permissive"}).chain("vlm").primary.rules == PRESET_RULES["permissive"]

    rules = (
        build(
            failover={
                "on_error": {
                    "invalid_request": {"action": "stop"},
                    "rate_limit": {"cooldown": 7},
                    "auth": {"cooldown": False},
                    "content_policy": {"cooldown": True, "action": "next"},
                    "not_found": {"cooldown": True},
                }
            }
        )
        .chain("vlm")
        .primary.rules
    )

    assert rules[FailureKind.INVALID_REQUEST].action is Action.STOP
    assert (rules[FailureKind.RATE_LIMIT].cooldown, rules[FailureKind.RATE_LIMIT].cooldown_s) == (Cooldown.BACKOFF, 7)
    assert rules[FailureKind.AUTH].cooldown is Cooldown.NONE
    assert rules[FailureKind.CONTENT_POLICY].cooldown is Cooldown.BACKOFF
    assert rules[FailureKind.CONTENT_POLICY].action is Action.NEXT
    assert rules[FailureKind.NOT_FOUND] == STANDARD_RULES[FailureKind.NOT_FOUND]
    assert rules[FailureKind.CONNECT] == STANDARD_RULES[FailureKind.CONNECT]


def test_a_target_is_found_by_key_or_by_a_preset_that_names_one() -> None:
    chains = build(
        presets={"text": TEXT},
        kb={"answer_llm": {"preset": "text"}, "vlm_formatter": {"preset": "text", "base_url": "http://vllm-9/v1"}},
    )

    assert chains.resolve_target("qwen3@vllm-2:8000").base_url == "http://vllm-2:8000/v1"
    assert chains.resolve_target("local-ocr").key == "ocr@local:box"
    with pytest.raises(UsageError, match="'text' names 2 targets: qwen3@vllm-9:80, qwen3@vllm-2:8000"):
        chains.resolve_target("text")
    with pytest.raises(UsageError, match="'local-ocrr' is no target; did you mean 'local-ocr'"):
        chains.resolve_target("local-ocrr")
    with pytest.raises(UsageError, match=r"'zzz' is no target\n"):
        chains.resolve_target("zzz")


def test_an_allow_list_narrows_the_chains_that_it_names_a_target_of() -> None:
    chains = build(
        presets={
            "a": TEXT | {"fallbacks": ["small"]},
            # The same target as ``a``: allowed under either name.
            "alias": TEXT,
            "small": {"model": "openai/s"},
        },
        kb={"answer_llm": {"preset": "a"}, "vlm_formatter": {"preset": "alias"}},
        collections={"c": {"allow_targets": ["alias"]}, "free": {}},
    )

    assert chains.allowed("answer_llm", "c") == frozenset({"a"})
    assert chains.allowed("vlm", "c") is None
    assert chains.allowed("answer_llm", "free") is chains.allowed("answer_llm", "default") is None


def test_a_search_may_ask_for_an_interactive_chain() -> None:
    chains = build()

    assert chains.chain("embedder", interactive=True).policy.interactive
    assert not chains.chain("embedder").policy.interactive


def test_a_fingerprint_is_the_model_and_its_params_wherever_they_are_served() -> None:
    one = build(presets={"a": TEXT | {"params": {"seed": 1}}}, kb={"answer_llm": {"preset": "a"}})
    moved = build(
        presets={"b": TEXT | {"params": {"seed": 1}, "base_url": "http://elsewhere"}},
        kb={"answer_llm": {"preset": "b"}},
    )

    assert (
        one.fingerprint("answer_llm")
        == moved.fingerprint("answer_llm")
        == {"model": "openai/qwen3", "params": {"seed": 1}}
    )
    assert one.fingerprint("embedder") == {"model": "local/wordllama", "params": {}, "dim": 256}
