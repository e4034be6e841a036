from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest

from pipeline.config.load import ConfigProblems
from pipeline.documents.sandbox import OutOfMemory
from pipeline.domain import errors
from pipeline.domain.call import Outcome, Skip, SkipReason, TryRecord
from pipeline.domain.errors import TidegateError
from worker.tasks import SliceFailed, SliceParked

TRIES = (TryRecord("a@host", 0, Outcome.FAILED, "connect", 503, "busy"),)
SKIPS = (Skip("b@host", SkipReason.COOLING, 1030.0, "rate_limit"),)
EXAMPLES: tuple[TidegateError, ...] = (
    errors.UsageError("there is no target 'x'", "list them"),
    errors.ConfigError("no such file"),
    ConfigProblems(("tidegate.yaml:1: one", "tidegate.yaml:2: two")),
    errors.ServiceUnavailable("Redis does not answer", "start it"),
    errors.RejectedInput("corrupt", "it has no pages"),
    OutOfMemory("unsafe", "it wanted more than 1,024 MB"),
    errors.ChildDied("killed", "by signal 9"),
    errors.ResultGone("a page image was swept", "it is parsed again"),
    errors.ChainExhausted("vlm", TRIES, SKIPS, 1030.0, True),
    errors.Draining("vlm"),
    errors.PermitWaitExceeded("vlm", "a@host", 60.0),
    errors.PartialStreamError("a@host", "partial_stream", "cut"),
    errors.DeadlineExceeded("vlm", 5.0, TRIES, SKIPS),
    errors.UpstreamFailure("rate_limit", "busy", 429, 1.5, {"code": "x"}),
    SliceFailed("document 1: corrupt"),
    SliceParked("document 1: its models are away"),
)


def subclasses(of: type[TidegateError]) -> Iterator[type[TidegateError]]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def _pickled(error: TidegateError) -> TidegateError:
    again: TidegateError = pickle.loads(pickle.dumps(error))  # noqa: S301
    return again


def test_every_public_error_is_among_the_examples() -> None:
    public = {each for each in subclasses(TidegateError) if not each.__name__.startswith("_")}
    ours = {each for each in public if each.__module__.startswith(("pipeline.", "worker."))}
    assert ours == {type(error) for error in EXAMPLES}


@pytest.mark.behaviour(24)
@pytest.mark.parametrize("again", [_pickled, copy.copy], ids=["pickle", "copy"])
@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_public_error_survives_a_pickle_round_trip(
    error: TidegateError, again: Callable[[TidegateError], TidegateError]
) -> None:
    found = again(error)
    assert type(found) is type(error)
    assert vars(found) == vars(error)
    assert (str(found), found.args, found.exit_code) == (str(error), error.args, error.exit_code)
