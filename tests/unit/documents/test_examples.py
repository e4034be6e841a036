"""The committed examples are what ``examples/make.py`` makes."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from PIL import ImageFont

from examples.make import (
    CHINESE_FONT,
    FERRY,
    FILES,
    HERE,
    KOREAN_FONT,
    NOTICE_1994,
    chinese_docx,
    chinese_scan_pdf,
    korean_scan_pdf,
    rota_docx,
    scan_pdf,
)


def test_every_example_is_committed_and_they_are_small() -> None:
    assert all((HERE / name).is_file() for name in FILES)
    assert sum((HERE / name).stat().st_size for name in FILES) < 340_000


def test_making_a_scan_twice_gives_the_same_bytes() -> None:
    assert scan_pdf() == scan_pdf()
    assert chinese_scan_pdf() == chinese_scan_pdf()
    assert korean_scan_pdf() == korean_scan_pdf()


def test_what_holds_no_drawn_text_is_the_same_with_every_pillow() -> None:
    for name in ("tide-gate-handbook.pdf", "pump-house.html", "incident-2025-11-14.md"):
        assert (HERE / name).read_bytes() == FILES[name]()
    for name, maker in (("night-watch.docx", rota_docx), ("pump-house-zh.docx", chinese_docx)):
        with zipfile.ZipFile(HERE / name) as kept, zipfile.ZipFile(BytesIO(maker())) as made:
            assert kept.read("word/document.xml") == made.read("word/document.xml")


@pytest.mark.parametrize(("face", "text"), [(CHINESE_FONT, NOTICE_1994), (KOREAN_FONT, FERRY)])
def test_the_font_of_a_scan_has_all_its_letters(face: Path, text: str) -> None:
    font = ImageFont.truetype(face, 32)
    missing = font.getmask("\U0010ffff").getbbox()
    assert [sign for sign in set("".join(text.split())) if font.getmask(sign).getbbox() == missing] == []
