"""Vectors of ``local/wordllama``, from the weights and tokenizer that ship inside the ``wordllama`` wheel.

The wheel's files are read directly: importing the package sets up the root logger, and its loader looks for missing
files on the network. The vectors are the same: the mean of the tokens' rows, brought to length 1.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.providers.local.catalog import EMBEDDING_DIM, EMBEDDING_MAX_TOKENS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from tokenizers import Tokenizer

__all__ = ["WordVectors", "count_tokens"]

_WEIGHTS = f"weights/l2_supercat_{EMBEDDING_DIM}.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
# The tokenizer's time grows faster than the text: past this many characters nothing is left that would be counted.
_CHARS_PER_TOKEN = 32


class _Shelf:
    """The wheel's files, each loaded once a process at first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokenizer: Tokenizer | None = None
        self._rows: npt.NDArray[np.float16] | None = None

    def tokenizer(self) -> Tokenizer:
        with self._lock:
            if self._tokenizer is None:
                from tokenizers import Tokenizer

                self._tokenizer = Tokenizer.from_file(str(_packaged(_TOKENIZER)))
            return self._tokenizer

    def rows(self) -> npt.NDArray[np.float16]:
        with self._lock:
            if self._rows is None:
                from safetensors import safe_open

                with safe_open(str(_packaged(_WEIGHTS)), framework="np") as file:
                    rows: npt.NDArray[np.float16] = file.get_tensor("embedding.weight")
                self._rows = rows
            return self._rows


_SHELF = _Shelf()


def count_tokens(text: str) -> int:
    """How many tokens the embedding model makes of a text."""
    return len(_SHELF.tokenizer().encode(text, add_special_tokens=False))


class WordVectors:
    """The embedder. Loading takes a second and 20 MB; a thread may do both that and the embedding."""

    def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """One vector of ``EMBEDDING_DIM`` numbers and length 1 a text, and the tokens of all texts.

        A text's tokens past ``EMBEDDING_MAX_TOKENS`` don't count.

        Raises:
            UpstreamFailure: A text has no tokens, or the wheel's files are missing.
        """
        import numpy as np

        tokenizer, rows = _SHELF.tokenizer(), _SHELF.rows()
        vectors: list[list[float]] = []
        used = 0
        for number, text in enumerate(texts):
            ids = self._ids(tokenizer, text)
            if not ids:
                raise UpstreamFailure(
                    FailureKind.INVALID_REQUEST, f"text {number + 1} of {len(texts)} is empty: it has no direction"
                )
            used += len(ids)
            # A token that the weights don't know takes the last row, as in wordllama itself.
            mean = rows[np.minimum(ids, len(rows) - 1)].astype(np.float32).mean(axis=0)
            length = float(np.linalg.norm(mean))
            if length == 0.0:
                raise UpstreamFailure(
                    FailureKind.INVALID_REQUEST, f"text {number + 1} of {len(texts)} has no direction"
                )
            vectors.append((mean / length).tolist())
        return vectors, used

    @staticmethod
    def _ids(tokenizer: Any, text: str) -> list[int]:
        if not text.strip():
            return []
        cut = text[: EMBEDDING_MAX_TOKENS * _CHARS_PER_TOKEN]
        ids: list[int] = tokenizer.encode(cut, add_special_tokens=False).ids
        return ids[:EMBEDDING_MAX_TOKENS]


def _packaged(name: str) -> Path:
    found = importlib.util.find_spec("wordllama")
    folders = (found.submodule_search_locations if found else None) or ()
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            return path
    raise UpstreamFailure(
        FailureKind.NOT_FOUND, f"the file {name!r} of wordllama is not installed; reinstall wordllama>=0.4,<0.5"
    )
