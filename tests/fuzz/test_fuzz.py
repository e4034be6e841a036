"""A few seconds of the fuzz, and that it would tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz import run, verdict
from tests.fuzz.run import Fuzz
from tests.fuzz.seeds import seeds
from tests.fuzz.verdict import Verdict, judged

SEED = 20251114


def test_damaged_files_of_every_kind_end_in_pages_or_a_refusal(tmp_path: Path) -> None:
    report = Fuzz(SEED, tmp_path).run(seconds=8, jobs=2)
    assert report.cases >= 2
    assert not report.wrong, str(report)


def test_a_case_is_the_same_each_time(tmp_path: Path) -> None:
    made = [Fuzz(SEED, tmp_path).made(number) for number in range(5)]
    assert made == [Fuzz(SEED, tmp_path).made(number) for number in range(5)]
    assert made != [Fuzz(SEED + 1, tmp_path).made(number) for number in range(5)]


def test_it_begins_with_files_of_every_kind() -> None:
    kinds = {Path(name).suffix for name in seeds()}
    assert {".pdf", ".docx", ".pptx", ".doc", ".xls", ".ppt", ".odt", ".msg", ".epub", ".rtf", ".tiff", ".eml"} <= kinds


def test_what_goes_wrong_is_kept_with_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "judged", lambda *_: Verdict("crash", "KeyError: 'x'", "Traceback"))
    fuzz = Fuzz(7, tmp_path / "out")
    report = fuzz.run(seconds=0, jobs=1)
    assert [case.number for case in report.wrong] == [0]
    assert "WRONG case 0" in str(report)
    kept = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert kept[0].startswith("7-0-")
    assert json.loads((tmp_path / "out" / "7-0.json").read_text())["wrong"] == "KeyError: 'x'"
    (file,) = (path for path in (tmp_path / "out").iterdir() if path.suffix != ".json" or "-0-" in path.name)
    assert file.read_bytes() == fuzz.made(0).data


def test_a_traceback_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("part")

    (tmp_path / "file").write_text("words")
    monkeypatch.setattr(verdict, "parse", broken)
    found = judged(tmp_path / "file", tmp_path)
    assert found.wrong == "KeyError: 'part'"
    assert "Traceback" in found.detail
