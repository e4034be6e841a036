"""Rules: which call gets which act, and for how long."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from tests.upstream.act import Act


class Rule(BaseModel):
    """Acts for the calls that match, until used up, out of time or cleared.

    A call matches when every condition given holds. `do` is one act, which then lasts, or a sequence, of which each
    matching call takes the next; a sequence that is used up no longer matches, unless `cycle`. `calls` limits how many
    calls the rule serves in all, `seconds` how long from the moment it was added, `from_s` when it begins.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    do: tuple[Act, ...]
    model: str = "*"
    path: str = "*"
    authorization: str | None = None
    prompt_contains: str | None = None
    stream: bool | None = None
    in_flight_above: int | None = None
    input_tokens_above: int | None = None
    calls: int | None = None
    cycle: bool = False
    from_s: float = 0.0
    seconds: float | None = None

    @field_validator("do", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        many = isinstance(value, Sequence) and not isinstance(value, str)
        return value if many else [value]

    @property
    def limit(self) -> int | None:
        """How many calls it serves at most."""
        if self.calls is None and len(self.do) > 1 and not self.cycle:
            return len(self.do)
        return self.calls


@dataclass(frozen=True)
class Question:
    """What is known of a call when its rule is looked for. `in_flight` counts the call itself."""

    model: str
    path: str
    authorization: str | None
    prompt: str
    stream: bool
    in_flight: int
    input_tokens: int


@dataclass
class _Entry:
    rule: Rule
    since: float
    used: int = 0


def _matches(rule: Rule, asked: Question) -> bool:
    return (
        fnmatchcase(asked.model, rule.model)
        and fnmatchcase(asked.path, rule.path)
        and (rule.authorization is None or fnmatchcase(asked.authorization or "", rule.authorization))
        and (rule.prompt_contains is None or rule.prompt_contains in asked.prompt)
        and (rule.stream is None or rule.stream == asked.stream)
        and (rule.in_flight_above is None or asked.in_flight > rule.in_flight_above)
        and (rule.input_tokens_above is None or asked.input_tokens > rule.input_tokens_above)
    )


@dataclass
class Script:
    """The rules of one host. Of those that match, the one added last wins. Safe to use from several threads."""

    _entries: list[_Entry] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *rules: Rule) -> None:
        now = monotonic()
        with self._lock:
            self._entries.extend(_Entry(rule, now) for rule in rules)

    def clear(self, model: str | None = None) -> None:
        """Forget all rules, or those written for exactly this model."""
        with self._lock:
            self._entries = [] if model is None else [e for e in self._entries if e.rule.model != model]

    def pick(self, asked: Question) -> Act:
        """Take the act for this call; an ordinary answer when no rule matches."""
        now = monotonic()
        with self._lock:
            for entry in reversed(self._entries):
                rule, age = entry.rule, now - entry.since
                over = rule.limit is not None and entry.used >= rule.limit
                late = rule.seconds is not None and age > rule.from_s + rule.seconds
                if over or late or age < rule.from_s or not _matches(rule, asked):
                    continue
                act = rule.do[entry.used % len(rule.do)]
                entry.used += 1
                return act
        return Act()

    def describe(self) -> list[dict[str, Any]]:
        """The rules in order, with how often each was used."""
        with self._lock:
            return [e.rule.model_dump(mode="json", exclude_defaults=True) | {"used": e.used} for e in self._entries]
