"""What the parse child is asked, what it reports, and how both cross the pipe: one JSON object a line.

JSON with ASCII escapes, so that lone surrogates survive; never pickle, because the child reads hostile files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.domain.document import Limits, PageFile, ParsedPage, TextFormat, TextQuality
from pipeline.domain.errors import Failure, RejectedInput

__all__ = [
    "Begun",
    "Ended",
    "Event",
    "Job",
    "Member",
    "Opened",
    "PutOff",
    "Reader",
    "Rejected",
    "from_line",
    "job_from_line",
    "rejected",
    "to_line",
]


@dataclass(frozen=True, slots=True)
class Job:
    """One parse.

    Attributes:
        images: ``needed`` renders only pages whose text can't be believed or that show figures; ``all`` every page.
        workdir: Where page images are written; it exists and is empty at the start.
        long_side_px: Page images are fitted to this.
        first_page: 1-based; above 1 when an earlier child died on the page before.
    """

    path: Path
    media_type: str
    limits: Limits
    workdir: Path
    password: str | None = None
    images: str = "needed"
    long_side_px: int = 1540
    first_page: int = 1


@dataclass(frozen=True, slots=True)
class Opened:
    """The file is of its kind, and this is how many pages it has and what it calls itself."""

    pages: int
    title: str | None


@dataclass(frozen=True, slots=True)
class Begun:
    """Page ``number`` is being read: if nothing follows, that page is to blame."""

    number: int


@dataclass(frozen=True, slots=True)
class Member:
    """A file that a container holds, written to the work folder as ``{number}{suffix}``, or why it was not.

    Attributes:
        number: 1-based, its place in the container.
        name: What the container calls it, ``/`` between its parts; never a path to write to.
        suffix: Letters and digits after a dot, or nothing.
        problem: The kind and the detail of the ``RejectedInput`` that befell it; None when it was written.
    """

    number: int
    name: str
    suffix: str
    size_bytes: int
    problem: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """The file can't be taken."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class PutOff:
    """The file can't be read now, through no fault of its own: the parent raises ``ServiceUnavailable`` with this."""

    fact: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Everything has been said; ``title`` is the first heading where the file names none."""

    title: str | None = None


Event = Opened | Begun | ParsedPage | Member | Rejected | PutOff | Ended
Reader = Callable[[Job], Iterator[Event]]

_NAMES: dict[type, str] = {
    Job: "job",
    Opened: "opened",
    Begun: "begun",
    ParsedPage: "page",
    Member: "member",
    Rejected: "rejected",
    PutOff: "put_off",
    Ended: "ended",
}


def to_line(message: Event | Job) -> bytes:
    """Write a message as one line."""
    body = {_NAMES[type(message)]: asdict(message)}
    return json.dumps(body, ensure_ascii=True, default=str, separators=(",", ":")).encode("ascii") + b"\n"


def from_line(line: bytes) -> Event:
    """Read one line that the child wrote.

    Raises:
        ValueError: It is no such line.
    """
    try:
        ((name, body),) = json.loads(line).items()
        return _READ[name](body)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        msg = f"not a line of a parse child: {line[:80]!r}"
        raise ValueError(msg) from exc


def job_from_line(line: bytes) -> Job:
    """Read the one line that the child is sent."""
    body = json.loads(line)["job"]
    body["path"], body["workdir"] = Path(body["path"]), Path(body["workdir"])
    return Job(**{**body, "limits": Limits(**body["limits"])})


def _page(body: dict[str, Any]) -> ParsedPage:
    image, failure = body.pop("image"), body.pop("failure")
    text_format, text_quality = TextFormat(body.pop("text_format")), TextQuality(body.pop("text_quality"))
    return ParsedPage(
        **body,
        text_format=text_format,
        text_quality=text_quality,
        image=PageFile(**{**image, "path": Path(image["path"])}) if image else None,
        failure=Failure(**failure) if failure else None,
    )


def _member(body: dict[str, Any]) -> Member:
    problem = body.pop("problem")
    return Member(**body, problem=(str(problem[0]), str(problem[1])) if problem else None)


_READ: dict[str, Callable[[dict[str, Any]], Event]] = {
    "opened": lambda body: Opened(**body),
    "begun": lambda body: Begun(**body),
    "page": _page,
    "member": _member,
    "rejected": lambda body: Rejected(**body),
    "put_off": lambda body: PutOff(**body),
    "ended": lambda body: Ended(**body),
}


def rejected(error: RejectedInput) -> Rejected:
    """The event that carries a ``RejectedInput`` over the pipe."""
    return Rejected(error.kind, error.detail)
