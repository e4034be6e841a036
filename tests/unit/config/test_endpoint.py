from __future__ import annotations

import pytest

from pipeline.config.endpoint import host_of, target_name


@pytest.mark.parametrize(
    ("model", "base_url", "name"),
    [
        ("openai/qwen3-14b", "http://vllm-2:8000/v1", "qwen3-14b@vllm-2:8000"),
        ("hosted_vllm/qwen3-14b", "HTTP://VLLM-2:8000/v1/", "qwen3-14b@vllm-2:8000"),
        ("openai/qwen3-14b", "http://me:pw@vllm-2:8000", "qwen3-14b@vllm-2:8000"),
        ("openai/BAAI/bge-m3", "https://llm.example.com:443/v1", "BAAI/bge-m3@llm.example.com"),
        ("openai/x", "http://llm.example.com", "x@llm.example.com:80"),
        ("openai/x", "https://llm.example.com./team-a//v1/", "x@llm.example.com/team-a/v1"),
        ("openai/x", "http://[::1]:8000/v1", "x@[::1]:8000"),
        ("openai/gpt-5", None, "gpt-5@openai"),
        ("openai/gpt-5", "https://api.openai.com/v1", "gpt-5@openai"),
        ("anthropic/claude-sonnet-5", None, "claude-sonnet-5@anthropic"),
        ("openrouter/anthropic/claude", None, "anthropic/claude@openrouter"),
        ("local/ocr", None, "ocr@local:box"),
    ],
)
def test_a_target_has_one_short_name(model: str, base_url: str | None, name: str) -> None:
    assert target_name(model, base_url, "box") == name


def test_a_host_is_compared_in_lower_case_and_without_its_port() -> None:
    assert host_of("http://Embed-1:8080/v1") == host_of("https://embed-1/") == "embed-1"
    assert host_of(None) is None
