"""The process that parses one file: ``python -m pipeline.documents.child``, started by ``sandbox``.

It reads one job from stdin, limits itself, and writes events to what was stdout. Only the room that the file needs is
imported, and only after the limits hold.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import BinaryIO

from pipeline.documents.job import Event, Job, PutOff, Reader, Rejected, job_from_line, rejected, to_line
from pipeline.documents.media import Family, family_of
from pipeline.domain.errors import RejectedInput, ServiceUnavailable
from pipeline.domain.text import safe_text

_PR_SET_PDEATHSIG = 1
_MB = 1 << 20
# One image or one report line is never near this; a reader that writes without end is.
_MAX_FILE_BYTES = 256 * _MB
_MAX_OPEN_FILES = 256

_READERS: dict[Family, str] = {
    Family.PDF: "pipeline.documents.pdf",
    Family.IMAGE: "pipeline.documents.images",
    Family.OFFICE: "pipeline.documents.office",
    Family.TEXT: "pipeline.documents.text",
}


def main(reader_for: Callable[[Job], Reader] | None = None) -> int:
    """Do what stdin asks for; 0 also when the file was rejected, for that is an answer.

    Args:
        reader_for: Finds who does the job; parsing, when it is not given.
    """
    _die_with_parent()
    out = _claim_stdout()
    job = job_from_line(sys.stdin.buffer.readline())
    _limit(job)

    def report(event: Event) -> None:
        out.write(to_line(event))
        out.flush()

    try:
        for event in (reader_for or _reader)(job)(job):
            report(event)
    except RejectedInput as exc:
        report(rejected(exc))
    except ServiceUnavailable as exc:
        report(PutOff(exc.fact, exc.remedy))
    except MemoryError:
        report(Rejected("unsafe", f"needs more memory than limits.parse_memory_mb = {job.limits.parse_memory_mb}"))
    except Exception as exc:  # a hostile file finds the exception that nobody foresaw; it is an answer
        traceback.print_exc()
        report(_unforeseen(exc))
    except BaseException as exc:
        # A library in Rust that panics raises what is no Exception, and is no different for that.
        if isinstance(exc, (SystemExit, KeyboardInterrupt)):
            raise
        report(_unforeseen(exc))
    return 0


def _unforeseen(exc: BaseException) -> Rejected:
    return Rejected("corrupt", f"it can't be read ({type(exc).__name__}: {safe_text(str(exc))[:200]})")


def _reader(job: Job) -> Reader:
    family = family_of(job.media_type)
    if family is None:
        raise RejectedInput("unsupported", f"no reader takes {job.media_type}")
    reader: Reader = importlib.import_module(_READERS[family]).read
    return reader


def _die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent dies; where that is not Linux, the closed pipe ends the child."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != sys.argv[1]:
        # It died before the request took hold.
        sys.exit(1)


def _claim_stdout() -> BinaryIO:
    """Keep the pipe for events; what C libraries print goes to stderr, which the parent keeps from the user."""
    events = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(events, "wb")


def _limit(job: Job) -> None:
    memory = job.limits.parse_memory_mb * _MB
    seconds = job.limits.parse_seconds
    _lower(resource.RLIMIT_AS, memory)
    # The parent's timer ends a child that waits; this ends one that burns CPU after the parent was stopped.
    _lower(resource.RLIMIT_CPU, seconds + 5)
    _lower(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES)


def _lower(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (ceiling, ceiling))


if __name__ == "__main__":
    sys.exit(main())
