"""An instance for any JSON schema that a structured call may send, its strings taken from the prompt's words."""

import hashlib
from collections.abc import Mapping
from typing import Any

_ITEMS = 3
_DEEPEST = 10  # below this a recursive schema's arrays are left empty
_FORMATS = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "email": "someone@example.org",
    "uri": "https://example.org/",
}


def fill(schema: Mapping[str, Any], text: str) -> Any:
    """A value that satisfies the schema: every property present, strings derived from `text`.

    Takes references into the schema itself, enum, const, anyOf/oneOf (the first that is not null), allOf (merged),
    bounds of numbers, lengths and item counts. `pattern` is not honoured.
    """
    return _Filler(schema, text.split() or ["nothing"]).value(schema, "")


class _Filler:
    def __init__(self, root: Mapping[str, Any], words: list[str]) -> None:
        self._root = root
        self._words = words

    def value(self, schema: Mapping[str, Any], path: str) -> Any:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((k for k in kind if k != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        match kind:
            case "object":
                return self._object(schema, path)
            case "array":
                return self._array(schema, path)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return self._string(schema, path)

    def _resolved(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        merged = dict(schema)
        while True:
            if "$ref" in merged:
                target: Any = self._root
                for step in str(merged.pop("$ref")).removeprefix("#").strip("/").split("/"):
                    target = target[step] if step else target
                merged = {**target, **merged}
            elif "allOf" in merged:
                for part in merged.pop("allOf"):
                    resolved = self._resolved(part)
                    properties = {**merged.get("properties", {}), **resolved.get("properties", {})}
                    merged = {**resolved, **merged} | ({"properties": properties} if properties else {})
            elif union := merged.pop("anyOf", None) or merged.pop("oneOf", None):
                first = next((s for s in union if s.get("type") != "null"), union[0])
                merged = {**first, **merged}
            else:
                return merged

    def _object(self, schema: Mapping[str, Any], path: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        out = {name: self.value(sub, f"{path}/{name}") for name, sub in properties.items()}
        for name in schema.get("required", []):
            out.setdefault(name, self._string({}, f"{path}/{name}"))
        return out

    def _array(self, schema: Mapping[str, Any], path: str) -> list[Any]:
        prefix = schema.get("prefixItems", [])
        usual = _ITEMS if path.count("/") < _DEEPEST else 0
        count = max(usual, len(prefix), schema.get("minItems", 0))
        count = min(count, schema.get("maxItems", count))
        items = [self.value(sub, f"{path}/{i}") for i, sub in enumerate(prefix[:count])]
        rest = schema.get("items")
        if isinstance(rest, Mapping):
            items += [self.value(rest, f"{path}/{i}") for i in range(len(items), count)]
        return items

    def _string(self, schema: Mapping[str, Any], path: str) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        start = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4])
        short = "keyword" in path or "tag" in path
        words = [self._words[(start + i) % len(self._words)] for i in range(1 if short else 8)]
        text = " ".join(words)
        if "question" in path:
            text = f"What is said about {text}?"
        least: int = schema.get("minLength", 0)
        most: int | None = schema.get("maxLength")
        text += "x" * max(0, least - len(text))
        return text if most is None else text[:most]


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    step = schema.get("multipleOf", 1)
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if whole:
        at_least = low if low is not None else above + 1 if above is not None else min(1, _top(high, below))
        return int(-(-at_least // step) * step)
    if above is not None:
        ceiling = high if high is not None else below if below is not None else above + 2
        return float((above + ceiling) / 2)
    if low is not None:
        return float(low)
    return float(min(1.0, _top(high, below)))


def _top(high: float | None, below: float | None) -> float:
    if high is not None:
        return high
    return below - 1 if below is not None else 1
