"""Plain text, Markdown, CSV/TSV, JSON and JSON Lines, in whatever encoding they come."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.documents import media
from pipeline.documents.encodings import decode
from pipeline.documents.job import Event, Job
from pipeline.documents.pages import first_heading, number_pages, text_page
from pipeline.documents.sections import MAX_SECTION_CHARS, plain_sections, sections
from pipeline.domain.document import ParsedPage, TextFormat
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["read", "table_rows"]

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"""^title:[ \t]{0,9}["']?(.{1,300}?)["']?[ \t]{0,9}$""", re.MULTILINE)
# Manual pages type a letter twice for bold, and a line under it; the last one typed is what is read.
_OVERSTRUCK = re.compile(r"[^\n\x08]\x08")
_DELIMITERS = ",;\t|"
# What Excel writes, and reads, before the first row.
_SEPARATOR = re.compile(r"""\A"?sep=([^\r\n"])"?(?:\r\n?|\n)""", re.IGNORECASE)
_ESCAPED = re.compile(r"\\u[0-9a-f]{4}", re.IGNORECASE)
_MAX_CELLS = 2_000_000
_MAX_FILLED_CELLS = 10_000_000


def read(job: Job) -> Iterator[Event]:
    """Parse a text file into sections.

    Raises:
        RejectedInput: ``too_large``: a table of millions of cells, or more sections than ``limits.max_pages``.
    """
    text = safe_text(_OVERSTRUCK.sub("", decode(job.path.read_bytes())))
    reader, text_format = _READERS[job.media_type]
    title, parts = reader(text)
    yield from number_pages(_pages(parts, text_format, job.limits.max_pages), title)


def _pages(parts: Iterator[str], text_format: TextFormat, max_pages: int) -> Iterator[ParsedPage]:
    for number, part in enumerate((part for part in parts if part.strip()), start=1):
        if number > max_pages:
            raise RejectedInput("too_large", f"more than {max_pages} sections of text; limits.max_pages = {max_pages}")
        yield text_page(number, part, text_format)


def _plain(text: str) -> tuple[str | None, Iterator[str]]:
    return None, plain_sections(text)


def _markdown(text: str) -> tuple[str | None, Iterator[str]]:
    text = text.replace("\r\n", "\n")
    title, front = None, _FRONT_MATTER.match(text)
    if front is not None:
        declared = _FRONT_TITLE.search(front.group(1))
        title = declared.group(1) if declared else None
        # Kept, as what it is: its values may be what somebody searches for.
        text = f"```yaml\n{front.group(1)}\n```\n\n{text[front.end() :]}"
    return title or first_heading(text), sections(text)


def _csv(text: str) -> tuple[str | None, Iterator[str]]:
    return None, _tables(text, None)


def _tsv(text: str) -> tuple[str | None, Iterator[str]]:
    return None, _tables(text, "\t")


def _tables(text: str, delimiter: str | None) -> Iterator[str]:
    """Rows as Markdown tables; every section repeats the first row, as it is the header nearly always."""
    said = _SEPARATOR.match(text)
    if said is not None:
        delimiter, text = said[1], text[said.end() :]
    rows = list(_records(text, delimiter or _delimiter(text)))
    # One row of a million cells makes every other one as wide.
    if rows and len(rows) * max(map(len, rows)) > _MAX_FILLED_CELLS:
        raise RejectedInput("too_large", f"a table that is filled up to more than {_MAX_FILLED_CELLS:,} cells")
    if rows:
        yield from sections(table_rows(rows))


def _records(text: str, delimiter: str) -> Iterator[list[str]]:
    csv.field_size_limit(max(len(text), 1))
    cells = 0
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
        cells += len(row)
        if cells > _MAX_CELLS:
            raise RejectedInput("too_large", f"a table of more than {_MAX_CELLS:,} cells")
        if any(cell.strip() for cell in row):
            yield row


def _delimiter(text: str) -> str:
    """The delimiter that cuts the first lines into the most equal rows."""
    lines = [line for line in text[:65_536].splitlines() if line.strip()][:20]
    counts = {mark: [line.count(mark) for line in lines] for mark in _DELIMITERS}
    return max(counts, key=lambda mark: (min(counts[mark], default=0), sum(counts[mark])))


def table_rows(rows: list[list[str]]) -> str:
    """Write rows as a Markdown table, the first as its header; cells are escaped and rows filled up."""
    width = max(len(row) for row in rows)
    lines = ["| " + " | ".join([_cell(cell) for cell in row] + [""] * (width - len(row))) + " |" for row in rows]
    lines.insert(1, "| " + " | ".join(["---"] * width) + " |")
    return "\n".join(lines)


def _cell(cell: str) -> str:
    return " ".join(cell.split()).replace("\\", "\\\\").replace("|", "\\|")


def _json(text: str) -> tuple[str | None, Iterator[str]]:
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return None, plain_sections(text)
    title = value.get("title") if isinstance(value, dict) else None
    return title if isinstance(title, str) else None, _fenced(json.dumps(value, ensure_ascii=False, indent=2))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; one that gives a name twice is none, so that the file is kept as it is written."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError
    return members


def _json_lines(text: str) -> tuple[str | None, Iterator[str]]:
    lines = (_spelled_out(line) if _ESCAPED.search(line) else line for line in text.strip("\n").split("\n"))
    return None, _fenced("\n".join(lines))


def _spelled_out(line: str) -> str:
    """A line whose letters are written as numbers, in letters; as it is, where it is no JSON."""
    try:
        return json.dumps(json.loads(line, object_pairs_hook=_object), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line


def _fenced(text: str) -> Iterator[str]:
    if text.strip() in ("", "{}", "[]", "null", '""'):
        return
    # What was written as numbers may be half a character.
    for part in plain_sections(safe_text(text), MAX_SECTION_CHARS - 20):
        yield f"```json\n{part}\n```"


_READERS: dict[str, tuple[Callable[[str], tuple[str | None, Iterator[str]]], TextFormat]] = {
    media.PLAIN: (_plain, TextFormat.PLAIN),
    media.MARKDOWN: (_markdown, TextFormat.MARKDOWN),
    media.CSV: (_csv, TextFormat.MARKDOWN),
    media.TSV: (_tsv, TextFormat.MARKDOWN),
    media.JSON: (_json, TextFormat.MARKDOWN),
    media.JSONL: (_json_lines, TextFormat.MARKDOWN),
}
