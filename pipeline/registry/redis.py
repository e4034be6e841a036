"""The cooldown registry on Redis: each operation is one Lua script, one round trip, and the server's clock.

``breaker.lua`` holds the rules, as ``pipeline/failover/breaker.py`` does. Lost keys and lost scripts are normal: a
restarted Redis knows of no cooldown, and the next calls find them again; kill switches are read anew from their truth.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from importlib.resources import files
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from pipeline.domain.call import SkipReason
from pipeline.failover.breaker import cools_group, fixed_cooldown_s
from pipeline.failover.kinds import Cooldown, KindRule
from pipeline.failover.registry import (
    PERMIT_TTL_S,
    Admission,
    Admitted,
    BreakerState,
    Permit,
    Refused,
    Report,
    ReportResult,
    TargetStatus,
    Verdict,
)
from pipeline.failover.target import Target

__all__ = ["RedisRegistry", "RegistryAway", "connect_to"]

SWITCHES_TTL_S = 60.0
"""The cached kill switches are read again from the database after this, by one caller of the fleet."""
MAX_CONNECTIONS = 32

Connect = Callable[[], Redis]
Switches = Callable[[], Awaitable[Collection[str]]]


class RegistryAway(Exception):
    """Redis did not answer in time, or not at all, or refused what it was asked. Never leaves this package.

    Attributes:
        refusal: What it said; None when it did not answer.
    """

    def __init__(self, reason: str, refusal: str | None = None) -> None:
        super().__init__(reason, refusal)
        self.reason = reason
        self.refusal = refusal

    def __str__(self) -> str:
        return self.reason


def connect_to(url: str, timeout_s: float) -> Connect:
    """What makes a client of ``url`` (``redis://``, ``rediss://`` or ``unix://``) in the loop that uses it.

    One retry without a pause takes care of a connection that the server closed while it was idle; every operation
    is worded so that doing it twice is doing it once.
    """

    def connect() -> Redis:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=timeout_s,
            decode_responses=True,
            socket_timeout=None,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 1),
        )
        return Redis.from_pool(pool)

    return connect


class RedisRegistry:
    """``CooldownRegistry`` on Redis, except that its operations raise ``RegistryAway``; see ``FallbackRegistry``.

    Args:
        connect: Makes a client; it is called once for each event loop, on first use there.
        prefix: This installation's; its keys begin with ``{prefix}:reg:``.
        rng: Uniform in [0, 1), for the cooldowns' jitter.
        timeout_s: Bound of one operation.
        switches: Reads the targets that are switched off from their truth; None where nobody keeps any.
        permit_ttl_s: A permit's lease.
        clock: Lua text that defines ``clock()``; the server's own by default.
    """

    def __init__(
        self,
        connect: Connect,
        prefix: str,
        *,
        rng: Callable[[], float],
        timeout_s: float = 0.25,
        switches: Switches | None = None,
        permit_ttl_s: float = PERMIT_TTL_S,
        clock: str | None = None,
    ) -> None:
        self._connect = connect
        self._prefix = f"{prefix}:reg"
        self._rng = rng
        self._timeout_s = timeout_s
        self._switches = switches
        self._permit_ttl_s = permit_ttl_s
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Redis] = WeakKeyDictionary()
        shared = (clock or _lua("clock")) + _lua("breaker")
        self._admit, self._renew = _Script(shared, "admit"), _Script(shared, "renew")
        self._first_content, self._report = _Script(shared, "first_content"), _Script(shared, "report")
        self._statuses, self._reset = _Script(shared, "statuses"), _Script(shared, "reset")
        self._switch, self._all_switches = _Script(shared, "switch"), _Script(shared, "switches")

    async def admit(self, target: Target, token: str | None = None) -> Admission:
        """As the port says.

        Args:
            token: The permit's, for a caller who must be able to give it back though no answer came.
        """
        token = token or uuid4().hex
        answer = await self._ask_to_admit(target, token, SWITCHES_TTL_S if self._switches is not None else 0.0)
        if answer[0] == "unread" and self._switches is not None:
            await self.replace_disabled(await self._switches())
            answer = await self._ask_to_admit(target, token, 0.0)
        if answer[0] in ("open", "probe"):
            return Admitted(Permit(target.key, token, admitted_at=float(answer[1]), probe=answer[0] == "probe"))
        if len(answer) == 1:
            return Refused(SkipReason(answer[0]))
        return Refused(SkipReason(answer[0]), float(answer[1]), float(answer[2]), answer[3] or None)

    async def renew(self, permit: Permit) -> bool:
        keys = (self._key("target", permit.target), self._key("permits", permit.target))
        return bool(await self._run(self._renew, keys, permit.token, self._permit_ttl_s))

    async def first_content(self, target: Target, permit: Permit) -> ReportResult:
        args = (int(permit.probe), f"{permit.admitted_at:.6f}", target.max_parallel or 0)
        return _result(await self._run(self._first_content, self._keys_of(target), *args))

    async def report(self, target: Target, permit: Permit, report: Report) -> ReportResult:
        rule = None if report.kind is None else target.rules[report.kind]
        policy, wants = target.cooldown, report.retry_after_s
        forgivable = rule is not None and rule.forgivable and not wants
        return _result(
            await self._run(
                self._report,
                self._keys_of(target),
                permit.token,
                int(permit.probe),
                f"{permit.admitted_at:.6f}",
                target.max_parallel or 0,
                report.verdict,
                report.kind or "",
                Cooldown.NONE if rule is None else rule.cooldown,
                int(cools_group(report, rule)),
                "_".join((report.input_digest or "").split()) or permit.token,
                policy.streak,
                policy.allowed_fails if forgivable else 0,
                policy.fail_window_s,
                _fixed_s(target, rule, wants),
                policy.cooldown_s,
                policy.cooldown_max_s,
                1 + policy.jitter * (2 * self._rng() - 1),
            )
        )

    async def give_back(self, target: Target, token: str) -> None:
        """End a permit's lease, held or not; its call says nothing about the target."""
        await self.report(target, Permit(target.key, token, admitted_at=0.0), Report(Verdict.NEUTRAL))

    async def statuses(self, targets: Sequence[Target]) -> list[TargetStatus]:
        keys = [self._key("switches"), *(key for target in targets for key in self._keys_of(target))]
        answers = await self._run(self._statuses, keys, *(target.key for target in targets))
        return [_status(target.key, *answer) for target, answer in zip(targets, answers, strict=True)]

    async def reset(self, target: str) -> None:
        await self._run(self._reset, (self._key("target", target),))

    async def set_disabled(self, target: str, disabled: bool) -> None:
        await self._run(self._switch, (self._key("switches"),), target, int(disabled))

    async def replace_disabled(self, targets: Collection[str]) -> None:
        """Cache the kill switches as a whole."""
        await self._run(self._all_switches, (self._key("switches"),), *targets)

    async def aclose(self) -> None:
        """Close the running loop's client."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()
            await client.connection_pool.disconnect()

    # --- details ---

    async def _ask_to_admit(self, target: Target, token: str, switches_ttl_s: float) -> list[Any]:
        keys = (*self._keys_of(target), self._key("switches"))
        args = (target.key, token, target.max_parallel or 0, self._permit_ttl_s, switches_ttl_s)
        answer: list[Any] = await self._run(self._admit, keys, *args)
        return answer

    async def _run(self, script: _Script, keys: Sequence[str], *args: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                client = self._client()
                try:
                    return await client.evalsha(script.sha, len(keys), *keys, *args)
                except NoScriptError:
                    return await client.eval(script.text, len(keys), *keys, *args)
        except TimeoutError as error:
            msg = f"Redis did not answer within {self._timeout_s:g} s"
            raise RegistryAway(msg) from error
        except (RedisError, OSError) as error:
            msg = f"{type(error).__name__}: {error}"
            raise RegistryAway(msg, str(error) if isinstance(error, ResponseError) else None) from error

    def _client(self) -> Redis:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._connect()
        return client

    def _key(self, *parts: str) -> str:
        return ":".join((self._prefix, *parts))

    def _keys_of(self, target: Target) -> tuple[str, str, str]:
        group = self._key("group", target.quota_group) if target.quota_group is not None else ""
        return self._key("target", target.key), self._key("permits", target.key), group


class _Script:
    def __init__(self, shared: str, name: str) -> None:
        self.text = shared + _lua(name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def _lua(name: str) -> str:
    return (files(__package__) / f"{name}.lua").read_text(encoding="utf-8")


def _fixed_s(target: Target, rule: KindRule | None, retry_after_s: float | None) -> str:
    """A cooldown's length where it does not depend on the failures in a row; else nothing."""
    if rule is None:
        return ""
    fixed = fixed_cooldown_s(target.cooldown, rule, retry_after_s)
    return "" if fixed is None else repr(fixed)


def _result(answer: Sequence[Any]) -> ReportResult:
    until, wait_s, opened, closed = answer
    return ReportResult(_number(until), _number(wait_s), opened=bool(opened), closed=bool(closed))


def _status(
    target: str, state: str, until: str, wait_s: str, kind: str, failures: int, in_flight: int, ramp: int, probing: int
) -> TargetStatus:
    return TargetStatus(
        target=target,
        state=BreakerState(state),
        until=_number(until),
        wait_s=_number(wait_s),
        kind=kind or None,
        failures=failures,
        in_flight=in_flight,
        ramp=ramp or None,
        probing=bool(probing),
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
