"""The local models: their names, what they take, and the timers and bounds that suit them.

Everything here is plain data: it may be read on the command line's path without loading a model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = [
    "CUES",
    "EMBEDDING_DIM",
    "EMBEDDING_MAX_TOKENS",
    "EXTRACT",
    "LAYOUT",
    "LOCAL_DEFAULT_IDLE_S",
    "LOCAL_DEFAULT_TIMEOUT_S",
    "LOCAL_DEFAULT_TTFT_S",
    "LOCAL_MODELS",
    "OCR",
    "WORDLLAMA",
    "LocalModel",
    "default_max_parallel",
    "default_pool_size",
]

OCR = "local/ocr"
LAYOUT = "local/layout"
CUES = "local/cues"
EXTRACT = "local/extract"
WORDLLAMA = "local/wordllama"

# A page takes seconds and its text comes at once, so the first content is the last: the timer that spots a silent
# server in 8 s would condemn a slow machine. A pool slot's wait is inside it, too.
LOCAL_DEFAULT_TTFT_S = 120.0
LOCAL_DEFAULT_IDLE_S = 120.0
LOCAL_DEFAULT_TIMEOUT_S = 180.0

EMBEDDING_DIM = 256
# The model is a mean of word vectors: it has no limit of its own, but a mean over more says less and less.
EMBEDDING_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class LocalModel:
    """What a local target of this model offers.

    Attributes:
        stages: Values of ``ChatRequest.stage`` it answers; empty for an embedder.
        json_schema: It answers with the JSON of its own stage.
        dim: Width of the vectors, for the embedder.
        context_window: Tokens a text may have, for the embedder; chat models have no bound.
    """

    model: str
    stages: frozenset[str]
    modalities: frozenset[str] = frozenset({"text"})
    json_schema: bool = False
    dim: int | None = None
    context_window: int | None = None


LOCAL_MODELS: Mapping[str, LocalModel] = MappingProxyType(
    {
        m.model: m
        for m in (
            LocalModel(OCR, frozenset({"describe"}), frozenset({"text", "image"})),
            LocalModel(LAYOUT, frozenset({"format"})),
            LocalModel(CUES, frozenset({"retrieve"}), json_schema=True),
            LocalModel(EXTRACT, frozenset({"answer"})),
            LocalModel(WORDLLAMA, frozenset(), dim=EMBEDDING_DIM, context_window=EMBEDDING_MAX_TOKENS),
        )
    }
)


def default_pool_size() -> int:
    """Children that read pages at once: half the processors, for the rest of the stack runs on this host too."""
    return max(1, (os.cpu_count() or 1) // 2)


def default_max_parallel(model: str, pool_size: int | None = None) -> int | None:
    """Calls at once on this host: the pool's size for OCR, no bound for what answers in milliseconds."""
    return (pool_size or default_pool_size()) if model == OCR else None
