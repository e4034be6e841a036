"""The JSON shapes that are promised, and whether a document has one. Fields may be added; none may be missing."""

from __future__ import annotations

from typing import Any

OptionalStr = (str, None)
OptionalInt = (int, None)
Number = (int, float)
OptionalNumber = (int, float, None)

ENQUEUE = {
    "batch": {"id": int, "label": str, "collection": str},
    "documents": [
        {
            "id": OptionalStr,
            "run": OptionalInt,
            "path": str,
            "media_type": OptionalStr,
            "bytes": OptionalInt,
            "state": str,
        }
    ],
    "counts": {"queued": int, "unchanged": int, "rejected": int},
}
STATUS = {
    "documents": [
        {
            "id": str,
            "path": str,
            "collection": str,
            "batch": OptionalStr,
            "state": str,
            "stage": OptionalStr,
            "pages": OptionalInt,
            "units": {"total": int, "done": int, "parked": int, "failed": int},
            "degraded": int,
            "incomplete": bool,
            "live": bool,
            "failure": ({"kind": str, "detail": OptionalStr}, None),
            "resume_at": OptionalStr,
            "attempts": int,
            "created_at": str,
            "finished_at": OptionalStr,
        }
    ],
    "counts": dict,
    "workers": int,
    "processes": [{"pid": int, "host": str, "role": str, "queues": list}],
    "queues": {
        name: {"waiting": int, "consumers": int} for name in ("parse", "describe", "format", "retrieve", "embed")
    },
}
ATTEMPTS = {
    "document": str,
    "attempts": [
        {
            "id": int,
            "run": int,
            "stage": str,
            "unit": OptionalInt,
            "call": str,
            "position": int,
            "target": OptionalStr,
            "outcome": str,
            "kind": OptionalStr,
            "skipped": [{"target": str, "reason": str}],
            "status": OptionalInt,
            "message": OptionalStr,
            "started_at": str,
            "ttft_ms": OptionalInt,
            "duration_ms": OptionalInt,
            "tokens_in": int,
            "tokens_out": int,
            "cost_usd": Number,
            "cooldown_until": OptionalStr,
            "worker": OptionalStr,
        }
    ],
}
REQUEUE = {
    "runs": [{"document": str, "run": OptionalInt, "from_stage": OptionalStr, "reused_units": int, "todo_units": int}],
    "counts": dict,
}
TARGETS = {
    "targets": [
        {
            "target": str,
            "preset": str,
            "roles": [str],
            "state": str,
            "until": OptionalStr,
            "kind": OptionalStr,
            "failures": int,
            "in_flight": int,
            "max_parallel": OptionalInt,
            "ok_1h": int,
            "failed_1h": int,
        }
    ]
}
SEARCH = {
    "query": str,
    "hits": [
        {
            "document": str,
            "path": str,
            "id": str,
            "chunk": int,
            "pages": [int],
            "heading": str,
            "text": str,
            "context": str,
            "score": Number,
            "degraded": bool,
            "models": {"describe": OptionalStr, "format": OptionalStr, "retrieve": OptionalStr, "embed": OptionalStr},
        }
    ],
}
SHOW = {
    "document": str,
    "pages": [
        {
            "number": int,
            "markdown": str,
            "text_layer": str,
            "description": OptionalStr,
            "formatted": OptionalStr,
            "described_by": OptionalStr,
            "formatted_by": OptionalStr,
            "degraded": bool,
        }
    ],
}
ERROR = {"error": {"kind": str, "message": str, "remedy": OptionalStr}}


def assert_shape(value: Any, shape: Any, at: str = "$") -> None:
    """Fail, naming the place, where ``value`` lacks something that ``shape`` has.

    A shape is a type, None, a tuple of alternatives, a list of one item's shape, or a dict of keys' shapes.
    """
    if isinstance(shape, tuple):
        assert any(_fits(value, one) for one in shape), f"{at} is {value!r}, which is none of {shape}"
    elif isinstance(shape, list):
        assert isinstance(value, list), f"{at} is {value!r}, not a list"
        for index, item in enumerate(value):
            assert_shape(item, shape[0], f"{at}[{index}]")
    elif isinstance(shape, dict):
        assert isinstance(value, dict), f"{at} is {value!r}, not an object"
        for key, inner in shape.items():
            assert key in value, f"{at} lacks {key!r}; it has {sorted(value)}"
            assert_shape(value[key], inner, f"{at}.{key}")
    elif shape is None:
        assert value is None, f"{at} is {value!r}, not null"
    else:
        # True is an int for Python, and none for JSON.
        right = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
        assert right, f"{at} is {value!r}, not {shape.__name__}"


def _fits(value: Any, shape: Any) -> bool:
    try:
        assert_shape(value, shape)
    except AssertionError:
        return False
    return True
