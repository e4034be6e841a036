"""Find the configuration, read it, and say everything that is wrong with it, each with its line and its remedy.

A role that a file leaves out gets its built-in local model alone; a chain that a file does configure is never added to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from pydantic import ValidationError

from pipeline.config.builtin import HOSTED, qualified
from pipeline.config.check import check, check_keys, check_warnings
from pipeline.config.explain import explain
from pipeline.config.model import Config, KbConfig, Preset, RoleConfig
from pipeline.config.source import Path, Problem, Source, read_source
from pipeline.domain.errors import ConfigError
from pipeline.settings import Settings

__all__ = ["ConfigProblems", "LoadedConfig", "load_config", "parse_config"]

_DEFAULT_FILE = FilePath("tidegate.yaml")
_TEXT_ROLES = ("vlm_formatter", "retrieval_llm", "answer_llm")


class ConfigProblems(ConfigError):
    """All that is wrong with one configuration. It reads as the first problem; ``problems`` holds every line."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        more = len(problems) - 1
        super().__init__(problems[0], f"and {more} more; see them all with: tidegate config check" if more else "")
        self.args = (problems,)
        self.problems = problems


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that may be used.

    Attributes:
        file: Where it was read; None for the built-in chains.
        warnings: Lines worth a WARN at start.
    """

    config: Config
    file: FilePath | None = None
    warnings: tuple[str, ...] = ()


def load_config(
    settings: Settings, file: FilePath | None = None, *, missing_keys: Literal["refuse", "warn"] = "refuse"
) -> LoadedConfig:
    """The configuration that the environment points at.

    Order: ``file``, ``TIDEGATE_CONFIG``, ``./tidegate.yaml`` if present, ``MODEL_NAME``/``MODEL_FALLBACK_CHAIN`` over
    the built-in local chains.

    Args:
        settings: The environment.
        file: Overrides it (``tidegate config check FILE``).
        missing_keys: What a variable that some chain's ``api_key_env`` names and nobody set is: an error for what
            calls models, a warning for ``config check`` and for commands that only look.

    Raises:
        ConfigProblems: Something in it is wrong.
        ConfigError: There is no such file, or it can't be read.
    """
    path = file or settings.config or (_DEFAULT_FILE if _DEFAULT_FILE.exists() else None)
    if path is None:
        return _from_environment(settings, missing_keys)
    named_by = "" if file else " (TIDEGATE_CONFIG)" if settings.config else ""
    loaded = parse_config(_read(path, named_by), str(path), settings, missing_keys=missing_keys)
    ignored = [name for name in ("MODEL_NAME", "MODEL_FALLBACK_CHAIN") if getattr(settings, name.lower())]
    ignored_line = f"{' and '.join(ignored)} ignored: {path} names the models" if ignored else ""
    warnings = (*settings.warnings, *filter(None, [ignored_line]), *loaded.warnings)
    return LoadedConfig(loaded.config, path, warnings)


def parse_config(
    text: str, name: str, settings: Settings, *, missing_keys: Literal["refuse", "warn"] = "refuse"
) -> LoadedConfig:
    """Read a configuration's text.

    Args:
        text: YAML.
        name: The file's name, for errors.
        settings: Where ``api_key_env`` is looked up.
        missing_keys: As for ``load_config``.

    Raises:
        ConfigProblems: Something in it is wrong.
    """
    source = read_source(text)
    problems = list(source.problems)
    config = None
    if source.data or not problems:
        problems += _respelled(source)
        data = _without_empty_sections(source.data)
        config, wrong = _validated(data, [problem.path for problem in problems if problem.path])
        problems += wrong
    warnings: list[Problem] = []
    if config is not None and not problems:
        keys = check_keys(config, settings.has)
        problems += keys if missing_keys == "refuse" else []
        warnings += keys if missing_keys == "warn" else []
        warnings += check_warnings(config, settings.has)
    if problems or config is None:
        raise ConfigProblems(_lines(problems, source, name))
    return LoadedConfig(config, warnings=_lines(warnings, source, name))


def _read(path: FilePath, named_by: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        fact = f"there is no configuration at {str(path)!r}{named_by}"
        raise ConfigError(fact, "Give the path of a YAML file; config.example.yaml shows every key.") from None
    except UnicodeDecodeError as error:
        fact = f"{path}: this is no UTF-8 text (byte {error.start})"
        raise ConfigError(fact, "Save it as UTF-8.") from None
    except OSError as error:
        fact = f"the configuration {str(path)!r}{named_by} can't be read: {error.strerror}"
        raise ConfigError(fact, "Give the path of a YAML file that this user may read.") from None


def _validated(data: dict[str, Any], unread: Sequence[Path]) -> tuple[Config | None, list[Problem]]:
    """The configuration, and all that is wrong with it.

    After a first finding the wrong keys are taken out and the rest is checked too, so that one run shows everything.

    Args:
        data: The file's values.
        unread: Places that YAML itself could not make sense of; nothing more is said about them.
    """
    data = _pruned(data, unread)
    problems: list[Problem] = []
    try:
        config = _validate(data)
    except ValidationError as error:
        problems = explain(error, data)
        try:
            config = _validate(_pruned(data, [problem.path for problem in problems]))
        except ValidationError:
            return None, problems
    wrong = [*unread, *(problem.path for problem in problems)]
    return config, problems + [more for more in check(config) if not any(_overlap(more.path, path) for path in wrong)]


def _overlap(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _validate(data: dict[str, Any]) -> Config:
    # By way of JSON, so that strict means what it says for a text format: lists are tuples, true is no 1.
    return Config.model_validate_json(json.dumps(data), strict=True)


def _pruned(data: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(data))
    # Later list items first, so that the earlier ones keep their index.
    for path in sorted(paths, key=lambda path: [str(part).rjust(8) for part in path], reverse=True):
        inside: Any = copy
        for step in path[:-1]:
            inside = inside[step] if _holds(inside, step) else None
        if path and _holds(inside, path[-1]):
            del inside[path[-1]]
    return copy


def _holds(inside: Any, step: str | int) -> bool:
    if isinstance(inside, dict):
        return step in inside
    return isinstance(inside, list) and isinstance(step, int) and step < len(inside)


def _without_empty_sections(data: dict[str, Any]) -> dict[str, Any]:
    """A section whose keys are all commented out reads as null; it means its defaults."""
    sections = {key: value for key, value in data.items() if value is not None}
    for key in ("presets", "collections"):
        if isinstance(sections.get(key), dict):
            sections[key] = {name: {} if value is None else value for name, value in sections[key].items()}
    return sections


def _respelled(source: Source) -> list[Problem]:
    """Move ``agents: {presets: …}``, the older spelling, to ``presets``, lines included."""
    agents = source.data.get("agents")
    if not isinstance(agents, dict) or "presets" not in agents:
        return []
    presets = agents.pop("presets")
    if not agents:
        del source.data["agents"]
    if "presets" in source.data:
        text = "agents.presets is the older spelling of presets, which is given too; keep presets"
        return [Problem(("agents", "presets"), text)]
    source.data["presets"] = presets
    source.lines |= {path[1:]: line for path, line in source.lines.items() if path[:2] == ("agents", "presets")}
    return []


def _lines(problems: Sequence[Problem], source: Source, name: str) -> tuple[str, ...]:
    placed = [(problem.line or source.line_of(problem.path) or 0, problem.text) for problem in problems]
    return tuple(f"{name}:{line}: {text}" if line else f"{name}: {text}" for line, text in sorted(set(placed)))


def _from_environment(settings: Settings, missing_keys: Literal["refuse", "warn"]) -> LoadedConfig:
    chain = _model_names(settings)
    if not chain:
        return LoadedConfig(Config(), warnings=settings.warnings)
    presets: dict[str, Preset] = {}
    for variable, model in chain:
        presets.setdefault(model, _hosted_preset(variable, model, settings))
    primary, *others = presets
    presets[primary] = presets[primary].model_copy(update={"fallbacks": tuple(others)})
    role = RoleConfig(preset=primary)
    config = Config(presets=presets, kb=KbConfig(**dict.fromkeys(_TEXT_ROLES, role)))
    problems = [problem.text for problem in check(config)]
    warnings = [*settings.warnings]
    missing = check_keys(config, settings.has)
    lines = [
        f"{_said_by(chain, model)} names {model!r}, and {presets[model].api_key_env} is not set; set it to its key"
        for model in (str(problem.path[1]) for problem in missing)
    ]
    problems += lines if missing_keys == "refuse" else []
    warnings += lines if missing_keys == "warn" else []
    if problems:
        raise ConfigProblems(tuple(problems))
    return LoadedConfig(config, warnings=tuple(warnings))


def _model_names(settings: Settings) -> list[tuple[str, str]]:
    """(the variable that says it, the model with its provider), primary first."""
    names = [("MODEL_NAME", settings.model_name or "")]
    names += [("MODEL_FALLBACK_CHAIN", name) for name in (settings.model_fallback_chain or "").split(",")]
    found = []
    for variable, name in names:
        if name.strip():
            try:
                found.append((variable, qualified(name.strip())))
            except ValueError as error:
                fact = f"{variable} {error}"
                raise ConfigError(fact) from None
    return found


def _said_by(chain: list[tuple[str, str]], model: str) -> str:
    return next(variable for variable, name in chain if name == model)


def _hosted_preset(variable: str, model: str, settings: Settings) -> Preset:
    """A preset for a model of which only the name is known: key and address come from its provider's own variables."""
    hosted = HOSTED.get(model.partition("/")[0])
    if hosted is None:
        return Preset(model=model)
    address = next(((name, url) for name in hosted.url_envs if (url := settings.variable(name))), None)
    if address is None:
        return Preset(model=model, api_key_env=hosted.key_env)
    # A server of one's own may need no key.
    key_env = hosted.key_env if settings.secret(hosted.key_env) else None
    try:
        return Preset(model=model, base_url=address[1], api_key_env=key_env)
    except ValidationError as error:
        fact = f"{address[0]} {error.errors()[0]['ctx']['error']}"
        raise ConfigError(fact, f"{variable} needs it as the address of {model!r}.") from None
