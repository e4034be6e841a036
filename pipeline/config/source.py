"""YAML read into plain values, with the line of every key kept for errors.

The core schema of YAML 1.2 is read: only ``true`` and ``false`` are booleans (``on``, ``no`` and the like are text),
``010`` is ten, ``1e-3`` is a number, dates are text. Anchors, aliases and ``<<`` work; tags that build objects do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

__all__ = ["Path", "Problem", "Source", "dotted", "read_source"]

Path = tuple[str | int, ...]

_MAX_NODES = 100_000
_TAG = "tag:yaml.org,2002:"


class _CoreLoader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2 (and ``_`` between digits, as in 100_000)."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base has it


for _name, _pattern, _starts in (
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("int", r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+", [*"-+0123456789"]),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)", [*"-+.0123456789"]),
    ("merge", r"<<", ["<"]),
):
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), _starts)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at a place of the configuration; ``text`` is the whole sentence, the key's path included."""

    path: Path
    text: str
    line: int | None = None


@dataclass(slots=True)
class Source:
    """A file's values and the 1-based line of each path in it.

    Attributes:
        problems: What is wrong with the YAML itself; ``data`` is then what could be read.
    """

    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, path: Path) -> int | None:
        """The line of ``path``, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_source(text: str) -> Source:
    """Read one YAML document whose top is a map. Nothing is raised: what is wrong is in ``problems``."""
    source = Source()
    try:
        node = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.problem, error.context) if part)
        source.problems.append(Problem((), f"this is not YAML: {what}", mark.line + 1 if mark else None))
        return source
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        source.problems.append(Problem((), f"this is not YAML: a control character, {chr(error.character)!r}", line))
        return source
    if node is None:
        return source
    if not isinstance(node, yaml.MappingNode):
        source.problems.append(Problem((), "the configuration is no map; write keys like 'presets:'", 1))
        return source
    reader = _Reader(source)
    source.data = reader.mapping(node, ())
    return source


def dotted(path: Path) -> str:
    """``("presets", "vision", "modalities", 1)`` → ``presets.vision.modalities[1]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part or repr(part)}" if text else part
    return text


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: list[yaml.Node] = []
        self._nodes = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._nodes += 1
        if node in self._open or self._nodes > _MAX_NODES:
            # Once: an alias bomb would be reported at each of its sparks.
            if self._nodes <= _MAX_NODES + 1:
                self._report(node, path, "repeats itself through aliases; write it out")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, path)
        finally:
            self._open.pop()
        return None

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._report(key_node, path, "has a key that is no plain text")
                continue
            if key_node.tag == f"{_TAG}merge":
                for parent in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    if isinstance(parent, yaml.MappingNode):
                        merged = self.value(parent, path) | merged
                    else:
                        self._report(parent, path, "merges ('<<') what is no map; name a map's anchor")
                continue
            key = str(key_node.value)
            here = (*path, key)
            if key in values:
                first = self._source.lines[here]
                self._report(key_node, here, f"is given twice (first in line {first}); keep one")
                continue
            self._source.lines[here] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, here)
        return merged | values

    def _sequence(self, node: yaml.SequenceNode, path: Path) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self._source.lines[(*path, index)] = item.start_mark.line + 1
            items.append(self.value(item, (*path, index)))
        return items

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        read = _SCALARS.get(node.tag.removeprefix(_TAG))
        if read is None:
            self._report(node, path, f"has the tag {node.tag!r}, which is not allowed here; leave it out")
            return None
        if any("\ud800" <= char <= "\udfff" for char in node.value):
            self._report(node, path, "holds half a character (a lone surrogate); write the whole one")
            return None
        try:
            return read(str(node.value))
        except ValueError:
            self._report(node, path, f"is {node.value!r}, which its tag does not fit; leave the tag out")
            return None

    def _report(self, node: yaml.Node, path: Path, text: str) -> None:
        where = dotted(path) or "the configuration"
        self._source.problems.append(Problem(path, f"{where} {text}", node.start_mark.line + 1))


def _int(text: str) -> int:
    digits = text.replace("_", "")
    base = {"0x": 16, "0o": 8}.get(digits[:2].lower(), 10)
    return int(digits[2:] if base != 10 else digits, base)


def _float(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _int,
    "float": _float,
    "bool": lambda text: text.lower() == "true",
    "null": lambda text: None,
}
