from __future__ import annotations

import pytest

from pipeline.failover.kinds import PRESET_RULES, STANDARD_RULES, Action, Cooldown, FailureKind
from pipeline.failover.target import Chain, Needs, Target
from tests.unit.failover.fakes import target


@pytest.mark.parametrize(
    ("needs", "settings", "unmet"),
    [
        (Needs(modalities=frozenset({"text", "image"})), {}, "no image input"),
        (Needs(json_schema=True), {"json_schema": False}, "no JSON schema"),
        (Needs(tools=True), {"tools": False}, "no tools"),
        (Needs(tokens_out=5000), {"max_output_tokens": 4096}, "output of 5000 tokens above its 4096"),
        (Needs(tokens_in=9000, tokens_out=1), {"context_window": 9000}, "9001 tokens above its window of 9000"),
        (Needs(tokens_in=9000, tokens_out=0, json_schema=True, tools=True), {"context_window": 9000}, None),
    ],
)
def test_a_request_names_the_first_thing_that_a_target_lacks(
    needs: Needs, settings: dict[str, object], unmet: str | None
) -> None:
    assert needs.unmet_by(target("a", **settings)) == unmet


@pytest.mark.parametrize("calls", [0, -1])
def test_a_bound_of_no_calls_is_no_bound_that_a_target_can_have(calls: int) -> None:
    with pytest.raises(ValueError, match=f"max_parallel is {calls}"):
        target("a", max_parallel=calls)


def test_a_chains_primary_is_its_first_target() -> None:
    chain = Chain("vlm", (target("a"), Target("ocr@host", "ocr", "local/ocr")))
    assert chain.primary.provider == "openai"
    assert not chain.primary.is_local
    assert chain.targets[1].is_local


def test_every_failure_kind_has_a_row_in_every_preset() -> None:
    for rules in PRESET_RULES.values():
        assert set(rules) == set(FailureKind)


def test_what_the_caller_or_our_own_code_caused_never_cools_in_any_preset() -> None:
    for rules in PRESET_RULES.values():
        for kind in (FailureKind.CANCELLED, FailureKind.DEADLINE, FailureKind.INTERNAL):
            assert (rules[kind].cooldown, rules[kind].action) == (Cooldown.NONE, Action.RAISE)


def test_the_standard_table_is_the_documented_one() -> None:
    cools = {kind for kind, rule in STANDARD_RULES.items() if rule.cooldown is Cooldown.BACKOFF}
    assert cools == {
        "connect", "timeout", "ttft_timeout", "rate_limit", "overloaded", "server_error", "partial_stream", "unknown",
    }  # fmt: skip
    config = {kind for kind, rule in STANDARD_RULES.items() if rule.cooldown is Cooldown.CONFIG}
    assert config == {"auth", "not_found", "quota"}
    assert STANDARD_RULES[FailureKind.INVALID_OUTPUT].cooldown is Cooldown.STREAK
