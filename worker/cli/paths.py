"""Documents' paths for people: as short as where they stand allows."""

from __future__ import annotations

import os

__all__ = ["near"]


def near(path: str) -> str:
    """A path relative to the working folder where it lies inside it, else as it is."""
    try:
        here = os.getcwd()
    except OSError:  # the folder was removed under us
        return path
    inside = here.rstrip("/") + "/"
    return path[len(inside) :] if path.startswith(inside) else path
