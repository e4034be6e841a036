from __future__ import annotations

from pathlib import Path

from pipeline.documents.sniff import sniff
from worker.outage.documents import feed, write_sheets
from worker.outage.script import DEFAULT_SCRIPT


def test_every_sheet_is_another_document_of_its_own_type(tmp_path: Path) -> None:
    sheets = write_sheets(tmp_path / "sheets", 60)
    assert len({path.read_text(encoding="utf-8") for path in sheets}) == 60
    assert {path.suffix: sniff(path) for path in sheets[:3]} == {
        ".md": "text/markdown",
        ".html": "text/html",
        ".txt": "text/plain",
    }


def test_sheets_come_evenly_and_scans_one_a_phase() -> None:
    sheets = [Path(f"{number}.md") for number in range(10)]
    scans = [Path(f"{number}.png") for number in range(3)]
    arrivals = feed(sheets, [Path("other.docx")], scans, DEFAULT_SCRIPT, 30.0)
    assert [one.at_s for one in arrivals] == sorted(one.at_s for one in arrivals)
    assert [one.at_s for one in arrivals if one.path in sheets] == [3.0 * number for number in range(10)]
    assert [(one.at_s, str(one.path)) for one in arrivals if one.path in scans] == [
        (0.0, "0.png"),
        (7.5, "1.png"),
        (25.5, "2.png"),
    ]
