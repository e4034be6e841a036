"""What every cooldown registry does; each implementation runs all of it.

A ``Bench`` is a registry whose clock the test moves, and as many further handles on the same store as there are
"processes" in the test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pipeline.domain.call import SkipReason
from pipeline.failover.kinds import PRESET_RULES, STANDARD_RULES, Cooldown, FailureKind, KindRule
from pipeline.failover.registry import (
    PERMIT_TTL_S,
    Admitted,
    BreakerState,
    CooldownRegistry,
    Permit,
    Refused,
    Report,
    ReportResult,
    TargetStatus,
    Verdict,
)
from pipeline.failover.target import CooldownPolicy, Target
from tests.unit.failover.fakes import target

SUCCESS = Report(Verdict.SUCCESS)
NEUTRAL = Report(Verdict.NEUTRAL)


@dataclass
class Bench:
    registry: CooldownRegistry
    advance: Callable[[float], Awaitable[None]]
    another: Callable[[], CooldownRegistry]
    """A further process's handle on the same store."""

    async def permit(self, of: Target) -> Permit:
        admission = await self.registry.admit(of)
        assert isinstance(admission, Admitted), admission
        return admission.permit

    async def refusal(self, of: Target) -> Refused:
        admission = await self.registry.admit(of)
        assert isinstance(admission, Refused), admission
        return admission

    async def fails(self, of: Target, kind: FailureKind = FailureKind.CONNECT, **report: Any) -> ReportResult:
        """One call, from admission to failure."""
        return await self.fail(of, await self.permit(of), kind, **report)

    async def fail(
        self, of: Target, permit: Permit, kind: FailureKind = FailureKind.CONNECT, **report: Any
    ) -> ReportResult:
        return await self.registry.report(of, permit, Report(Verdict.FAILURE, kind, **report))

    async def succeeds(self, of: Target) -> ReportResult:
        return await self.registry.report(of, await self.permit(of), SUCCESS)

    async def status(self, of: Target) -> TargetStatus:
        return (await self.registry.statuses([of]))[0]


def cooling_for(refusal: Refused, seconds: float) -> bool:
    return refusal.reason is SkipReason.COOLING and refusal.wait_s == pytest.approx(seconds, abs=0.001)


class RegistrySuite:
    # --- cooldowns ---

    async def test_a_new_target_is_closed(self, bench: Bench) -> None:
        assert await bench.status(target("a")) == TargetStatus(target("a").key, BreakerState.CLOSED)

    async def test_a_failure_opens_the_breaker_for_the_cooldown(self, bench: Bench) -> None:
        a = target("a")
        result = await bench.fails(a)
        assert result.opened
        assert result.wait_s == pytest.approx(30)
        refusal = await bench.refusal(a)
        assert cooling_for(refusal, 30)
        assert refusal.kind == "connect"
        assert refusal.until == result.until
        status = await bench.status(a)
        assert (status.state, status.kind, status.failures) == (BreakerState.OPEN, "connect", 1)

    @pytest.mark.behaviour(9)
    async def test_a_second_process_skips_a_cooling_target_on_its_very_next_call(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        assert isinstance(await bench.another().admit(a), Refused)

    async def test_the_cooldown_doubles_with_each_failure_in_a_row_up_to_its_cap(self, bench: Bench) -> None:
        a = target("a", cooldown=CooldownPolicy(cooldown_s=10, cooldown_max_s=60))
        lengths = []
        for _ in range(5):
            result = await bench.fails(a)
            assert result.wait_s is not None
            lengths.append(round(result.wait_s, 3))
            await bench.advance(result.wait_s + 0.001)
        assert lengths == [10, 20, 40, 60, 60]

    @pytest.mark.behaviour(8)
    async def test_a_cooldown_is_never_shortened(self, bench: Bench) -> None:
        for name, asked, stands in (("a", (1.0, 20.0), 20), ("b", (20.0, 1.0), 20)):
            t = target(name)
            permits = [await bench.permit(t), await bench.permit(t)]
            for permit, retry_after_s in zip(permits, asked, strict=True):
                await bench.fail(t, permit, FailureKind.RATE_LIMIT, retry_after_s=retry_after_s)
            assert cooling_for(await bench.refusal(t), stands)

    async def test_retry_after_wins_exactly_and_without_jitter(self, bench: Bench) -> None:
        result = await bench.fails(target("a"), FailureKind.RATE_LIMIT, retry_after_s=1.5)
        assert result.wait_s == pytest.approx(1.5, abs=1e-5)

    async def test_a_retry_after_of_a_week_is_capped(self, bench: Bench) -> None:
        result = await bench.fails(target("a"), FailureKind.OVERLOADED, retry_after_s=7 * 86_400.0)
        assert result.wait_s == pytest.approx(600)

    @pytest.mark.parametrize("nonsense", [0.0, -5.0, float("inf"), float("nan")])
    async def test_a_retry_after_that_is_nonsense_means_the_ordinary_cooldown(
        self, bench: Bench, nonsense: float
    ) -> None:
        result = await bench.fails(target("a"), FailureKind.RATE_LIMIT, retry_after_s=nonsense)
        assert result.wait_s == pytest.approx(30)

    @pytest.mark.parametrize("kind", [FailureKind.AUTH, FailureKind.NOT_FOUND, FailureKind.QUOTA])
    async def test_what_only_a_person_can_mend_cools_for_the_config_cooldown(
        self, bench: Bench, kind: FailureKind
    ) -> None:
        a = target("a", cooldown=CooldownPolicy(config_cooldown_s=900))
        assert (await bench.fails(a, kind)).wait_s == pytest.approx(900)

    @pytest.mark.parametrize(
        "kind", [FailureKind.INVALID_REQUEST, FailureKind.CONTEXT_OVERFLOW, FailureKind.CONTENT_POLICY]
    )
    async def test_what_the_request_caused_cools_nobody(self, bench: Bench, kind: FailureKind) -> None:
        a = target("a")
        result = await bench.fails(a, kind)
        assert result == ReportResult()
        assert (await bench.status(a)).state is BreakerState.CLOSED

    async def test_a_rule_may_fix_the_length_of_a_cooldown(self, bench: Bench) -> None:
        fixed = KindRule(Cooldown.BACKOFF, STANDARD_RULES[FailureKind.TIMEOUT].action, busy=True, cooldown_s=7)
        a = target("a", rules={**STANDARD_RULES, FailureKind.TIMEOUT: fixed})
        assert (await bench.fails(a, FailureKind.TIMEOUT)).wait_s == pytest.approx(7)
        b = target(
            "b",
            rules={**STANDARD_RULES, FailureKind.AUTH: KindRule(Cooldown.CONFIG, fixed.action, True, cooldown_s=11)},
        )
        assert (await bench.fails(b, FailureKind.AUTH)).wait_s == pytest.approx(11)

    async def test_the_permissive_preset_cools_on_an_invalid_request(self, bench: Bench) -> None:
        a = target("a", rules=PRESET_RULES["permissive"])
        assert (await bench.fails(a, FailureKind.INVALID_REQUEST)).opened

    async def test_calls_that_fail_together_are_one_failure(self, bench: Bench) -> None:
        a = target("a")
        permits = [await bench.permit(a) for _ in range(8)]
        for permit in permits:
            await bench.fail(a, permit)
        assert (await bench.status(a)).failures == 1
        assert cooling_for(await bench.refusal(a), 30)

    async def test_a_late_failure_lengthens_the_cooldown_but_does_not_double_it(self, bench: Bench) -> None:
        a = target("a")
        first, second = await bench.permit(a), await bench.permit(a)
        await bench.fail(a, first)
        await bench.advance(10)
        result = await bench.fail(a, second)
        assert result.opened
        assert result.wait_s == pytest.approx(30)

    async def test_failures_within_the_allowance_are_forgiven_for_a_while(self, bench: Bench) -> None:
        a = target("a", cooldown=CooldownPolicy(allowed_fails=2, fail_window_s=60))
        assert not (await bench.fails(a, FailureKind.SERVER_ERROR)).opened
        await bench.advance(50)
        assert not (await bench.fails(a, FailureKind.TIMEOUT)).opened
        await bench.advance(20)
        assert not (await bench.fails(a, FailureKind.SERVER_ERROR)).opened, "the first one is out of the window"
        assert (await bench.fails(a, FailureKind.SERVER_ERROR)).opened

    async def test_a_refused_connection_or_a_stated_retry_after_is_not_forgiven(self, bench: Bench) -> None:
        forgiving = CooldownPolicy(allowed_fails=2)
        assert (await bench.fails(target("a", cooldown=forgiving), FailureKind.CONNECT)).opened
        overloaded = await bench.fails(target("b", cooldown=forgiving), FailureKind.OVERLOADED, retry_after_s=5)
        assert overloaded.wait_s == pytest.approx(5)

    async def test_after_a_cooldown_the_allowance_begins_anew(self, bench: Bench) -> None:
        a = target("a", cooldown=CooldownPolicy(allowed_fails=1, fail_window_s=60))
        await bench.fails(a, FailureKind.SERVER_ERROR)
        assert (await bench.fails(a, FailureKind.SERVER_ERROR)).opened
        await bench.advance(31)
        await bench.succeeds(a)
        assert not (await bench.fails(a, FailureKind.SERVER_ERROR)).opened

    # --- invalid output ---

    @pytest.mark.behaviour(32)
    async def test_a_login_page_cools_its_target_at_the_fifth_input(self, bench: Bench) -> None:
        a = target("a")
        for page in range(4):
            result = await bench.fails(a, FailureKind.INVALID_OUTPUT, input_digest=f"page-{page}")
            assert not result.opened
        assert (await bench.fails(a, FailureKind.INVALID_OUTPUT, input_digest="page-4")).opened

    async def test_one_bad_input_tried_again_and_again_cools_nobody(self, bench: Bench) -> None:
        a = target("a")
        for _ in range(12):
            assert not (await bench.fails(a, FailureKind.INVALID_OUTPUT, input_digest="page")).opened

    async def test_inputs_without_a_digest_count_as_different(self, bench: Bench) -> None:
        a = target("a")
        results = [await bench.fails(a, FailureKind.INVALID_OUTPUT) for _ in range(5)]
        assert [result.opened for result in results] == [False, False, False, False, True]

    async def test_a_good_answer_ends_the_streak(self, bench: Bench) -> None:
        a = target("a")
        for page in range(4):
            await bench.fails(a, FailureKind.INVALID_OUTPUT, input_digest=f"page-{page}")
        await bench.succeeds(a)
        assert not (await bench.fails(a, FailureKind.INVALID_OUTPUT, input_digest="page-4")).opened

    async def test_a_probe_that_meets_the_login_page_again_opens_for_longer(self, bench: Bench) -> None:
        a = target("a")
        for page in range(5):
            await bench.fails(a, FailureKind.INVALID_OUTPUT, input_digest=f"page-{page}")
        await bench.advance(31)
        assert (await bench.fails(a, FailureKind.INVALID_OUTPUT, input_digest="page-5")).wait_s == pytest.approx(60)

    # --- half-open ---

    @pytest.mark.behaviour(10)
    async def test_of_fifty_callers_at_expiry_exactly_one_gets_the_probe(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        admissions = [await bench.another().admit(a) for _ in range(50)]
        probes = [admission for admission in admissions if isinstance(admission, Admitted)]
        assert len(probes) == 1
        assert probes[0].permit.probe
        others = [admission for admission in admissions if isinstance(admission, Refused)]
        assert {refusal.reason for refusal in others} == {SkipReason.PROBING}
        assert others[0].wait_s == pytest.approx(PERMIT_TTL_S)
        status = await bench.status(a)
        assert (status.state, status.probing, status.in_flight) == (BreakerState.HALF_OPEN, True, 1)

    async def test_the_probes_first_content_closes_the_breaker(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        probe = await bench.permit(a)
        result = await bench.registry.first_content(a, probe)
        assert result.closed
        assert (await bench.status(a)).state is BreakerState.CLOSED
        assert not (await bench.registry.report(a, probe, SUCCESS)).closed, "it is closed once"

    async def test_a_probe_that_is_not_streamed_closes_the_breaker_with_its_success(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        assert (await bench.succeeds(a)).closed
        assert (await bench.status(a)).failures == 0

    async def test_first_content_of_an_ordinary_call_changes_nothing(self, bench: Bench) -> None:
        a = target("a")
        permit, other = await bench.permit(a), await bench.permit(a)
        assert await bench.registry.first_content(a, permit) == ReportResult()
        await bench.fail(a, other)
        result = await bench.registry.first_content(a, permit)
        assert not result.closed
        assert result.wait_s == pytest.approx(30)

    async def test_a_failed_probe_reopens_for_longer(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        assert (await bench.fails(a)).wait_s == pytest.approx(60)

    async def test_a_target_that_dies_after_its_first_content_each_time_cools_for_longer(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a, FailureKind.PARTIAL_STREAM)
        await bench.advance(31)
        probe = await bench.permit(a)
        await bench.registry.first_content(a, probe)
        assert (await bench.fail(a, probe, FailureKind.PARTIAL_STREAM)).wait_s == pytest.approx(60)

    async def test_a_cancelled_probe_leaves_half_open_free_for_the_next(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        await bench.registry.report(a, await bench.permit(a), NEUTRAL)
        assert (await bench.permit(a)).probe

    @pytest.mark.behaviour(11)
    async def test_when_the_prober_is_killed_another_probes_after_its_lease(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        dead = await bench.permit(a)
        await bench.advance(PERMIT_TTL_S - 1)
        assert (await bench.refusal(a)).reason is SkipReason.PROBING
        await bench.advance(2)
        probe = await bench.permit(a)
        assert probe.probe
        assert probe.token != dead.token
        assert (await bench.registry.report(a, probe, SUCCESS)).closed

    async def test_a_probe_that_is_renewed_keeps_its_lease(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        probe = await bench.permit(a)
        for _ in range(5):
            await bench.advance(PERMIT_TTL_S - 1)
            assert await bench.registry.renew(probe)
        assert (await bench.refusal(a)).reason is SkipReason.PROBING

    @pytest.mark.behaviour(12)
    async def test_the_late_success_of_an_old_call_leaves_the_breaker_open(self, bench: Bench) -> None:
        a = target("a")
        old, other = await bench.permit(a), await bench.permit(a)
        await bench.advance(1)
        await bench.fail(a, other)
        result = await bench.registry.report(a, old, SUCCESS)
        assert not result.closed
        assert result.wait_s == pytest.approx(30)
        await bench.advance(31)
        assert (await bench.permit(a)).probe

    async def test_a_probe_of_an_earlier_opening_does_not_close_a_later_one(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        slow = await bench.permit(a)
        await bench.advance(PERMIT_TTL_S + 1)
        await bench.fails(a)
        assert not (await bench.registry.first_content(a, slow)).closed
        assert not (await bench.registry.report(a, slow, SUCCESS)).closed

    @pytest.mark.behaviour(13)
    async def test_one_target_and_an_outage_of_a_minute_take_at_most_four_of_eleven_calls(self, bench: Bench) -> None:
        a, calls = target("a", cooldown=CooldownPolicy(cooldown_s=10)), 0
        for _ in range(11):
            admission = await bench.registry.admit(a)
            if isinstance(admission, Admitted):
                calls += 1
                await bench.fail(a, admission.permit)
            await bench.advance(6)
        assert calls <= 4

    # --- permits ---

    async def test_never_more_than_max_parallel_calls_at_once_over_all_processes(self, bench: Bench) -> None:
        a = target("a", max_parallel=3)
        admissions = [await bench.another().admit(a) for _ in range(8)]
        assert [isinstance(admission, Admitted) for admission in admissions] == [True] * 3 + [False] * 5
        assert admissions[-1] == Refused(SkipReason.FULL)

    @pytest.mark.behaviour(21)
    async def test_a_permit_comes_back_with_every_end(self, bench: Bench) -> None:
        a = target("a", max_parallel=1)
        for report in (
            SUCCESS,
            NEUTRAL,
            Report(Verdict.NEUTRAL, FailureKind.CANCELLED),
            Report(Verdict.FAILURE, FailureKind.INVALID_REQUEST),
        ):
            await bench.registry.report(a, await bench.permit(a), report)
            assert (await bench.status(a)).in_flight == 0

    @pytest.mark.behaviour(21)
    async def test_a_killed_workers_permit_returns_by_itself(self, bench: Bench) -> None:
        a = target("a", max_parallel=1)
        await bench.permit(a)
        await bench.advance(PERMIT_TTL_S - 0.5)
        assert (await bench.refusal(a)).reason is SkipReason.FULL
        await bench.advance(1)
        assert (await bench.status(a)).in_flight == 0
        await bench.permit(a)

    async def test_a_long_streams_permit_is_renewed_and_not_lent_twice(self, bench: Bench) -> None:
        a = target("a", max_parallel=1)
        permit = await bench.permit(a)
        for _ in range(6):
            await bench.advance(10)
            assert await bench.registry.renew(permit)
        assert (await bench.refusal(a)).reason is SkipReason.FULL

    async def test_a_lapsed_permit_is_not_renewed(self, bench: Bench) -> None:
        a = target("a")
        permit = await bench.permit(a)
        await bench.advance(PERMIT_TTL_S + 1)
        assert not await bench.registry.renew(permit)
        assert not await bench.registry.renew(Permit("nobody@nowhere", "token", 0.0))

    async def test_reporting_twice_gives_one_permit_back(self, bench: Bench) -> None:
        a = target("a", max_parallel=2)
        first, _ = await bench.permit(a), await bench.permit(a)
        await bench.registry.report(a, first, NEUTRAL)
        await bench.registry.report(a, first, NEUTRAL)
        assert (await bench.status(a)).in_flight == 1

    async def test_a_recovered_target_ramps_up_by_its_successes(self, bench: Bench) -> None:
        a = target("a", max_parallel=4)
        await bench.fails(a)
        await bench.advance(31)
        probe = await bench.permit(a)
        await bench.registry.first_content(a, probe)
        assert (await bench.status(a)).ramp == 1
        assert (await bench.refusal(a)).reason is SkipReason.FULL
        await bench.registry.report(a, probe, SUCCESS)
        assert (await bench.status(a)).ramp == 2
        two = [await bench.permit(a), await bench.permit(a)]
        assert (await bench.refusal(a)).reason is SkipReason.FULL
        for permit in two:
            await bench.registry.report(a, permit, SUCCESS)
        assert (await bench.status(a)).ramp is None
        four = [await bench.permit(a) for _ in range(4)]
        assert (await bench.refusal(a)).reason is SkipReason.FULL
        assert len(four) == 4

    async def test_without_max_parallel_the_ramp_ends_at_sixty_four(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        for _ in range(62):
            await bench.succeeds(a)
        assert (await bench.status(a)).ramp == 63
        await bench.succeeds(a)
        assert (await bench.status(a)).ramp is None

    async def test_a_failure_while_ramping_opens_again(self, bench: Bench) -> None:
        a = target("a")
        await bench.fails(a)
        await bench.advance(31)
        await bench.succeeds(a)
        assert (await bench.fails(a)).opened
        assert (await bench.status(a)).ramp is None

    # --- quota groups ---

    @pytest.mark.behaviour(17)
    @pytest.mark.parametrize("kind", [FailureKind.RATE_LIMIT, FailureKind.QUOTA])
    async def test_targets_of_one_quota_group_cool_together(self, bench: Bench, kind: FailureKind) -> None:
        a, b, c = target("a", quota_group="org"), target("b", quota_group="org"), target("c", quota_group="other")
        result = await bench.fails(a, kind, retry_after_s=20)
        refusal = await bench.refusal(b)
        assert (refusal.reason, refusal.kind, refusal.until) == (SkipReason.COOLING, kind, result.until)
        assert [s.state for s in await bench.registry.statuses([a, b, c])] == ["open", "open", "closed"]

    async def test_a_group_does_not_share_other_failures(self, bench: Bench) -> None:
        a, b = target("a", quota_group="org"), target("b", quota_group="org")
        await bench.fails(a, FailureKind.CONNECT)
        await bench.permit(b)

    async def test_each_target_of_a_group_recovers_by_its_own_probe(self, bench: Bench) -> None:
        a, b = target("a", quota_group="org"), target("b", quota_group="org")
        await bench.fails(a, FailureKind.RATE_LIMIT, retry_after_s=20)
        await bench.advance(21)
        probe = await bench.permit(b)
        assert probe.probe
        assert (await bench.registry.report(b, probe, SUCCESS)).closed
        assert not (await bench.permit(b)).probe
        assert (await bench.permit(a)).probe

    async def test_the_target_that_found_the_quota_used_up_recovers_like_the_others(self, bench: Bench) -> None:
        a = target("a", quota_group="org")
        await bench.fails(a, FailureKind.QUOTA)
        await bench.advance(301)
        await bench.succeeds(a)
        assert not (await bench.permit(a)).probe

    async def test_a_group_cooldown_ends_a_recovery(self, bench: Bench) -> None:
        a, b = target("a", quota_group="org"), target("b", quota_group="org")
        await bench.fails(b)
        await bench.advance(31)
        await bench.succeeds(b)
        await bench.fails(a, FailureKind.RATE_LIMIT)
        status = await bench.status(b)
        assert (status.state, status.ramp) == (BreakerState.OPEN, None)

    async def test_a_reset_of_one_target_does_not_shorten_its_groups_cooldown(self, bench: Bench) -> None:
        a, b, c = (target(name, quota_group="org") for name in "abc")
        await bench.fails(a, FailureKind.RATE_LIMIT, retry_after_s=20)
        await bench.advance(1)
        await bench.registry.reset(b.key)
        await bench.fails(b, FailureKind.RATE_LIMIT, retry_after_s=1)
        assert cooling_for(await bench.refusal(c), 19)

    async def test_a_group_cooldown_is_never_shortened(self, bench: Bench) -> None:
        a, b, c = (target(name, quota_group="org") for name in "abc")
        permits = await bench.permit(a), await bench.permit(b)
        await bench.fail(a, permits[0], FailureKind.RATE_LIMIT, retry_after_s=20)
        await bench.advance(1)
        await bench.fail(b, permits[1], FailureKind.RATE_LIMIT, retry_after_s=1)
        assert cooling_for(await bench.refusal(c), 19)

    async def test_a_probe_that_answers_after_its_group_has_cooled_closes_nothing(self, bench: Bench) -> None:
        a, b = target("a", quota_group="org"), target("b", quota_group="org")
        await bench.fails(b)
        await bench.advance(31)
        probe = await bench.permit(b)
        assert probe.probe
        await bench.advance(1)
        cooled = await bench.fails(a, FailureKind.RATE_LIMIT, retry_after_s=20)
        answered = await bench.registry.first_content(b, probe)
        assert (answered.until, answered.closed) == (cooled.until, False)

    # --- people ---

    async def test_a_kill_switch_holds_until_it_is_thrown_back(self, bench: Bench) -> None:
        a = target("a")
        await bench.registry.set_disabled(a.key, True)
        assert await bench.another().admit(a) == Refused(SkipReason.DISABLED)
        assert (await bench.status(a)).state is BreakerState.DISABLED
        await bench.registry.reset(a.key)
        assert (await bench.refusal(a)).reason is SkipReason.DISABLED
        await bench.another().set_disabled(a.key, False)
        await bench.permit(a)

    async def test_a_reset_is_seen_by_every_process_at_its_next_call(self, bench: Bench) -> None:
        a, b = target("a", quota_group="org"), target("b", quota_group="org")
        under_way = await bench.permit(b)
        await bench.fails(a, FailureKind.QUOTA)
        await bench.advance(1)
        await bench.registry.reset(b.key)
        admission = await bench.another().admit(b)
        assert isinstance(admission, Admitted)
        assert not admission.permit.probe
        assert (await bench.status(b)).in_flight == 2, "calls under way stay counted"
        await bench.registry.report(b, under_way, SUCCESS)
        assert isinstance(await bench.another().admit(a), Refused)

    async def test_statuses_come_in_the_order_asked_and_touch_nothing(self, bench: Bench) -> None:
        a, b, c = target("a"), target("b"), target("c")
        await bench.fails(b)
        await bench.advance(31)
        for _ in range(2):
            statuses = await bench.registry.statuses([c, b, a])
            assert [status.target for status in statuses] == [c.key, b.key, a.key]
            assert [status.state for status in statuses] == ["closed", "half_open", "closed"]
        assert (await bench.permit(b)).probe
        assert await bench.registry.statuses([]) == []
