"""What no single key can tell: names that lead nowhere, chains that can never answer, settings that contradict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import le, lt

from pipeline.config.builtin import LOCAL_MODELS, ROLE_NEEDS, ROLES
from pipeline.config.endpoint import host_of, target_name
from pipeline.config.explain import meant
from pipeline.config.model import ChunkConfig, Config, EmbedderConfig, Preset
from pipeline.config.roles import Member, all_members, default_key_env, members_of, policy_members_of, stated_at
from pipeline.config.source import Path, Problem, dotted

__all__ = ["check", "check_keys", "check_warnings"]

_LOCAL_REFUSES = ("base_url", "api_key_env", "lane", "modalities", "json_schema", "tools", "context_window")


def check(config: Config) -> list[Problem]:
    """Everything that is wrong between the keys of a configuration whose keys are right one by one."""
    problems = [
        *_names(config),
        *_local_models(config),
        *_contracts(config),
        *_times(config),
        *_same_target(config),
        *_collections(config),
    ]
    if config.kb.embedder is not None:
        problems += _embedder(config.kb.embedder)
    return list(dict.fromkeys(problems))


def check_keys(config: Config, is_set: Callable[[str], bool]) -> list[Problem]:
    """Variables named by ``api_key_env`` in some chain that the environment does not hold."""
    found: dict[str, Problem] = {}
    for member in all_members(config):
        name = member.preset.api_key_env
        if name is not None and not is_set(name):
            path = stated_at(config, member, "api_key_env")
            text = f"{dotted(path)} names {name!r}, which is not set in the environment; set it, or take the key out"
            found.setdefault(f"{path} {name}", Problem(path, text))
    return list(found.values())


def check_warnings(config: Config, is_set: Callable[[str], bool]) -> list[Problem]:
    """What is allowed and probably not meant."""
    found: list[Problem] = []
    used = {member.name for member in all_members(config)}
    found.extend(
        Problem(("presets", name), f"presets.{name} is in no role's chain, so nothing calls it")
        for name in config.presets
        if name not in used
    )
    for member in all_members(config):
        variable = default_key_env(member.preset)
        if variable is not None and member.preset.api_key_env is None and not is_set(variable):
            provider = member.preset.model.partition("/")[0]
            text = f"{dotted(member.path)} has no api_key_env and {variable} is not set, so {provider} will refuse it"
            found.append(Problem(member.path, text))
    for name, collection in config.collections.items():
        if collection.allow_targets is None:
            continue
        allowed = set(collection.allow_targets)
        whole = [
            role for role in ROLES if role != "embedder" and not allowed & {m.name for m in members_of(config, role)}
        ]
        if whole:
            path: Path = ("collections", name, "allow_targets")
            text = f"{dotted(path)} names no target of {', '.join(whole)}; those chains stay whole"
            found.append(Problem(path, text))
    return list(dict.fromkeys(found))


def _names(config: Config) -> Iterator[Problem]:
    known = list(config.presets)
    for role in ROLES:
        settings = getattr(config.kb, role)
        if settings is None or isinstance(settings, EmbedderConfig):
            continue
        path: Path = ("kb", role)
        if settings.preset not in config.presets:
            yield _no_preset((*path, "preset"), settings.preset, known)
        yield from _lists(path, settings, known)
    for name, preset in config.presets.items():
        yield from _lists(("presets", name), preset, known)


def _lists(path: Path, preset: Preset, known: Sequence[str]) -> Iterator[Problem]:
    for key in ("fallbacks", "content_policy_fallbacks"):
        for index, name in enumerate(getattr(preset, key)):
            if name not in known:
                problem = _no_preset((*path, key), name, known)
                yield Problem((*path, key, index), problem.text)


def _no_preset(path: Path, name: str, known: Sequence[str]) -> Problem:
    hint = meant(name, known)
    model = name.replace("local-", "local/", 1)
    if not hint and model in LOCAL_MODELS:
        hint = f"; define it under presets as {name}: {{model: {model}}}"
    elif not hint:
        hint = f"; defined are: {', '.join(known)}" if known else "; none is defined under presets"
    return Problem(path, f"{dotted(path)} names {name!r}, which is not a preset{hint}")


def _local_models(config: Config) -> Iterator[Problem]:
    places: list[tuple[Path, Preset | EmbedderConfig]] = [
        (("presets", name), preset) for name, preset in config.presets.items()
    ]
    places += [(("kb", role), place) for role in ROLES if (place := getattr(config.kb, role)) is not None]
    for path, place in places:
        if not place.model.startswith("local/"):
            continue
        if place.model not in LOCAL_MODELS:
            slip = meant(place.model, LOCAL_MODELS) or f"; there are {', '.join(LOCAL_MODELS)}"
            yield Problem((*path, "model"), f"{dotted(path)}.model is {place.model!r}, which is no local model{slip}")
            continue
        for key in _LOCAL_REFUSES:
            if key in place.model_fields_set:
                text = (
                    f"{dotted(path)}.{key} means nothing for {place.model!r}, which runs inside Tidegate; take it out"
                )
                yield Problem((*path, key), text)


def _contracts(config: Config) -> Iterator[Problem]:
    for role, needs in ROLE_NEEDS.items():
        for member in (*members_of(config, role), *policy_members_of(config, role)):
            preset = member.preset
            local = LOCAL_MODELS.get(preset.model)
            if local is not None:
                if local.role != role:
                    text = f"presets.{member.name} ({preset.model}) is in the chain of kb.{role}, but it {local.job}"
                    remedy = f"; only kb.{local.role} can use it"
                    yield Problem((*member.path, "model"), text + remedy)
                continue
            missing = sorted(needs.modalities - preset.modalities)
            if missing:
                path = stated_at(config, member, "modalities")
                stated = ", ".join(sorted(preset.modalities))
                text = (
                    f"{dotted(path)} is [{stated}], but kb.{role} needs {missing[0]} input; "
                    f"if the model takes it, write [{', '.join(sorted(needs.modalities, reverse=True))}]"
                )
                yield Problem(path, text)
            if needs.json_schema and not preset.json_schema:
                path = stated_at(config, member, "json_schema")
                text = f"{dotted(path)} is false, but kb.{role} needs structured answers; name another preset"
                yield Problem(path, text)


def _times(config: Config) -> Iterator[Problem]:
    common = config.failover
    places: list[tuple[Path, object]] = [(("failover",), common)]
    places += [(("presets", name), preset) for name, preset in config.presets.items()]
    places += [(("kb", role), place) for role in ROLES if (place := getattr(config.kb, role)) is not None]

    def value(place: object, key: str) -> float:
        own = getattr(place, key, None)
        return float(getattr(common, key) if own is None else own)

    for path, place in places:
        for small, large, allowed in (("reserve_s", "deadline_s", lt), ("cooldown_s", "cooldown_max_s", le)):
            stated = [key for key in (small, large) if getattr(place, key, None) is not None]
            low, high = value(place, small), value(place, large)
            if stated and not allowed(low, high):
                here = (*path, stated[0])
                text = f"{dotted(here)} does not fit: {small} is {low:g} and {large} {high:g}; "
                text += f"lower {small} or raise {large}"
                yield Problem(here, text)
    if config.unit.lease_s > config.unit.hard_deadline_s:
        deadline = f"unit.hard_deadline_s ({config.unit.hard_deadline_s:g})"
        text = f"unit.lease_s is {config.unit.lease_s:g}, above {deadline}; lower it"
        yield Problem(("unit", "lease_s"), text)


def _same_target(config: Config) -> Iterator[Problem]:
    """One target has one ``max_parallel`` and one ``quota_group``, whatever it is called."""
    first: dict[tuple[str, str | None, str], tuple[Member, object]] = {}
    for member in all_members(config):
        key = target_name(member.preset.model, member.preset.base_url, "this host")
        for setting in ("max_parallel", "quota_group"):
            value = getattr(member.preset, setting)
            if value is None:
                continue
            other, stated = first.setdefault((key, default_key_env(member.preset), setting), (member, value))
            if stated != value:
                path, there = stated_at(config, member, setting), stated_at(config, other, setting)
                text = (
                    f"{dotted(path)} is {value!r}, but {dotted(there)}, for the same target {key}, "
                    f"is {stated!r}; give both one value"
                )
                yield Problem(path, text)


def _collections(config: Config) -> Iterator[Problem]:
    known = {member.name for member in all_members(config)} | set(config.presets)
    for name, collection in config.collections.items():
        for index, target in enumerate(collection.allow_targets or ()):
            if target not in known:
                path: Path = ("collections", name, "allow_targets")
                yield Problem((*path, index), _no_preset(path, target, sorted(known)).text)
        if collection.chunk is not None:
            yield from _chunks(config, config.collection(name).chunk, ("collections", name, "chunk"))
    yield from _chunks(config, config.chunk, ("chunk",))


def _chunks(config: Config, chunk: ChunkConfig, path: Path) -> Iterator[Problem]:
    if chunk.overlap_tokens * 2 > chunk.max_tokens:
        here = (*path, "overlap_tokens")
        text = f"{dotted(here)} is {chunk.overlap_tokens}, more than half of max_tokens ({chunk.max_tokens})"
        yield Problem(here, f"{text}; give at most {chunk.max_tokens // 2}")
    primary = members_of(config, "embedder")[0].preset
    local = LOCAL_MODELS.get(primary.model)
    window = local.context_window if local else primary.context_window
    if window is not None and chunk.max_tokens > window:
        here = (*path, "max_tokens")
        text = f"{dotted(here)} is {chunk.max_tokens}, above the {window} tokens that {primary.model} embeds; lower it"
        yield Problem(here, text)


def _embedder(embedder: EmbedderConfig) -> Iterator[Problem]:
    path: Path = ("kb", "embedder")
    local = LOCAL_MODELS.get(embedder.model)
    if local is not None and local.role != "embedder":
        yield Problem(
            (*path, "model"), f"kb.embedder.model is {embedder.model!r}, which {local.job} and embeds nothing"
        )
    if local is not None and local.dim is not None and embedder.dim != local.dim:
        yield Problem(
            (*path, "dim"),
            f"kb.embedder.dim is {embedder.dim}, but {embedder.model} makes {local.dim}; write {local.dim}",
        )
    for index, replica in enumerate(embedder.fallbacks):
        here = (*path, "fallbacks", index)
        if replica.model is not None and _bare(replica.model) != _bare(embedder.model):
            text = (
                f"{dotted(here)}.model is {replica.model!r}, but the embedder is {embedder.model!r}; "
                f"vectors of two models can't be compared, so only replicas of the same model may stand behind it"
            )
            yield Problem((*here, "model"), text)
        if replica.dim is not None and replica.dim != embedder.dim:
            text = (
                f"{dotted(here)}.dim is {replica.dim}, but the embedder's is {embedder.dim}; "
                f"only replicas with the same dimension may stand behind it"
            )
            yield Problem((*here, "dim"), text)
        if replica.base_url is None and replica.model is None:
            yield Problem(
                here, f"{dotted(here)} names no base_url, so it is the embedder itself; give the replica's address"
            )
        elif (
            embedder.api_key_env is not None
            and replica.api_key_env is None
            and replica.base_url is not None
            and host_of(replica.base_url) != host_of(embedder.base_url)
        ):
            text = (
                f"{dotted(here)} is on {host_of(replica.base_url)!r}, another host than the embedder's, "
                f"and a key is never sent to another host by itself; name its own api_key_env"
            )
            yield Problem(here, text)


def _bare(model: str) -> str:
    return model.partition("/")[2]
