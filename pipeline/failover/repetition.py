"""A text that goes round in circles: what a model does that has lost its way, and what some honest pages do."""

from __future__ import annotations

__all__ = ["RepetitionGuard", "repeats"]


class RepetitionGuard:
    """Notices a model that repeats itself for ever: the last characters are one short text over and over.

    Looks at the tail only, once for each ``CHECK_EVERY`` characters, so its cost does not grow with the answer.
    Rows of an empty table or a dotted line stay below ``SPAN``.
    """

    CHECK_EVERY = 1024
    SPAN = 4096
    MAX_PERIOD = 1024
    MIN_REPEATS = 8
    _PROBE = 24

    def __init__(self) -> None:
        self._tail = ""
        self._fresh: list[str] = []
        self._fresh_chars = 0

    def feed(self, text: str) -> bool:
        """Take the next piece; True when the answer has become a repetition."""
        self._fresh.append(text)
        self._fresh_chars += len(text)
        if self._fresh_chars < self.CHECK_EVERY:
            return False
        window = max(self.SPAN, self.MAX_PERIOD * self.MIN_REPEATS)
        self._tail = (self._tail + "".join(self._fresh))[-window:]
        self._fresh.clear()
        self._fresh_chars = 0
        return self._repeats()

    def _repeats(self) -> bool:
        tail = self._tail
        before = tail.rfind(tail[-self._PROBE :], 0, len(tail) - 1)
        if before < 0:
            return False
        period = len(tail) - self._PROBE - before
        span = max(self.SPAN, period * self.MIN_REPEATS)
        if period > self.MAX_PERIOD or len(tail) < span:
            return False
        tail = tail[-span:]
        return tail[period:] == tail[:-period]


def repeats(text: str) -> bool:
    """Whether a text has a stretch that an answer would be ended for."""
    guard, piece = RepetitionGuard(), RepetitionGuard.CHECK_EVERY
    return any(guard.feed(text[at : at + piece]) for at in range(0, len(text), piece))
