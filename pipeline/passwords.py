"""Which password opens which document, from a file of lines: never shown, logged or stored in a row."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from pipeline.domain.errors import UsageError
from pipeline.sources import why_unreadable

__all__ = ["Passwords", "read_passwords"]

_MAX_BYTES = 16 << 20
_FORMAT = "a line is a file's name or a pattern, a tab or ':', and the password"


@dataclass(frozen=True, slots=True)
class Passwords:
    """The passwords of one enqueue.

    Attributes:
        lines: Names or patterns with their passwords; the first that fits counts, a plain name before any pattern.
        default: For what no line fits; None for none.
        exposed: Whether others than the file's owner can read it.
    """

    lines: Sequence[tuple[str, str]] = field(default=(), repr=False)
    default: str | None = field(default=None, repr=False)
    exposed: bool = False

    def __bool__(self) -> bool:
        return bool(self.lines) or self.default is not None

    def of(self, uri: str) -> str | None:
        """The password of a document; None where nobody gave one.

        A name or pattern without ``/`` is held against the last part of the uri, any other against all of it or its
        end.
        """
        for fits in (_is_name, _is_pattern):
            for name, password in self.lines:
                if fits(name, uri):
                    return password
        return self.default


def read_passwords(path: Path, default: str | None = None) -> Passwords:
    """Read a password file: ``name-or-pattern<TAB or :>password`` a line; empty lines and ``#`` lines are left out.

    Raises:
        UsageError: It can't be read, or a line is off; the text never holds what the line says.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        exposed = bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError as error:
        raise UsageError(f"the password file {str(path)!r} can't be read: {why_unreadable(error)}", _FORMAT) from error
    if len(data) > _MAX_BYTES:
        raise UsageError(f"the password file {str(path)!r} is larger than {_MAX_BYTES:,} bytes", _FORMAT)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"the password file {str(path)!r} is not in UTF-8", "save it as UTF-8") from None
    lines: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        said = line.removesuffix("\r")
        if not said.strip() or said.startswith("#"):
            continue
        name, separator, password = said.partition("\t" if "\t" in said else ":")
        if not (separator and name.strip() and password):
            raise UsageError(f"line {number} of the password file {str(path)!r} has no name or no password", _FORMAT)
        lines.append((name.strip(), password))
    return Passwords(lines, default, exposed)


def _is_name(name: str, uri: str) -> bool:
    return uri == name or uri.endswith("/" + name.removeprefix("./"))


def _is_pattern(pattern: str, uri: str) -> bool:
    if "/" not in pattern:
        return fnmatchcase(uri.rpartition("/")[2], pattern)
    return fnmatchcase(uri, pattern) or fnmatchcase(uri, "*/" + pattern.removeprefix("./"))
