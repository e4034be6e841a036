"""The committed examples are what ``examples/make.py`` makes."""

from __future__ import annotations

import zipfile
from io import BytesIO

from examples.make import FILES, HERE, rota_docx, scan_pdf


def test_every_example_is_committed_and_they_are_small() -> None:
    assert all((HERE / name).is_file() for name in FILES)
    assert sum((HERE / name).stat().st_size for name in FILES) < 300_000


def test_making_a_scan_twice_gives_the_same_bytes() -> None:
    assert scan_pdf() == scan_pdf()


def test_what_holds_no_drawn_text_is_the_same_with_every_pillow() -> None:
    for name in ("tide-gate-handbook.pdf", "pump-house.html", "incident-2025-11-14.md"):
        assert (HERE / name).read_bytes() == FILES[name]()
    with zipfile.ZipFile(HERE / "night-watch.docx") as kept, zipfile.ZipFile(BytesIO(rota_docx())) as made:
        assert kept.read("word/document.xml") == made.read("word/document.xml")
