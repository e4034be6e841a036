"""The files that parts write their output to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["open_log", "rotate", "tail", "trim"]

MAX_BYTES = 20 * 1024 * 1024
KEPT = 3
_TAIL_BYTES = 16 * 1024


def open_log(path: Path, max_bytes: int = MAX_BYTES) -> int:
    """Rotate the log if it has grown, and open it for appending.

    Returns:
        A descriptor, not inheritable. The file is private to its owner.
    """
    rotate(path, max_bytes)
    # No link is followed: root may write into a folder that somebody else owns.
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def rotate(path: Path, max_bytes: int = MAX_BYTES) -> bool:
    """Rename ``x.log`` to ``x.log.1`` and so on once it is over ``max_bytes``; the oldest is dropped."""
    if _size(path) <= max_bytes:
        return False
    _shift(path)
    path.rename(_numbered(path, 1))
    return True


def trim(path: Path, max_bytes: int = MAX_BYTES) -> bool:
    """The same for a log whose writer can't be asked to open another file: copy, then empty.

    Writers append, so they go on at the new end. A line written between the two steps is lost.
    """
    if _size(path) <= max_bytes or path.is_symlink():
        return False
    _shift(path)
    shutil.copyfile(path, _numbered(path, 1))
    _numbered(path, 1).chmod(0o600)
    os.truncate(path, 0)
    return True


def tail(path: Path, lines: int = 5) -> list[str]:
    """The last lines that hold anything; none when the file can't be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, _size(path) - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]


def _shift(path: Path) -> None:
    for number in range(KEPT, 1, -1):
        older, newer = _numbered(path, number), _numbered(path, number - 1)
        if newer.exists():
            newer.replace(older)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
