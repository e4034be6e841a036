"""What a child of the pool runs: pages in over stdin, text out over stdout, until stdin closes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from pipeline.failover.kinds import FailureKind
from pipeline.providers.local.frames import HEADER

if TYPE_CHECKING:
    from pipeline.providers.local.ocr import OcrEngine

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_NICENESS = 2


class _Reader:
    """Reads pages; the models are loaded at the first."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._engine: OcrEngine | None = None
        self._readable: frozenset[str] = frozenset()

    def answer(self, job: dict[str, Any], image: bytes) -> dict[str, Any]:
        from pipeline.providers.local.anchor import believe, mend
        from pipeline.providers.local.layout import canonical
        from pipeline.providers.local.ocr import OcrEngine, UnreadableImage
        from pipeline.providers.local.reading import transcribe

        if self._engine is None:
            try:
                engine = OcrEngine(self._threads)
                self._readable = engine.readable()
            except (OSError, ImportError) as missing:
                message = f"the OCR models can't be loaded ({type(missing).__name__}); reinstall rapidocr>=3.10,<4"
                return {"error": FailureKind.NOT_FOUND, "message": message}
            self._engine = engine
        text_layer = str(job.get("text", ""))
        if believe(text_layer, self._readable):
            return {"text": canonical("", text_layer, "plain")}
        try:
            lines, width, height = self._engine.read(image)
        except UnreadableImage as unreadable:
            return {"error": FailureKind.INVALID_REQUEST, "message": str(unreadable)}
        return {"text": transcribe(mend(lines, text_layer), width, height)}


def _die_with(parent: int) -> None:
    """End when the parent does, in the middle of a page, too."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(0)


def _read_exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        sys.exit(0)
    return data


def main(arguments: list[str]) -> None:
    """Serve pages until the parent goes."""
    parent, threads = (int(a) for a in arguments)
    _die_with(parent)
    # A terminal's Ctrl-C is the parent's to handle: it closes stdin or kills.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    # A library that prints would break the frames: stdout is ours alone, their prints go to stderr.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        source = sys.stdin.buffer
        reader = _Reader(threads)
        while True:
            job_size, payload_size = HEADER.unpack(_read_exactly(source, HEADER.size))
            job = orjson.loads(_read_exactly(source, job_size))
            payload = _read_exactly(source, payload_size)
            try:
                answer = reader.answer(job, payload)
            except Exception as failed:  # one page's trouble must not end the child
                answer = _trouble(failed)
            body = orjson.dumps(answer)
            out.write(HEADER.pack(len(body), 0) + body)
            out.flush()


def _trouble(failed: Exception) -> dict[str, Any]:
    # What the machine lacks is nobody's input's fault; a library that stumbles over a page would at each try.
    lacks = isinstance(failed, MemoryError | OSError)
    kind = FailureKind.SERVER_ERROR if lacks else FailureKind.INVALID_OUTPUT
    # The class only: an exception's text may quote the page.
    return {"error": kind, "message": f"{type(failed).__name__} while reading a page"}


if __name__ == "__main__":
    main(sys.argv[1:])
