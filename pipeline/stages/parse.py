"""The parse stage: a file in, its pages out. CPU only, in a child process, no model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from pipeline.documents import sandbox
from pipeline.documents.job import Begun, Ended, Event, Job, Opened, PutOff, Rejected
from pipeline.domain.document import Limits, ParsedDocument, ParsedPage, TextFormat, TextQuality
from pipeline.domain.errors import ChildDied, Failure, RejectedInput, ServiceUnavailable

__all__ = ["VERSION", "ImagePolicy", "parse"]

VERSION = "4"

ImagePolicy = Literal["needed", "all"]


class Runner(Protocol):
    """Runs one child; ``documents.sandbox.run`` is the real one."""

    def __call__(self, job: Job, *, seconds: float, silence_s: float | None) -> Iterator[Event]: ...


# A page that takes this share of parse_seconds is stuck; no page of a sane file takes more than a minute.
_PAGE_SHARE = 0.25
_PAGE_MIN_S, _PAGE_MAX_S = 5.0, 60.0
# Each bad page costs a child or two: a file with more of them is hostile or hopeless.
_MAX_BAD_PAGES = 10


@dataclass(slots=True)
class _Progress:
    """What has come out of the children of one parse so far."""

    pages: dict[int, ParsedPage] = field(default_factory=dict)
    title: str | None = None
    count: int = 0
    current: int | None = None
    suspect: int | None = None
    crashed_at_once: bool = False
    stuck: int = 0
    ended: bool = False

    @property
    def next_page(self) -> int:
        """Where the next child begins; pages come in order."""
        return max(self.pages, default=0) + 1

    def take(self, event: Event) -> None:
        match event:
            case Opened(pages=count, title=title):
                self.count, self.title = count, title
            case Begun(number=number):
                self.current = number
            case ParsedPage():
                self.pages[event.number] = event
                self.current = None
            case Rejected(kind=kind, detail=detail):
                raise RejectedInput(kind, detail)
            case PutOff(fact=fact, remedy=remedy):
                raise ServiceUnavailable(fact, remedy)
            case Ended(title=title):
                self.title = self.title or title
                self.ended = True

    def fail_current(self, kind: str, detail: str) -> None:
        """Give up on the page that is being read."""
        number = self.current
        assert number is not None  # noqa: S101 -- the callers looked
        failure = Failure(kind, f"page {number} {detail}")
        self.pages[number] = ParsedPage(number, "", TextFormat.PLAIN, TextQuality.NONE, failure=failure)
        self.current = None


def parse(
    path: Path,
    media_type: str,
    limits: Limits,
    *,
    workdir: Path,
    password: str | None = None,
    image_policy: ImagePolicy = "needed",
    long_side_px: int = 1540,
    run: Runner = sandbox.run,
) -> ParsedDocument:
    """Parse a file in a limited child process. Blocks; call it from a thread that lives until it returns.

    A page on which the child dies is tried once more in a fresh child, then marked as failed; the others are kept. So
    is a page that hangs or wants too much memory, at once. A child that crashes twice before any page rejects the file.

    Args:
        path: The file; only read.
        media_type: What ``documents.sniff`` said.
        limits: What the parse may take.
        workdir: An empty folder; the page images are left in it.
        password: For encrypted files.
        image_policy: ``needed`` renders pages whose own text can't be believed or that show figures; ``all`` each one.
        long_side_px: Page images are fitted to this.
        run: Starts a child and yields its events.

    Raises:
        RejectedInput: The file can't be taken: ``password_required``, ``corrupt``, ``unsafe``, ``unsupported`` or
            ``too_large``.
        ChildDied: The child was killed or left without telling on which page; the unit's lease counts as lost.
        ServiceUnavailable: The folder's disk is full.
        OSError: The file or the folder can't be used.
    """
    size = path.stat().st_size
    if size > limits.max_bytes:
        raise RejectedInput("too_large", f"{size} bytes; limits.max_bytes = {limits.max_bytes}")
    job = Job(path.resolve(), media_type, limits, workdir.resolve(), password, image_policy, long_side_px)
    progress = _Progress()
    deadline = time.monotonic() + limits.parse_seconds
    while not progress.ended:
        _run_child(run, job, progress, deadline)
        bad = sum(page.failure is not None for page in progress.pages.values())
        if bad > _MAX_BAD_PAGES:
            raise RejectedInput("corrupt", f"more than {_MAX_BAD_PAGES} pages can't be parsed")
        if progress.next_page > progress.count > 0:
            break
        job = replace(job, first_page=progress.next_page)
    pages = tuple(progress.pages[number] for number in sorted(progress.pages))
    return ParsedDocument(media_type, progress.title, pages)


def _run_child(run: Runner, job: Job, progress: _Progress, deadline: float) -> None:
    """Let one child go on with the document; returns when it ended, or when a page ended it."""
    share_s = min(_PAGE_SHARE * job.limits.parse_seconds, _PAGE_MAX_S)
    # Each page that hangs leaves the next one less, so that they can't take all the time together.
    silence_s = max(share_s / 2**progress.stuck, _PAGE_MIN_S)
    try:
        for event in run(job, seconds=max(0.0, deadline - time.monotonic()), silence_s=silence_s):
            progress.take(event)
    except sandbox.PageStuck as exc:
        if progress.current is None:
            raise RejectedInput("unsafe", f"nothing was parsed for {exc.seconds:.0f} s") from exc
        progress.stuck += 1
        progress.fail_current("unsafe", f"was not parsed within {exc.seconds:.0f} s")
    except sandbox.OutOfMemory as exc:
        if progress.current is None:
            raise
        progress.fail_current(exc.kind, exc.detail)
    except ChildDied as exc:
        _take_death(progress, exc)
    else:
        if not progress.ended:
            raise ChildDied("exited", "it stopped before the end of the file")


def _take_death(progress: _Progress, death: ChildDied) -> None:
    """Perhaps it was killed from outside: the same once more in a new child, and then the page, or the file, is it."""
    if progress.current is not None:
        if progress.current == progress.suspect:
            progress.fail_current("corrupt", f"ends the parser ({death.kind}: {death.detail})")
        else:
            progress.suspect, progress.current = progress.current, None
        return
    if death.kind != "crashed":
        raise death
    if progress.crashed_at_once:
        raise RejectedInput("corrupt", f"it ends the parser ({death.detail})") from death
    progress.crashed_at_once = True
