import subprocess
import sys
from typing import Any

import pytest

from pipeline.domain.call import Usage
from pipeline.failover.target import Price, Target
from pipeline.providers import lane_of
from pipeline.providers.prices import usage_of


def target(model: str, base_url: str | None = None, **changes: Any) -> Target:
    return Target(key="k", preset="p", model=model, base_url=base_url, **changes)


@pytest.mark.parametrize(
    ("model", "base_url", "lane"),
    [
        ("local/ocr", None, "local"),
        ("openai/gpt-5", None, "fast"),
        ("openai/qwen3-14b", "http://vllm:8000/v1", "fast"),
        ("hosted_vllm/qwen3-14b", "http://vllm:8000/v1", "fast"),
        ("hosted_vllm/qwen3-14b", None, "litellm"),
        ("lm_studio/x", "http://box:1234/v1", "fast"),
        ("ollama/x", "http://box:11434/v1/", "fast"),
        ("ollama/x", "http://box:11434", "litellm"),
        ("ollama_chat/x", None, "litellm"),
        ("anthropic/claude-sonnet-5", None, "litellm"),
        ("azure/gpt", "https://x.openai.azure.com", "litellm"),
    ],
)
def test_auto_takes_the_fast_lane_for_what_speaks_openais_api(model: str, base_url: str | None, lane: str) -> None:
    assert lane_of(target(model, base_url)) == lane


def test_a_lane_that_is_named_is_taken_but_for_local_targets() -> None:
    assert lane_of(target("openai/x", lane="litellm")) == "litellm"
    assert lane_of(target("mistral/x", "https://api.mistral.ai/v1", lane="fast")) == "fast"
    assert lane_of(target("local/ocr", lane="litellm")) == "local"


def test_importing_the_package_imports_no_litellm() -> None:
    code = "import sys, pipeline.providers; assert not {'litellm', 'openai', 'httpx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_targets_own_price_is_what_counts() -> None:
    priced = target("openai/gpt-4o", price=Price(input_per_mtok=2.0, output_per_mtok=10.0))
    assert usage_of(priced, (1_000, 500)) == Usage(1_000, 500, 0.007)
    assert usage_of(target("openai/gpt-4o", price=Price(0, 0)), (1_000, 500)) == Usage(1_000, 500, 0.0)


def test_without_a_price_the_table_that_litellm_ships_counts_but_not_for_ones_own_server() -> None:
    listed = usage_of(target("openai/gpt-4o"), (1_000_000, 0))
    assert listed is not None
    assert listed.cost_usd > 0
    assert usage_of(target("openai/gpt-4o", "http://vllm:8000/v1"), (1_000_000, 0)) == Usage(1_000_000, 0, 0.0)
    assert usage_of(target("openai/no-such-model"), (5, 5)) == Usage(5, 5, 0.0)
    assert usage_of(target("openai/gpt-4o"), None) is None
