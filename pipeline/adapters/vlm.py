"""A vision role. It differs from a language role in what its requests need, which they say themselves."""

from __future__ import annotations

from pipeline.adapters.llm import FallbackLlm

__all__ = ["FallbackVlm"]


class FallbackVlm(FallbackLlm):
    """Reads images; a target without image input is skipped by contract."""
