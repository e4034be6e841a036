from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from rich.console import Console

from worker.cli.terminal import Column, Terminal, make_table, one_line, printable


def test_text_from_elsewhere_cannot_command_a_terminal() -> None:
    assert one_line("a\x1b[2Jb\nc\td") == "a\N{REPLACEMENT CHARACTER}[2Jb c d"
    assert printable("line\nnext\x9b1m\u202e") == "line\nnext\N{REPLACEMENT CHARACTER}1m\N{REPLACEMENT CHARACTER}"


def test_with_json_there_is_one_document_and_nothing_else() -> None:
    out = io.StringIO()
    terminal = Terminal(as_json=True, out=out)
    terminal.line("for people")
    terminal.table([Column("a")], [("b",)])
    terminal.emit({"when": datetime(2026, 1, 2, tzinfo=UTC), "path": Path("/x"), "id": UUID(int=1)})
    terminal.emit({"error": "a second one"})
    assert json.loads(out.getvalue()) == {
        "when": "2026-01-02T00:00:00+00:00",
        "path": "/x",
        "id": "00000000-0000-0000-0000-000000000001",
    }


def test_a_first_column_gives_way_too_where_the_terminal_is_too_narrow() -> None:
    table = make_table([Column("target", cut="end"), Column("state")], [("vision qwen@vllm-1:8000", "closed")], 20)
    console = Console(file=io.StringIO(), width=20)
    with console.capture() as captured:
        console.print(table)
    assert captured.get().splitlines()[1].split() == ["vision", "qwen…", "closed"]


def test_many_items_are_written_as_they_are_made() -> None:
    out = io.StringIO()
    seen: list[int] = []

    def items() -> Iterator[dict[str, object]]:
        for number in range(3):
            seen.append(out.getvalue().count("path"))
            yield {"path": f"caf\udce9 {number}", "tags": ["a\nb"]}

    document = {"batch": {"label": "x\ny"}, "documents": items(), "none": iter(()), "counts": {}}
    Terminal(as_json=True, out=out).emit(document)

    read = json.loads(out.getvalue())
    assert read["batch"] == {"label": "x\ny"}
    assert [one["path"] for one in read["documents"]] == [f"caf\udce9 {number}" for number in range(3)]
    assert (read["none"], read["counts"]) == ([], {})
    assert seen == [0, 1, 2]


def test_without_json_no_document_is_printed() -> None:
    out = io.StringIO()
    Terminal(out=out).emit({"a": 1})
    assert out.getvalue() == ""


def test_a_lone_surrogate_is_still_json() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    Terminal(as_json=True, out=out).emit({"path": "caf\udce9", "title": "Über"})
    out.seek(0)
    assert json.loads(out.read()) == {"path": "caf\udce9", "title": "Über"}


def test_tables_are_neither_cut_nor_padded_where_they_are_piped() -> None:
    out = io.StringIO()
    path = "/very/long/" + "x" * 300
    Terminal(out=out).table([Column("path", cut="start"), Column("n", right=True)], [(path, 1), ("[b]y[/b]", 20)])
    lines = out.getvalue().splitlines()
    assert lines[1] == f"{path}   1"
    assert lines[2].startswith("[b]y[/b]")
    assert all(line == line.rstrip() for line in lines)


def test_an_error_is_its_fact_and_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    Terminal(as_json=True, out=out).fail("usage", "the fact", "the remedy", problems=["x"])
    assert capsys.readouterr().err == "the fact\nthe remedy\n"
    assert json.loads(out.getvalue()) == {
        "error": {"kind": "usage", "message": "the fact", "remedy": "the remedy", "problems": ["x"]}
    }
