"""Making files outlive a crash of the machine: one by one, or all that a file system holds back at once."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

__all__ = ["make_durable"]

_WORTH_A_WHOLE = 32
"""From so many files on, one ``syncfs`` costs less than an ``fsync`` for each (measured: 1,000 in 15 against 350 ms).

Below, it would make a single small file wait for whatever else is being written to that disk.
"""
_SYNCERS = 16
# Before, an error in writing back was not reported (syncfs(2)).
_HONEST_SINCE = (5, 8)


def make_durable(paths: Sequence[str], within: str) -> None:
    """Return once files, or the entries of folders, are on the disk.

    Args:
        paths: Files and folders.
        within: A folder of the file system that holds them all.

    Raises:
        OSError: Something could not be written; what is on the disk is then unknown.
    """
    if len(paths) < _WORTH_A_WHOLE:
        for path in paths:
            _sync(path)
    elif not _sync_file_system(within):
        with ThreadPoolExecutor(_SYNCERS, "fsync") as pool:
            list(pool.map(_sync, paths))


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_file_system(folder: str) -> bool:
    """Sync all that the folder's file system holds back; False where the system can't do that."""
    syncfs = _syncfs()
    if syncfs is None:
        return False
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if syncfs(handle) == 0:
            return True
        code = ctypes.get_errno()
        if code == errno.ENOSYS:
            return False
        raise OSError(code, os.strerror(code))
    finally:
        os.close(handle)


@cache
def _syncfs() -> Callable[[int], int] | None:
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if sys.platform != "linux" or release is None or tuple(map(int, release.groups())) < _HONEST_SINCE:
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return found
