"""pydantic's errors as sentences for people: the key's path, the value, what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipeline.config.model import Config, FailoverConfig
from pipeline.config.source import Path, Problem, dotted

__all__ = ["explain", "meant"]

_KEY_WORDS = frozenset({"api_key", "apikey", "key", "token", "secret", "password", "authorization"})
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "dict_type": "a map, like {{key: value}}",
    "model_type": "a map, like {{key: value}}",
    "model_attributes_type": "a map, like {{key: value}}",
    "tuple_type": "a list, like [a, b]",
    "list_type": "a list, like [a, b]",
    "frozen_set_type": "a list, like [a, b]",
    "set_type": "a list, like [a, b]",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "below {lt:g}",
    "less_than_equal": "{le:g} or less",
    "string_too_short": "text that is not empty",
    "literal_error": "{expected}",
    "enum": "{expected}",
}


def explain(error: ValidationError, data: Mapping[str, Any]) -> list[Problem]:
    """One problem for each thing that pydantic found, with paths as they stand in ``data``."""
    return [_problem(details, data) for details in error.errors(include_url=False)]


def meant(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` where something known is near, else nothing."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _problem(details: ErrorDetails, data: Mapping[str, Any]) -> Problem:
    kind = details["type"]
    path = _path_in(data, details["loc"], missing=kind == "missing")
    if kind == "extra_forbidden":
        return Problem(path, _unknown(path))
    where = dotted(path)
    if kind == "missing":
        field = _type_at(path[:-1])
        hint = (
            field.model_fields[str(path[-1])].description
            if _is_model(field) and path[-1] in field.model_fields
            else None
        )
        return Problem(path[:-1], f"{where} is missing{f'; {hint}' if hint else ''}")
    value = details.get("input")
    if kind == "value_error":
        return Problem(path, f"{where} {details['ctx']['error']}")
    context = details.get("ctx", {})
    template = _EXPECTED.get(kind)
    expected = template.format(**context) if template else details["msg"][:1].lower() + details["msg"][1:]
    slip = ""
    if kind in ("literal_error", "enum"):
        known = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
        expected = f"one of {', '.join(known)}"
        slip = meant(str(value), known)
        if path[-1:] and details["loc"][-1:] == ("[key]",):
            return Problem(path, f"{where} is no failure kind that a rule can change; known: {', '.join(known)}{slip}")
    # A pasted key stays out of every error, whatever shape it was pasted in.
    shown = "something else" if path[-1:] == ("api_key_env",) else _shown(value)
    return Problem(path, f"{where} is {shown}, which should be {expected}{slip}")


def _unknown(path: Path) -> str:
    where, key = dotted(path), str(path[-1])
    if key.lower() in _KEY_WORDS:
        remedy = "put it into an environment variable and name that in api_key_env"
        return f"{where}: a key is never written in the configuration; {remedy}"
    owner = _type_at(path[:-1])
    known = list(owner.model_fields) if _is_model(owner) else []
    if slip := meant(key, known):
        return f"{where} is no key of the configuration{slip}"
    homes = [name for name, field in Config.model_fields.items() if _has(field.annotation, key)]
    homes += ["presets"] if key not in FailoverConfig.model_fields and key in _preset_keys() else []
    if homes and len(path) == 1:
        return f"{where} is no key at the top; it belongs under {homes[0]}"
    return f"{where} is no key of the configuration; known here: {', '.join(known)}"


def _preset_keys() -> Mapping[str, Any]:
    preset = _type_at(("presets", "any"))
    return preset.model_fields if _is_model(preset) else {}


def _has(annotation: Any, key: str) -> bool:
    return _is_model(annotation) and key in annotation.model_fields


def _path_in(data: Any, loc: tuple[int | str, ...], *, missing: bool) -> Path:
    """``loc`` without the steps that pydantic adds for unions and dict keys, which are in no file."""
    path: list[str | int] = []
    for index, step in enumerate(loc):
        if missing and index == len(loc) - 1:
            path.append(step)
            break
        inside = step in data if isinstance(data, Mapping) else isinstance(data, list) and isinstance(step, int)
        if inside:
            path.append(step)
            data = data[step]
    return tuple(path)


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _type_at(path: Path) -> Any:
    """The type that the configuration has at ``path``; None where it has none."""
    found: Any = Config
    for step in path:
        found = _step(found, step)
    return found if _is_model(found) else next((arg for arg in get_args(found) if _is_model(arg)), None)


def _step(annotation: Any, step: str | int) -> Any:
    if _is_model(annotation):
        field = annotation.model_fields.get(step)
        return field.annotation if field else None
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _step(args[0], step)
    if origin in (Union, UnionType):
        return next((found for arg in args if (found := _step(arg, step)) is not None), None)
    if origin is dict:
        return args[1]
    if origin in (tuple, list) and isinstance(step, int):
        return args[0]
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
