"""Local models that do real work offline: OCR, layout, retrieval cues, extraction, embeddings.

Importing this package loads no model, and only the catalog of their names: what runs them is imported when it is
asked for.
"""

from typing import TYPE_CHECKING, Any

from pipeline.providers.local.catalog import (
    EMBEDDING_DIM,
    EMBEDDING_MAX_TOKENS,
    LOCAL_DEFAULT_IDLE_S,
    LOCAL_DEFAULT_TIMEOUT_S,
    LOCAL_DEFAULT_TTFT_S,
    LOCAL_MODELS,
    LocalModel,
    default_max_parallel,
    default_pool_size,
)

if TYPE_CHECKING:
    from pipeline.providers.local.embeddings import count_tokens
    from pipeline.providers.local.upstream import LocalUpstream

__all__ = [
    "EMBEDDING_DIM",
    "EMBEDDING_MAX_TOKENS",
    "LOCAL_DEFAULT_IDLE_S",
    "LOCAL_DEFAULT_TIMEOUT_S",
    "LOCAL_DEFAULT_TTFT_S",
    "LOCAL_MODELS",
    "LocalModel",
    "LocalUpstream",
    "count_tokens",
    "default_max_parallel",
    "default_pool_size",
]


def __getattr__(name: str) -> Any:
    if name == "LocalUpstream":
        from pipeline.providers.local.upstream import LocalUpstream

        return LocalUpstream
    if name == "count_tokens":
        from pipeline.providers.local.embeddings import count_tokens

        return count_tokens
    raise AttributeError(name)
