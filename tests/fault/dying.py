"""A process that accepts documents, commits what is to be handed out, and is killed before any message is sent.

``python -m tests.fault.dying PATH…``, with the environment of a stack.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.dispatch import dispatch
from pipeline.documents.sniff import sniff
from pipeline.enqueue import enqueue
from pipeline.settings import read_settings
from pipeline.store.window import Slice
from worker.bootstrap import Container


def die(_: Sequence[Slice]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(paths: Sequence[str]) -> None:
    container = Container(read_settings())
    enqueue(
        container.sessions,
        container.blobs,
        [Path(path) for path in paths],
        recipe=container.recipe_for("default"),
        limits=container.config.limits.to_domain(),
        sniff=sniff,
    )
    dispatch(container.sessions, die, container.dispatch_policy)


if __name__ == "__main__":
    main(sys.argv[1:])
