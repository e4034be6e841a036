"""Every behaviour that broke other systems has a test that names it: ``@pytest.mark.behaviour(9)``.

Read from the sources, so that the check costs nothing and needs no services.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

BEHAVIOURS = {
    1: "comments keep a connection busy: the first content's timer is not reset by them",
    2: "a first chunk that comes too late: an error at the limit, and the socket closed then",
    3: "a target that accepts and stays silent for ever",
    4: "an error after headers and a role chunk: a switch, and one clean answer",
    5: "an end without a finish_reason: partial, and nothing stored",
    6: "a stall after content: a streamed call raises once and calls nobody, a collected one switches",
    7: "an empty 200 is no answer; tool calls alone are one, and emptiness where it is allowed",
    8: "a cooldown is never shortened",
    9: "A cools; another process skips it on its very next call",
    10: "fifty workers at expiry: one probe, the others on the fallback",
    11: "the prober is killed: another probes after its lease",
    12: "the late success of an old call leaves the breaker open",
    13: "one target, an outage of a minute, eleven requests: four calls at most",
    14: "a tenant's deadline of a millisecond, ten times: no cooldown",
    15: "a cancelled call: no failure, and its permit back",
    16: "Retry-After 1, 2, 4: waits of 1, 2, 4",
    17: "two targets of one quota group cool together",
    18: "three targets twice with four attempts: exactly four calls, inside the deadline",
    19: "an exhausted budget: the paid fallback is skipped, and the reason kept",
    20: "a request that is too long for a target skips it by contract",
    21: "permits return to none after an end, an error, a cancellation and a SIGKILL",
    22: "a cut after tokens, then success elsewhere: two rows, costs added up",
    23: "a paused Redis costs a call no more than the bound",
    24: "every public error survives a pickle round trip",
    25: "the primary's model name is never sent to a fallback",
    26: "a bad key, an empty balance and a retired model as 400 have their own kinds",
    27: "Retry-After is read exactly; zero, the past and nonsense mean the ordinary cooldown",
    28: "a kill switch thrown in mid-stream: no second target after it",
    29: "a paid fallback that answered badly is not paid again for that input after a park",
    30: "a slow stream that began before the deadline is not cut by it",
    31: "our own bug cools nobody",
    32: "a login page with status 200 cools its target after five inputs",
    33: "a flush of Redis switches no target back on",
    34: "a redirect to another host carries no key",
    35: "two installations on one Redis do not see each other",
}
OF_A_FLEET = frozenset({9, 10, 11, 21, 23})
"""Those that only real processes over a real Redis show: they need a test in ``tests/fault``."""


@cache
def claims() -> dict[int, tuple[str, ...]]:
    """The tests that name each behaviour, as ``path::name``."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.behaviour" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in _numbers(node):
                    found[number].append(f"{path.relative_to(TESTS).as_posix()}::{node.name}")
    return {number: tuple(tests) for number, tests in found.items()}


def _numbers(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.behaviour":
            yield from (ast.literal_eval(argument) for argument in decorator.args)


@pytest.mark.parametrize("number", BEHAVIOURS)
def test_every_behaviour_has_a_test_that_names_it(number: int) -> None:
    assert claims().get(number), f"no test is marked behaviour({number}): {BEHAVIOURS[number]}"


@pytest.mark.parametrize("number", sorted(OF_A_FLEET))
def test_what_only_a_fleet_shows_is_shown_by_real_processes(number: int) -> None:
    tests = claims().get(number, ())
    assert [test for test in tests if test.startswith("fault/")], f"only {tests} show: {BEHAVIOURS[number]}"


def test_no_test_names_a_behaviour_that_there_is_not() -> None:
    assert set(claims()) <= set(BEHAVIOURS)
