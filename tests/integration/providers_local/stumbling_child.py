"""The pool's own child over a reader that raises what its job says."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from pipeline.providers.local import child


class _Stumbling:
    def __init__(self, threads: int) -> None:
        """Takes what a reader takes."""

    def answer(self, job: dict[str, Any], image: bytes) -> dict[str, Any]:
        raise getattr(builtins, job["raise"])("of the page's words")


if __name__ == "__main__":
    child._Reader = _Stumbling  # type: ignore[assignment,misc]
    child.main(sys.argv[1:])
