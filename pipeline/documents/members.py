"""What a container's member is called, and which are left out: shared by every kind of container."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.documents.job import Job
from pipeline.domain.errors import RejectedInput

__all__ = ["Found", "allowance", "file_name", "found", "is_hidden", "plain_name", "unlike"]

# Below this, any ratio is harmless: tables of numbers pack a hundredfold.
_FREE_BYTES = 32 << 20
_DRIVE = re.compile(r"[A-Za-z]:/")


@dataclass(frozen=True, slots=True)
class Found:
    """A member before it is written.

    Attributes:
        name: As the container has it, ``/`` between its parts.
        size_bytes: What the container says; 0 where it says nothing.
        pieces: Its bytes, read when they are asked for; ``RejectedInput`` where they can't be.
        problem: Why it must not be written at all.
    """

    name: str
    size_bytes: int
    pieces: Iterable[bytes]
    problem: RejectedInput | None = None


def allowance(job: Job) -> tuple[int, str]:
    """The bytes that may come out of a container, and what to say of one that holds more."""
    most, ratio = job.limits.max_archive_bytes, job.limits.max_inflate_ratio
    by_ratio = max(_FREE_BYTES, job.path.stat().st_size * ratio)
    if by_ratio < most:
        return by_ratio, f"it inflates to far more than its size (limits.max_inflate_ratio = {ratio})"
    return most, "it holds more bytes than limits.max_archive_bytes allows"


def found(name: str, size_bytes: int, pieces: Iterable[bytes], problem: RejectedInput | None = None) -> Found | None:
    """A member under its plain name, or with what is wrong with that; None for a hidden one, as in a folder."""
    try:
        plain = plain_name(name)
    except RejectedInput as exc:
        return Found(name or "(no name)", size_bytes, (), exc)
    return None if is_hidden(plain) else Found(plain, size_bytes, pieces, problem)


def plain_name(name: str) -> str:
    """A member's path without empty and ``.`` parts.

    Raises:
        RejectedInput: ``unsafe``: it is absolute, or has ``..`` in it. ``corrupt``: nothing is left of it.
    """
    if name.startswith("/") or _DRIVE.match(name):
        raise RejectedInput("unsafe", "its name is an absolute path")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise RejectedInput("unsafe", "its name leads out of the archive")
    if not parts:
        raise RejectedInput("corrupt", "it has no name")
    return "/".join(parts)


def is_hidden(plain: str) -> bool:
    """Whether a member is left out: dot files, and what macOS adds to its archives."""
    parts = plain.split("/")
    return parts[0] == "__MACOSX" or any(part.startswith(".") for part in parts)


def file_name(name: str) -> str:
    """The last part of a name that a mail gives its attachment: some programs write whole paths."""
    return " ".join(name.replace("\\", "/").replace("\0", "").rstrip("/").rpartition("/")[2].split())


def unlike(name: str, names: set[str]) -> str:
    """The name, or where it is taken the name with a number before its suffix."""
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    own, number = name, 1
    while own in names:
        number += 1
        own = f"{stem} ({number}){dot}{suffix}"
    return own
