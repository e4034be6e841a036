"""From the configuration to the chains that calls walk, and to the keys that providers look up.

A target's key is a model at an endpoint; the account is added only where two accounts share both, as a keyed hash.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import SecretStr

from pipeline.config.builtin import ROLES
from pipeline.config.endpoint import target_name
from pipeline.config.model import Config, ErrorRule, FailoverConfig, Preset
from pipeline.config.roles import Member, default_key_env, members_of, policy_members_of
from pipeline.domain.errors import ConfigError, UsageError
from pipeline.failover.kinds import PRESET_RULES, STANDARD_RULES, Action, Cooldown, FailureKind, KindRule, Rules
from pipeline.failover.target import CallPolicy, Chain, CooldownPolicy, Price, Target, Times
from pipeline.providers.local.catalog import (
    LOCAL_DEFAULT_IDLE_S,
    LOCAL_DEFAULT_TIMEOUT_S,
    LOCAL_DEFAULT_TTFT_S,
    LOCAL_MODELS,
    default_max_parallel,
)

__all__ = ["Chains", "KnownTarget", "build_chains"]

_INTERACTIVE_ROLES = frozenset({"answer_llm"})
_FINGERPRINT_DIGITS = 6
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """A target as people know it.

    Attributes:
        target: As its first role calls it (another role may give it other params or times).
        presets: The names it goes by.
        roles: Whose chains it is in.
    """

    target: Target
    presets: tuple[str, ...]
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chains:
    """Every role's chain, and what is known about the targets in them.

    Attributes:
        by_role: A chain for each role.
        known: Each target once, in the order of the roles.
        secrets: Keys by target key; a target without one is called without.
    """

    by_role: Mapping[str, Chain]
    known: tuple[KnownTarget, ...]
    secrets: Mapping[str, SecretStr] = field(repr=False)
    allow_lists: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def chain(self, role: str, *, interactive: bool | None = None) -> Chain:
        """A role's chain; ``interactive`` overrides what the role is by itself (a search embeds its query)."""
        chain = self.by_role[role]
        if interactive is None or interactive == chain.policy.interactive:
            return chain
        return replace(chain, policy=replace(chain.policy, interactive=interactive))

    @property
    def targets(self) -> tuple[Target, ...]:
        """Each target once."""
        return tuple(known.target for known in self.known)

    def resolve_target(self, name: str) -> Target:
        """The target that a person means: by its key, or by a preset's name where that names one target.

        Raises:
            UsageError: Nothing is called so, or several targets are.
        """
        found = [known.target for known in self.known if known.target.key == name]
        found = found or [known.target for known in self.known if name in known.presets]
        if len(found) == 1:
            return found[0]
        if found:
            keys = ", ".join(target.key for target in found)
            fact = f"{name!r} names {len(found)} targets: {keys}"
            raise UsageError(fact, "Give one of these keys.")
        names = [known.target.key for known in self.known] + [
            preset for known in self.known for preset in known.presets
        ]
        near = get_close_matches(name, names, n=1, cutoff=0.6)
        fact = f"{name!r} is no target{f'; did you mean {near[0]!r}?' if near else ''}"
        raise UsageError(fact, "tidegate targets lists them all.")

    def allowed(self, role: str, collection: str) -> frozenset[str] | None:
        """The presets of a role's chain that a collection allows; None for all.

        A list that names no target of a chain does not narrow that chain.
        """
        names = self.allow_lists.get(collection)
        if names is None:
            return None
        aliases = {known.target.key: known.presets for known in self.known}
        chain = self.by_role[role]
        targets = (*chain.targets, *chain.content_policy_fallbacks)
        kept = frozenset(target.preset for target in targets if names.intersection(aliases[target.key]))
        return kept or None

    def fingerprint(self, role: str) -> dict[str, Any]:
        """What of a role makes its results what they are, for the recipe's digest: JSON-able, without endpoints."""
        primary = self.by_role[role].primary
        parts: dict[str, Any] = {"model": primary.model, "params": dict(primary.params)}
        return parts | ({"dim": primary.dim} if primary.dim is not None else {})


def build_chains(
    config: Config,
    secret: Callable[[str], SecretStr | None],
    *,
    fingerprint_key: bytes,
    hostname: str,
    pool_size: int | None = None,
) -> Chains:
    """Make every role's chain.

    Args:
        config: As ``load_config`` gave it.
        secret: Looks up an environment variable (``Settings.secret``).
        fingerprint_key: The installation's own; account fingerprints are HMAC-SHA256 under it.
        hostname: This host's; local targets are told apart by it.
        pool_size: Local processes that read pages at once, for the local targets' ``max_parallel``.

    Raises:
        ConfigError: Two presets are the same target and contradict each other.
    """
    builder = _Builder(config, secret, fingerprint_key, hostname, pool_size)
    by_role = {role: builder.chain(role) for role in ROLES}
    return Chains(
        by_role=by_role,
        known=builder.known(by_role.values()),
        secrets=builder.secrets,
        allow_lists={
            name: frozenset(collection.allow_targets)
            for name, collection in config.collections.items()
            if collection.allow_targets is not None
        },
    )


class _Builder:
    def __init__(
        self,
        config: Config,
        secret: Callable[[str], SecretStr | None],
        fingerprint_key: bytes,
        hostname: str,
        pool_size: int | None,
    ) -> None:
        self._config = config
        self._secret = secret
        self._fingerprint_key = fingerprint_key
        self._hostname = hostname
        self._pool_size = pool_size
        self._rules = _rules(config.failover)
        self.secrets: dict[str, SecretStr] = {}
        members = [m for role in ROLES for m in (*members_of(config, role), *policy_members_of(config, role))]
        accounts: dict[str, set[str]] = {}
        for member in members:
            accounts.setdefault(self._name(member), set()).add(self._account(member))
        self._shared = {name for name, used in accounts.items() if len(used) > 1}
        self._members = [(member, self._key(member)) for member in members]
        self._fleet = {setting: self._agreed(setting) for setting in ("max_parallel", "quota_group")}

    def chain(self, role: str) -> Chain:
        targets = self._targets(members_of(self._config, role))
        fallbacks = self._targets(policy_members_of(self._config, role))
        primary = members_of(self._config, role)[0].preset
        return Chain(role, targets, self._policy(role, primary), fallbacks)

    def known(self, chains: Iterable[Chain]) -> tuple[KnownTarget, ...]:
        first: dict[str, Target] = {}
        for chain in chains:
            for target in (*chain.targets, *chain.content_policy_fallbacks):
                first.setdefault(target.key, target)
        return tuple(
            KnownTarget(
                target,
                presets=tuple(dict.fromkeys(member.name for member, own in self._members if own == key)),
                roles=tuple(dict.fromkeys(member.role for member, own in self._members if own == key)),
            )
            for key, target in first.items()
        )

    def _targets(self, members: Iterable[Member]) -> tuple[Target, ...]:
        """One target a key: a second way to write an endpoint adds nothing."""
        targets: dict[str, Target] = {}
        for member in members:
            key = self._key(member)
            if key not in targets:
                targets[key] = self._target(member, key)
        return tuple(targets.values())

    def _target(self, member: Member, key: str) -> Target:
        preset = member.preset
        local = LOCAL_MODELS.get(preset.model)
        if (secret := self._secret_of(member)) is not None:
            self.secrets[key] = secret
        max_parallel = self._fleet["max_parallel"].get(key)
        if local is not None and max_parallel is None:
            max_parallel = default_max_parallel(preset.model, self._pool_size)
        return Target(
            key=key,
            preset=member.name,
            model=preset.model,
            base_url=preset.base_url,
            lane=preset.lane,
            modalities=local.modalities if local else frozenset(preset.modalities),
            context_window=local.context_window if local else preset.context_window,
            max_output_tokens=preset.max_output_tokens,
            json_schema=local.json_schema if local else preset.json_schema,
            tools=False if local else preset.tools,
            max_parallel=max_parallel,
            on_full=preset.on_full,
            quota_group=self._fleet["quota_group"].get(key),
            times=_times(preset, self._config.failover),
            cooldown=_cooldown(preset, self._config.failover),
            same_target_retries=_own(preset.same_target_retries, self._config.failover.same_target_retries),
            rules=self._rules,
            params=dict(preset.params),
            price=Price(0.0, 0.0) if local else Price(preset.price.input_per_mtok, preset.price.output_per_mtok),
            dim=member.dim,
        )

    def _policy(self, role: str, primary: Preset) -> CallPolicy:
        common = self._config.failover
        return CallPolicy(
            deadline_s=_own(primary.deadline_s, common.deadline_s),
            reserve_s=_own(primary.reserve_s, common.reserve_s),
            max_attempts=_own(primary.max_attempts, common.max_attempts),
            permit_wait_s=_own(primary.permit_wait_s, common.permit_wait_s),
            permit_wait_max_s=_own(primary.permit_wait_max_s, common.permit_wait_max_s),
            max_output_bytes=_own(primary.max_output_bytes, common.max_output_bytes),
            interactive=role in _INTERACTIVE_ROLES,
        )

    def _name(self, member: Member) -> str:
        return target_name(member.preset.model, member.preset.base_url, self._hostname)

    def _key(self, member: Member) -> str:
        name = self._name(member)
        if name not in self._shared or not (account := self._account(member)):
            return name
        digest = hmac.new(self._fingerprint_key, account.encode(), hashlib.sha256).hexdigest()
        return f"{name}#{digest[:_FINGERPRINT_DIGITS]}"

    def _account(self, member: Member) -> str:
        """What tells one account from another; empty without a key. It leaves this object only as a keyed hash."""
        secret = self._secret_of(member)
        if secret is not None:
            return secret.get_secret_value()
        # A command that only looks may run without the keys; the variable's name then stands for its value.
        return f"${member.preset.api_key_env}" if member.preset.api_key_env else ""

    def _secret_of(self, member: Member) -> SecretStr | None:
        variable = default_key_env(member.preset)
        return self._secret(variable) if variable else None

    def _agreed(self, setting: str) -> dict[str, Any]:
        """The one value that all presets of a target state, by key.

        Two variables may hold one account's key, which only shows here.
        """
        agreed: dict[str, tuple[Any, str]] = {}
        for member, key in self._members:
            value = getattr(member.preset, setting)
            if value is None:
                continue
            stated, name = agreed.setdefault(key, (value, member.name))
            if stated != value:
                fact = f"presets {name!r} and {member.name!r} are the same target {key}"
                raise ConfigError(f"{fact}, but give {setting} {stated!r} and {value!r}", "Give both one value.")
        return {key: value for key, (value, _) in agreed.items()}


def _times(preset: Preset, common: FailoverConfig) -> Times:
    if preset.model in LOCAL_MODELS:
        usual = (LOCAL_DEFAULT_TTFT_S, LOCAL_DEFAULT_IDLE_S, LOCAL_DEFAULT_TIMEOUT_S)
    else:
        usual = (common.ttft_timeout_s, common.idle_timeout_s, common.timeout_s)
    return Times(
        _own(preset.ttft_timeout_s, usual[0]), _own(preset.idle_timeout_s, usual[1]), _own(preset.timeout_s, usual[2])
    )


def _cooldown(preset: Preset, common: FailoverConfig) -> CooldownPolicy:
    return CooldownPolicy(
        cooldown_s=_own(preset.cooldown_s, common.cooldown_s),
        cooldown_max_s=_own(preset.cooldown_max_s, common.cooldown_max_s),
        config_cooldown_s=_own(preset.config_cooldown_s, common.config_cooldown_s),
        allowed_fails=_own(preset.allowed_fails, common.allowed_fails),
    )


def _rules(common: FailoverConfig) -> Rules:
    if isinstance(common.on_error, str):
        return PRESET_RULES[common.on_error]
    changed = {
        FailureKind(kind): _rule(STANDARD_RULES[FailureKind(kind)], rule) for kind, rule in common.on_error.items()
    }
    return {**STANDARD_RULES, **changed}


def _rule(usual: KindRule, rule: ErrorRule) -> KindRule:
    changed = usual
    if rule.action is not None:
        changed = replace(changed, action=Action(rule.action))
    if rule.cooldown is None:
        return changed
    if rule.cooldown is False:
        return replace(changed, cooldown=Cooldown.NONE)
    if rule.cooldown is True:
        # "Yes" gives the ordinary cooldown, at once, where there was none or only one for a streak.
        gains = usual.cooldown in (Cooldown.NONE, Cooldown.STREAK)
        return replace(changed, cooldown=Cooldown.BACKOFF) if gains else changed
    return replace(changed, cooldown=Cooldown.BACKOFF, cooldown_s=rule.cooldown)


def _own(stated: T | None, usual: T) -> T:
    return usual if stated is None else stated
