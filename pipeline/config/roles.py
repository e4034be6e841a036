"""From roles to the presets that serve them, in order, and where each was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.config.builtin import BUILTIN_PRESETS, HOSTED, LOCAL_MODELS, ROLES
from pipeline.config.endpoint import host_of
from pipeline.config.model import Config, EmbedderConfig, Preset, ReplicaConfig, RoleConfig
from pipeline.config.source import Path

__all__ = ["Member", "all_members", "default_key_env", "members_of", "policy_members_of", "stated_at"]


@dataclass(frozen=True, slots=True)
class Member:
    """One place in a role's chain.

    Attributes:
        name: The preset's name; ``embedder``, ``embedder-2``… for embedders, which have no presets.
        path: Where the configuration states it, for errors.
        dim: Width of the vectors, for embedders.
    """

    role: str
    name: str
    preset: Preset
    path: Path
    primary: bool = False
    dim: int | None = None


def members_of(config: Config, role: str) -> tuple[Member, ...]:
    """A role's chain, primary first. Names that no preset bears are left out (``check`` reports them)."""
    if role == "embedder":
        return _embedders(config.kb.embedder)
    settings = getattr(config.kb, role)
    if settings is None:
        return (_builtin(role),)
    preset = config.presets.get(settings.preset)
    if preset is None:
        return ()
    primary = settings.applied_to(preset)
    first = Member(role, settings.preset, primary, ("presets", settings.preset), primary=True)
    return (first, *_named(config, role, primary.fallbacks))


def policy_members_of(config: Config, role: str) -> tuple[Member, ...]:
    """Where a role's requests go that its chain refused on policy; empty for most."""
    members = members_of(config, role)
    if not members or role == "embedder":
        return ()
    return tuple(_named(config, role, members[0].preset.content_policy_fallbacks))


def all_members(config: Config) -> Iterator[Member]:
    """Every place in every chain, role by role."""
    for role in ROLES:
        yield from members_of(config, role)
        yield from policy_members_of(config, role)


def stated_at(config: Config, member: Member, key: str) -> Path:
    """Where a member's ``key`` was written: beside the role's ``preset``, or in the preset itself."""
    settings = getattr(config.kb, member.role)
    tweaked = isinstance(settings, RoleConfig) and key in settings.model_fields_set
    if tweaked and member.primary:
        return ("kb", member.role, key)
    return (*member.path, key)


def default_key_env(preset: Preset) -> str | None:
    """The variable that holds a preset's key: the one it names, else its provider's own for its own endpoint."""
    if preset.api_key_env is not None:
        return preset.api_key_env
    hosted = HOSTED.get(preset.model.partition("/")[0])
    if hosted is None or (preset.base_url is not None and host_of(preset.base_url) not in hosted.hosts):
        return None
    return hosted.key_env


def _named(config: Config, role: str, names: tuple[str, ...]) -> Iterator[Member]:
    for name in names:
        if name in config.presets:
            yield Member(role, name, config.presets[name], ("presets", name))


def _builtin(role: str) -> Member:
    name, model = BUILTIN_PRESETS[role]
    return Member(role, name, Preset(model=model), ("kb", role), primary=True, dim=LOCAL_MODELS[model].dim)


def _embedders(settings: EmbedderConfig | None) -> tuple[Member, ...]:
    if settings is None:
        return (_builtin("embedder"),)
    path: Path = ("kb", "embedder")
    shared = {
        name: getattr(settings, name) for name in settings.model_fields_set - {"dim", "token_factor", "fallbacks"}
    }
    first = Member("embedder", "embedder", Preset(**shared), path, primary=True, dim=settings.dim)
    replicas = (
        Member(
            "embedder",
            f"embedder-{number}",
            first.preset.model_copy(update=_replica_keys(settings, replica)),
            (*path, "fallbacks", number - 2),
            dim=settings.dim,
        )
        for number, replica in enumerate(settings.fallbacks, start=2)
    )
    return (first, *replicas)


def _replica_keys(primary: EmbedderConfig, replica: ReplicaConfig) -> dict[str, object]:
    own = {name: getattr(replica, name) for name in replica.model_fields_set - {"dim"}}
    keys: dict[str, object] = {"quota_group": None, "api_key_env": None}
    # A key goes to another host only where the configuration says so.
    if replica.base_url is None or host_of(replica.base_url) == host_of(primary.base_url):
        keys["api_key_env"] = primary.api_key_env
    return keys | {name: value for name, value in own.items() if value is not None}
