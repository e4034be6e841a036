"""The mails in an mbox file, each under its postmark: a line that begins with "From " (RFC 4155)."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator

from pipeline.documents.job import Job
from pipeline.documents.members import Found

__all__ = ["is_mailbox", "mbox_members"]

# After an empty line, and before a header: so a letter's "From Monday 10:30 on" is none.
_POSTMARK = re.compile(
    rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\r\n]{1,200}\d\d:\d\d[^\r\n]{0,100}\r?\n(?=>?[A-Za-z][\w-]*+:? )"
)
# Where a mail has such a line, its mailbox has put a mark before it.
_MARKED = re.compile(rb"^>(?=>*From )", re.MULTILINE)


def is_mailbox(head: bytes, *, is_whole: bool) -> bool:
    """Whether a file holds several mails, or may do so past its beginning; a mail may keep the postmark it had there.

    Args:
        head: The file's beginning.
        is_whole: Whether that is all of it, or to be taken for that.
    """
    postmarks = _POSTMARK.finditer(head)
    first = next(postmarks, None)
    if first is None or first.start():
        return False
    return not is_whole or next(postmarks, None) is not None


def mbox_members(job: Job) -> Iterator[Found | None]:
    """Yield a mailbox's mails in their order, under their numbers."""
    with job.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        number, start = 0, -1
        for postmark in _POSTMARK.finditer(data):
            if start >= 0:
                yield _found(number, data, start, postmark.start())
            number, start = number + 1, postmark.end()
        if start >= 0:
            yield _found(number, data, start, len(data))


def _found(number: int, data: mmap.mmap, start: int, end: int) -> Found:
    return Found(f"{number}.eml", end - start, _mail(data, start, end))


def _mail(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    yield _MARKED.sub(b"", data[start:end])
