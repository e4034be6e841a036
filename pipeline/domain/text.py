"""Text that can be stored and sent anywhere: valid UTF-8, no NUL, no stray controls."""

from __future__ import annotations

import re

__all__ = ["safe_text"]

# C0 controls except tab, newline and carriage return; DEL; lone surrogates; the two non-characters at the plane's end.
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_DROPPED = dict.fromkeys([*range(0x20), 0x7F])


def safe_text(text: str) -> str:
    """Make text storable in Postgres and encodable as UTF-8.

    Controls are dropped (a form feed becomes a newline); a lone surrogate becomes U+FFFD, so that what was lost shows.
    A surrogate *pair* that arrived as two code units is put back together.
    """
    if not _UNSAFE.search(text):
        return text
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _UNSAFE.sub(_replacement, whole)


def _replacement(match: re.Match[str]) -> str:
    char = match.group()
    if char == "\x0c":
        return "\n"
    return "" if ord(char) in _DROPPED else "\ufffd"
