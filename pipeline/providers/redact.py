"""What may be kept of a provider's words: no prompt, no output, no secret, and not much of it.

Providers echo the request back in their errors, whole or in part, escaped or re-cased, so everything that also occurs
in the request's texts is taken out before an error is classified, stored or shown. Classifying the cleaned text means
that a page which happens to say "invalid API key" can't make a healthy target look misconfigured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pydantic import SecretStr

from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest, EmbedRequest
from pipeline.providers.payload import request_texts

__all__ = ["MAX_MESSAGE_CHARS", "Redactor", "redactor_of"]

MAX_MESSAGE_CHARS = 300
_MAX_READ_CHARS = 4_000
# 16 characters of ordinary text hold about this many letters and digits, and only those are compared.
_MIN_RUN = 12
_GRAM = 7  # every run of 12 holds an aligned window of 7 at a stride of 6
_STRIDE = _MIN_RUN - _GRAM + 1
_MIN_WHOLE_TEXT = 6
_GAP = "[…]"

_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})|\\+[nrtbf](?![a-z])|\\+([\"'/])")
_NOT_WORD = re.compile(r"[\W_]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_SPACES = re.compile(r"\s+")
_SECRET_SHAPES = re.compile(
    r"""
      data:[\w./+-]*;base64,[\w+/=]*                                        # an image
    | (?<=://)[^/\s@]*@                                                     # user and password of a URL
    | (?i:\bbearer\s+)(?=\S*\d|\S{20})[\w.~+/=*-]{4,}
    | (?i:\bauthorization\b["']?\s*[=:]\s*["']?)(?:\w+\s+)?[^\s"',;&]{4,}
    | (?i:\b(?:x-api-key|api[_-]?key|access[_-]?token|token|password|secret|signature|sig|key)\b
        ["']?\s*[=:]\s*["']?)(?!\[)[^\s"',;&]{4,}                           # name: value
    | \b(?:sk|pk|rk|gsk|hf|xai|pplx|key|nvapi|ghp|r8)[-_](?=[^\s]*[\d*])[\w*.-]{6,}  # well-known prefixes
    | \bAIza[\w*-]{10,} | \b(?:AKIA|ASIA)[A-Z0-9]{12,} | \beyJ[\w-]{8,}(?:\.[\w-]+)*
    | \b(?=\w*\d)(?=\w*[A-Za-z])\w{32,}                                     # any long token
    """,
    re.VERBOSE,
)


def redactor_of(target: Target, request: ChatRequest | EmbedRequest, secret: SecretStr | None) -> Redactor:
    """For what a target says to a request: it was sent the request's texts, a key, and the target's own params.

    Headers among the params are keys as often as not.
    """
    headers = target.params.get("extra_headers")
    secrets = [] if secret is None else [secret.get_secret_value().strip()]
    return Redactor((*request_texts(request), *_strings(target.params)), (*secrets, *_strings(headers)))


class Redactor:
    """Cleans what a provider said about one request.

    Args:
        texts: Everything the request carried: prompts, page texts, what was embedded.
        secrets: Keys that were sent along.
    """

    def __init__(self, texts: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        self._texts = tuple(texts)
        self._squashed: tuple[str, ...] | None = None  # made when there is something to clean
        self._secrets = tuple(secret for secret in secrets if len(secret) >= 4)

    def clean(self, text: str) -> str:
        """``text`` on one line, without the request's words and without secrets; at most 4,000 characters."""
        for secret in self._secrets:
            text = text.replace(secret, _GAP)
        text = _ESCAPE.sub(_unescape, text[:_MAX_READ_CHARS])
        text = _CONTROL.sub(" ", text)
        text = _SECRET_SHAPES.sub(_GAP, text)
        return _SPACES.sub(" ", self._without_echoes(text)).strip()

    def message(self, *parts: str) -> str:
        """The cleaned ``parts`` that are not empty, joined and cut to ``MAX_MESSAGE_CHARS``."""
        return self.joined(*map(self.clean, parts))

    @staticmethod
    def joined(*cleaned: str) -> str:
        """As ``message``, of parts that are clean already."""
        text = ": ".join(filter(None, cleaned))
        return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"

    def _without_echoes(self, text: str) -> str:
        letters, places = _squash_with_places(text)
        if not letters:
            return text
        echoed = bytearray(len(text))
        if self._squashed is None:
            self._squashed = tuple(map(_squash, self._texts))
        for source in self._squashed:
            for start, end in _common_runs(letters, source):
                for at in range(places[start], places[end - 1] + 1):
                    echoed[at] = 1
        if not any(echoed):
            return text
        kept: list[str] = []
        for at, char in enumerate(text):
            if not echoed[at]:
                kept.append(char)
            elif at == 0 or not echoed[at - 1]:
                kept.append(_GAP)
        return "".join(kept)


def _strings(value: object) -> Iterator[str]:
    """Every text inside a value that came from YAML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return match[2] or " "


def _squash(text: str) -> str:
    return _NOT_WORD.sub("", text).casefold()


def _squash_with_places(text: str) -> tuple[str, list[int]]:
    """The squashed text, and for each of its characters where it stood."""
    letters: list[str] = []
    places: list[int] = []
    for at, char in enumerate(text):
        for folded in _squash(char):
            letters.append(folded)
            places.append(at)
    return "".join(letters), places


def _common_runs(text: str, source: str) -> list[tuple[int, int]]:
    """Spans of ``text`` that also occur in ``source``: runs of ``_MIN_RUN``, or all of a short source."""
    if len(source) < _MIN_RUN:
        if len(source) < _MIN_WHOLE_TEXT:
            return []
        return [(found.start(), found.end()) for found in re.finditer(re.escape(source), text)]
    windows = {text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)}
    grams: dict[str, list[int]] = {}
    for at in range(len(text) - _MIN_RUN + 1):
        grams.setdefault(text[at : at + _MIN_RUN], []).append(at)
    runs: dict[str, list[int]] = {}
    for at in range(0, len(source) - _GRAM + 1, _STRIDE):
        if source[at : at + _GRAM] in windows:
            for begin in range(max(0, at - _STRIDE + 1), at + 1):
                gram = source[begin : begin + _MIN_RUN]
                if gram in grams:
                    runs[gram] = grams[gram]
    return [(start, start + _MIN_RUN) for starts in runs.values() for start in starts]
