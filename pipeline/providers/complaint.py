"""Providers' error bodies, in the shapes that they come in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.providers.lenient_json import JsonError, loads
from pipeline.providers.retry_after import duration_s

__all__ = ["Complaint", "complaint_of"]


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error as the provider worded it, not yet cleaned.

    Attributes:
        codes: Its codes and types, the most precise first.
        text: Its message; empty where the body was no error document.
        retry_after_s: From inside the body.
    """

    codes: tuple[str, ...] = ()
    text: str = field(default="", repr=False)
    status: int | None = None
    retry_after_s: float | None = None


def complaint_of(body: bytes | str | Mapping[str, Any] | None) -> Complaint:
    """Read an error body of any of the known shapes; only fields known to hold messages are taken."""
    if isinstance(body, (bytes, str)):
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        try:
            document = loads(body)
        except JsonError:
            return Complaint(text="" if "<html" in text[:2000].lower() or "<!doctype" in text[:2000].lower() else text)
    else:
        document = body
    if isinstance(document, list) and document:
        document = document[0]  # Gemini, when it streams
    if isinstance(document, str):
        return Complaint(text=document)
    return _read(document) if isinstance(document, Mapping) else Complaint()


def _read(document: Mapping[str, Any]) -> Complaint:
    error = document.get("error")
    inner = error if isinstance(error, Mapping) else document
    codes = tuple(_codes(inner)) + (() if inner is document else tuple(_codes(document)))
    number = next((int(code) for code in codes if code.isdigit() and len(code) == 3), None)
    return Complaint(
        codes=tuple(code for code in codes if not code.isdigit()),
        text=error if isinstance(error, str) else _text(inner),
        status=number,
        retry_after_s=_delay(inner),
    )


def _codes(error: Mapping[str, Any]) -> Iterator[str]:
    inner = error.get("innererror")
    details = error.get("details")
    sources: list[Mapping[str, Any]] = [inner] if isinstance(inner, Mapping) else []
    sources += [detail for detail in details if isinstance(detail, Mapping)] if isinstance(details, list) else []
    for source in [*sources, error]:
        for name in ("reason", "code", "type", "error_type", "status", "__type"):
            value = source.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                yield str(value)
            elif isinstance(value, str) and value and value != "error":
                # Bedrock: "com.amazonaws…#ThrottlingException:http://…"
                yield value.rpartition("#")[2].partition(":http")[0]


def _text(error: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "msg", "error_message", "Message"):
        value = error.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, Mapping):
            return _text(value)
        if isinstance(value, list):  # FastAPI: each item also holds the input, which is left out
            items = [item for item in value if isinstance(item, Mapping)]
            return "; ".join(str(item["msg"]) for item in items if "msg" in item)
    return ""


def _delay(error: Mapping[str, Any]) -> float | None:
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and "retryDelay" in detail:
            return duration_s(detail["retryDelay"])
    return None
