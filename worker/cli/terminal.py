"""What a command says: tables and lines for people, one JSON document for programs, errors on stderr.

Everything that comes from documents, models or the file system is made safe here before a terminal sees it.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TextIO
from uuid import UUID

import orjson

if TYPE_CHECKING:
    import typer
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["Column", "Terminal", "make_table", "one_line", "printable", "terminal_of"]

# Far wider than any table: what is piped is neither wrapped nor cut.
_PIPE_WIDTH = 10_000
_GAP = "  "
_LEAST_CELLS = 8
_LABEL_CELLS = 10
# Controls, escape sequences' beginnings and the line breaks of Unicode; a tab and a newline are kept by `printable`.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ORJSON = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_SPACES = re.compile(r"\s+")


def printable(text: str) -> str:
    """Text of any origin without what a terminal would obey; its lines stay."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: object) -> str:
    """Text of any origin, on one line."""
    return printable(_SPACES.sub(" ", str(text)).strip())


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column.

    Attributes:
        title: Its head; empty for none.
        right: Numbers are flush right.
        cut: Whether it gives way, with an ellipsis, where the terminal is too narrow: at its ``end``, or at its
            ``start`` (a path's name is its end).
    """

    title: str = ""
    right: bool = False
    cut: Literal["", "start", "end"] = ""
    style: str = ""


def make_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int = _PIPE_WIDTH) -> Table:
    """A table without lines, not wider than ``width`` as long as its cut columns have something to give.

    rich itself would take the room from the columns that may wrap, down to nothing.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [[cell if isinstance(cell, Text) else Text(one_line(cell)) for cell in row] for row in rows]
    widths = [max([cell_len(column.title), *(row[n].cell_len for row in cells)]) for n, column in enumerate(columns)]
    excess = sum(widths) + len(_GAP) * (len(columns) - 1) - width
    givers = [n for n, column in enumerate(columns) if column.cut]
    while excess > 0 and givers and widths[widest := max(givers, key=widths.__getitem__)] > _LEAST_CELLS:
        widths[widest] -= 1
        excess -= 1
    table = Table(box=None, show_header=any(c.title for c in columns), header_style="dim", pad_edge=False)
    table.padding = (0, len(_GAP), 0, 0)
    for column, room in zip(columns, widths, strict=True):
        justify: Literal["right", "left"] = "right" if column.right else "left"
        table.add_column(column.title, justify=justify, no_wrap=True, style=column.style, max_width=room)
    for row in cells:
        table.add_row(*(_cropped(cell, room, c.cut) for cell, room, c in zip(row, widths, columns, strict=True)))
    return table


def _cropped(cell: Text, room: int, cut: str) -> Text:
    if not cut or cell.cell_len <= room:
        return cell
    from rich.text import Text

    text = cell.plain
    while text and Text(text).cell_len >= room:
        text = text[1:] if cut == "start" else text[:-1]
    return Text(f"…{text}" if cut == "start" else f"{text.rstrip()}…", style=cell.style)


class Terminal:
    """Where a command writes. JSON and tables go to stdout, everything else to stderr.

    Args:
        as_json: One JSON document instead of text for people.
        debug: Tracebacks and debug logs.
    """

    def __init__(self, *, as_json: bool = False, debug: bool = False, out: TextIO | None = None) -> None:
        self.as_json = as_json
        self.debug = debug
        self._out = sys.stdout if out is None else out
        self._emitted = False
        self._console: Console | None = None

    @property
    def is_tty(self) -> bool:
        """Whether a person watches stdout."""
        return self._out.isatty()

    @property
    def is_watched(self) -> bool:
        """Whether a live display has somewhere to be shown: a terminal, and no document to be read by a program."""
        return self.is_tty and not self.as_json

    @property
    def console(self) -> Console:
        """Rich's console for stdout, without colours where it is no terminal."""
        if self._console is None:
            from rich.console import Console

            width = None if self.is_tty else _PIPE_WIDTH
            self._console = Console(file=self._out, width=width, highlight=False, markup=False, emoji=False)
        return self._console

    def emit(self, document: Mapping[str, Any]) -> None:
        """Print the one JSON document, with ``--json``; a second one (an error after the result) is left out.

        An iterator among its values becomes an array that is made and written item by item, a line each: there may
        be very many.
        """
        if self._emitted or not self.as_json:
            return
        self._emitted = True
        before = "{"
        for key, value in document.items():
            self._out.write(f"{before}\n  {self._written(key)}: ")
            if isinstance(value, Iterator):
                self._emit_items(value)
            else:
                # Its strings hold no line breaks.
                self._out.write(self._written(value).replace("\n", "\n  "))
            before = ","
        self._out.write("{}\n" if before == "{" else "\n}\n")

    def _emit_items(self, items: Iterator[Any]) -> None:
        before = "["
        for item in items:
            self._out.write(f"{before}\n    {self._written(item, indent=False)}")
            before = ","
        self._out.write("[]" if before == "[" else "\n  ]")

    def _written(self, value: Any, *, indent: bool = True) -> str:
        ascii_only = (self._out.encoding or "ascii").lower().replace("-", "") not in ("utf8", "utf8sig")
        if not ascii_only:
            with suppress(orjson.JSONEncodeError):
                return orjson.dumps(value, _plain, _ORJSON | (orjson.OPT_INDENT_2 if indent else 0)).decode()
            # A lone surrogate can be no UTF-8; escaped it is still JSON.
        return json.dumps(value, indent=2 if indent else None, default=_plain)

    def print(self, renderable: RenderableType = "") -> None:
        """Print for people; nothing with ``--json``."""
        if self.as_json:
            return
        from rich.text import Text

        # The terminal breaks lines where they end; what is copied from it then has no breaks of ours.
        soft = isinstance(renderable, str | Text)
        if self.is_tty:
            self.console.print(renderable, soft_wrap=soft)
        else:
            with self.console.capture() as captured:
                self.console.print(renderable, soft_wrap=soft)
            for line in captured.get().splitlines():
                self._out.write(line.rstrip() + "\n")

    def line(self, *parts: object) -> None:
        """Print one line, each part made safe."""
        self.print(" ".join(one_line(part) for part in parts))

    def raw(self, text: str) -> None:
        """Print text as it is, or made safe where a terminal reads it."""
        if not self.as_json:
            self._out.write(printable(text) if self.is_tty else text)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """Print rows under heads. A cell is any value, or a rich text where it has a style of its own."""
        if not self.as_json:
            self.print(make_table(columns, rows, self.console.width))

    def facts(self, rows: Iterable[tuple[str, object]]) -> None:
        """Print labelled lines, each as long as it has to be."""
        if self.as_json:
            return
        from rich.text import Text

        for label, value in rows:
            text = value if isinstance(value, Text) else Text(one_line(value))
            self.print(Text.assemble((f"{label:<{_LABEL_CELLS}}", "dim"), text))

    def note(self, text: str) -> None:
        """Say something beside the result, on stderr."""
        sys.stderr.write(printable(text).rstrip("\n") + "\n")
        sys.stderr.flush()

    def fail(self, kind: str, message: str, remedy: str = "", **more: Any) -> None:
        """Say an error: the fact, then the remedy; with ``--json`` to stdout as well."""
        self.note(f"{message}\n{remedy}" if remedy else message)
        self.emit({"error": {"kind": kind, "message": message, "remedy": remedy or None, **more}})

    def flush(self) -> None:
        """Send what was written on its way.

        Raises:
            BrokenPipeError: Nobody reads any more.
        """
        self._out.flush()

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody reads stdout any more."""
        poller = select.poll()
        poller.register(self._out.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poller.poll(0))

    def abandon(self) -> None:
        """Nobody reads stdout any more: let the interpreter's last flush go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._out.fileno())
        os.close(nowhere)


def terminal_of(context: typer.Context) -> Terminal:
    """The terminal that ``main`` made for this command."""
    found = context.find_root().obj
    if not isinstance(found, Terminal):
        msg = "a command was started without a terminal"
        raise TypeError(msg)
    return found


def _plain(value: object) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID | PurePath):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    msg = f"{type(value).__name__} is no JSON"
    raise TypeError(msg)
