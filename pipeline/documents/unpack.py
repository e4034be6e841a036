"""Takes apart what holds other files (ZIP, TAR, mail), in a limited child: ``python -m pipeline.documents.unpack``.

Members are written to numbered files; a member's name is only ever reported. What comes out is counted while it comes.
"""

from __future__ import annotations

import errno
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.documents import child, media
from pipeline.documents.job import Ended, Event, Job, Member
from pipeline.documents.members import Found, allowance
from pipeline.domain.errors import RejectedInput, ServiceUnavailable

__all__ = ["read"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SUFFIX = re.compile(r"[^/](\.[A-Za-z0-9]{1,10})$")

# Only what the container needs is imported: a third of the child's start.
_MEMBERS: dict[str, tuple[str, str]] = {
    media.ZIP: ("pipeline.documents.zipmembers", "zip_members"),
    media.TAR: ("pipeline.documents.tars", "tar_members"),
    media.MBOX: ("pipeline.documents.mailboxes", "mbox_members"),
    media.EML: ("pipeline.documents.attachments", "mail_members"),
    media.MSG: ("pipeline.documents.outlook", "msg_members"),
}


class _Bomb(RejectedInput):
    """The container as a whole is not to be trusted."""


@dataclass(slots=True)
class _Budget:
    """Bytes that may still come out of a container."""

    left: int
    said: str

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise _Bomb("unsafe", self.said)


def read(job: Job) -> Iterator[Event]:
    """Report a container's files, in its order, each written or with the reason why not.

    Raises:
        RejectedInput: ``unsafe`` (a bomb, more members or bytes than the limits allow) or ``corrupt``: what follows
            the members that were reported can't be read.
    """
    budget = _Budget(*allowance(job))
    for number, found in enumerate(_members(job), 1):
        if number > job.limits.max_members:
            raise _Bomb("unsafe", "it holds more files than limits.max_members allows")
        if found is not None:
            yield _written(job, number, found, budget)
    yield Ended()


def _members(job: Job) -> Iterable[Found | None]:
    module, name = _MEMBERS[job.media_type]
    members: Callable[[Job], Iterable[Found | None]] = getattr(importlib.import_module(module), name)
    return members(job)


def _written(job: Job, number: int, found: Found, budget: _Budget) -> Member:
    suffix = match.group(1) if (match := _SUFFIX.search(found.name)) else ""
    path = job.workdir / f"{number}{suffix}"
    try:
        size = _write(path, found, job.limits.max_bytes, budget)
    except _Bomb:
        raise
    except RejectedInput as exc:
        path.unlink(missing_ok=True)
        return Member(number, found.name, suffix, 0, (exc.kind, exc.detail))
    return Member(number, found.name, suffix, size)


def _write(path: Path, found: Found, most: int, budget: _Budget) -> int:
    if found.problem is not None:
        raise found.problem
    too_large = RejectedInput("too_large", f"it is above limits.max_bytes, which is {most:,}")
    if found.size_bytes > most:
        raise too_large
    size = 0
    with path.open("xb") as file:
        for piece in found.pieces:
            size += len(piece)
            if size > most:
                raise too_large
            budget.spend(len(piece))
            try:
                file.write(piece)
                file.flush()
            except OSError as exc:
                if exc.errno in _FULL:
                    raise ServiceUnavailable(
                        "the disk of the temporary folder is full", "free some space, or set TMPDIR to a larger disk"
                    ) from exc
                if exc.errno == errno.EFBIG:
                    raise too_large from exc
                raise
    return size


if __name__ == "__main__":
    sys.exit(child.main(lambda _: read))
