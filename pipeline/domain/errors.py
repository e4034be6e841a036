"""Tidegate's errors, by what the caller does about them.

    TidegateError
    ├── UsageError            the command's words are off                          exit 2
    ├── ConfigError           the configuration is off                             exit 3
    ├── ServiceUnavailable    Postgres or Redis is not reachable                   exit 4
    ├── RejectedInput         this document (or page) can't be taken, ever         unit failed
    ├── ChildDied             the parse child died under it                        one lost lease, then poison
    ├── ResultGone            what a unit made vanished before its commit          give the unit back
    ├── ChainExhausted        no target answered                                   park, or fail if not retryable
    ├── Draining              this process is about to end                         give the unit back
    ├── PermitWaitExceeded    the target stayed full                               give the unit back
    ├── PartialStreamError    content had reached the caller when the stream died  the caller decides
    ├── DeadlineExceeded      the caller's own deadline ended the call             stop
    └── UpstreamFailure       one call to one target failed                        never leaves the failover core

Every class keeps all its constructor's arguments in ``args`` so that it survives pickling; the text is built in
``__str__``. A message gives the fact, the value and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.domain.call import Skip, TryRecord

__all__ = [
    "ChainExhausted",
    "ChildDied",
    "ConfigError",
    "DeadlineExceeded",
    "Draining",
    "Failure",
    "PartialStreamError",
    "PermitWaitExceeded",
    "RejectedInput",
    "ResultGone",
    "ServiceUnavailable",
    "TidegateError",
    "UpstreamFailure",
    "UsageError",
]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run, a page or a unit ended as failed: a machine-readable kind and a line for people."""

    kind: str
    detail: str


class TidegateError(Exception):
    """Base of every error that Tidegate raises on purpose."""

    exit_code = 1


class _Stated(TidegateError):
    """An error that is a fact and, where there is one, a remedy."""

    def __init__(self, fact: str, remedy: str = "") -> None:
        super().__init__(fact, remedy)
        self.fact = fact
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.fact}\n{self.remedy}" if self.remedy else self.fact


class UsageError(_Stated):
    """The command cannot be carried out as it was worded."""

    exit_code = 2


class ConfigError(_Stated):
    """A configuration key, value or combination is wrong; the fact names the file, the key and the value."""

    exit_code = 3


class ServiceUnavailable(_Stated):
    """A service that the command needs does not answer; the remedy names the command that starts it."""

    exit_code = 4


class RejectedInput(TidegateError):
    """This input can't be processed by anyone: it is locked, corrupt, hostile, unsupported or too large."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"

    @property
    def failure(self) -> Failure:
        return Failure(self.kind, self.detail)


class ResultGone(_Stated):
    """What a unit made outside the database vanished before it was committed: the unit is done again."""


class ChildDied(TidegateError):
    """The process that parsed a document died before it had said anything useful; its lease counts as lost.

    Attributes:
        kind: ``crashed`` (a signal from its own code), ``killed`` (SIGKILL from outside) or ``exited``.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"the parse process {self.kind}: {self.detail}"


class ChainExhausted(TidegateError):
    """No target of a chain answered.

    Attributes:
        role: The role whose chain it was.
        tries: One record for each call made, in order.
        skipped: Targets that were left out since the last call, with reasons.
        retry_at: Soonest recovery, seconds since the epoch on the registry's clock; None when it is unknown.
        retryable: True when any target was busy, cooling, probing, disabled or over budget.
    """

    def __init__(
        self,
        role: str,
        tries: tuple[TryRecord, ...],
        skipped: tuple[Skip, ...],
        retry_at: float | None,
        retryable: bool,
    ) -> None:
        super().__init__(role, tries, skipped, retry_at, retryable)
        self.role = role
        self.tries = tries
        self.skipped = skipped
        self.retry_at = retry_at
        self.retryable = retryable

    def __str__(self) -> str:
        tried = ", ".join(f"{t.target} {t.kind}" for t in self.tries if t.kind)
        left_out = ", ".join(f"{s.target} {s.reason}" for s in self.skipped)
        parts = [f"no target of {self.role} answered"]
        if tried:
            parts.append(f"tried: {tried}")
        if left_out:
            parts.append(f"skipped: {left_out}")
        return "; ".join(parts)


class Draining(TidegateError):
    """This process is about to end, and begins no more tries. Nothing failed; the unit goes back."""

    def __init__(self, role: str) -> None:
        super().__init__(role)
        self.role = role

    def __str__(self) -> str:
        return f"no more calls of {self.role} are begun here"


class PermitWaitExceeded(TidegateError):
    """A target was at its ``max_parallel`` for all of ``permit_wait_max_s``: healthy, but full.

    Nothing failed; the unit goes back to where it came from and is tried again later.
    """

    retryable = True

    def __init__(self, role: str, target: str, waited_s: float) -> None:
        super().__init__(role, target, waited_s)
        self.role = role
        self.target = target
        self.waited_s = waited_s

    def __str__(self) -> str:
        return f"{self.target!r} was full for the {self.waited_s:g} s that a call of {self.role} may wait"


class PartialStreamError(TidegateError):
    """A stream died after content had reached the caller; nothing was switched."""

    def __init__(self, target: str, kind: str, detail: str) -> None:
        super().__init__(target, kind, detail)
        self.target = target
        self.kind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"the stream of {self.target!r} ended before the answer did ({self.kind}): {self.detail}"


class DeadlineExceeded(TidegateError):
    """The caller's deadline ended the call; it is held against no target.

    Attributes:
        tries: One record for each call made, in order.
        skipped: Targets that were left out since the last call, with reasons.
    """

    def __init__(
        self, role: str, deadline_s: float, tries: tuple[TryRecord, ...] = (), skipped: tuple[Skip, ...] = ()
    ) -> None:
        super().__init__(role, deadline_s, tries, skipped)
        self.role = role
        self.deadline_s = deadline_s
        self.tries = tries
        self.skipped = skipped

    def __str__(self) -> str:
        return f"the call of {self.role} did not end within its deadline of {self.deadline_s:g} s"


class UpstreamFailure(TidegateError):
    """One call to one target failed; providers raise it, the failover core reads it.

    Attributes:
        kind: A value of ``FailureKind``.
        message: Redacted and shortened; never a prompt or an output.
        status: The HTTP status, where there was one.
        retry_after_s: What the upstream asked for, in seconds; None when it said nothing usable.
    """

    def __init__(
        self,
        kind: str,
        message: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
        details: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(kind, message, status, retry_after_s, details)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s
        self.details = dict(details or {})

    def __str__(self) -> str:
        code = f" {self.status}" if self.status else ""
        return f"{self.kind}{code}: {self.message}"
