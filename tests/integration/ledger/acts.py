"""What may come of a job instead of its result: busy models, refusals, deaths, bugs."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.domain.call import Outcome, TryRecord
from pipeline.domain.errors import ChainExhausted, ChildDied, PermitWaitExceeded, RejectedInput, ServiceUnavailable
from pipeline.domain.unit import MODEL_STAGES, Stage
from pipeline.failover.kinds import FailureKind
from tests.integration.ledger.actors import Killed
from tests.integration.ledger.harness import exhausted

__all__ = ["FATAL", "Injected", "outcome"]


class Injected(Exception):
    """A bug of ours, as it were."""


def _paid_for_nothing(stage: Stage, until: float | None) -> BaseException:
    """Busy in the end, after an answer that was paid for and of no use."""
    record = TryRecord("primary@there", 0, Outcome.FAILED, kind=FailureKind.OVERLOADED.value, message="no", ttft_s=0.1)
    return ChainExhausted(stage.value, (record,), (), until, True)


def _rejected(stage: Stage, _until: float | None) -> BaseException:
    if stage in MODEL_STAGES:
        return exhausted(stage.value, kind=FailureKind.CONTENT_POLICY)
    return RejectedInput("corrupt", "no")


_ANYWHERE: dict[str, Callable[[Stage, float | None], BaseException]] = {
    "killed": lambda stage, until: Killed(),
    "away": lambda stage, until: ServiceUnavailable("the blob store does not answer", "it comes back"),
    "bug": lambda stage, until: Injected("a bug"),
    "rejected": _rejected,
}
_MODELS = _ANYWHERE | {
    "permit": lambda stage, until: PermitWaitExceeded(stage.value, "primary@there", 60.0),
    "busy": lambda stage, until: exhausted(stage.value, retry_at=until),
    "paid": _paid_for_nothing,
}
_OURS = _ANYWHERE | {"died": lambda stage, until: ChildDied("killed", "by signal 9")}

FATAL: dict[str, frozenset[str]] = {
    "paid": frozenset({"max_calls"}),
    "rejected": frozenset({"corrupt", FailureKind.CONTENT_POLICY.value}),
    "bug": frozenset({FailureKind.INTERNAL.value}),
}
"""The kinds by which an act may fail a unit."""


def outcome(act: str, stage: Stage, until: float | None) -> BaseException | None:
    """What a job raises; None when it has its result after all.

    Args:
        until: When a busy chain says that it is back, in seconds since the epoch.
    """
    make = (_MODELS if stage in MODEL_STAGES else _OURS).get(act)
    return None if make is None else make(stage, until)
