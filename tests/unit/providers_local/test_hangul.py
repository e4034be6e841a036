"""Korean lines are read by Tesseract, and nothing else is."""

from __future__ import annotations

import difflib
import sys

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageDraw, ImageFont

from examples.make import FERRY, KOREAN_FONT
from pipeline.providers.local.hangul import MIN_SCORE, HangulReader

pytest.importorskip("tesserocr", reason="there are no wheels of Tesseract for this system")

NOTHING = ("", 0.0)
LINES = [line for line in FERRY.splitlines() if line]


def picture(text: str, *, korean: bool = True, ink: int = 30, paper: int = 245) -> npt.NDArray[np.uint8]:
    """A line as the detector cuts it out (BGR)."""
    font = ImageFont.truetype(KOREAN_FONT, 34) if korean else ImageFont.load_default(34)
    page = Image.new("RGB", (int(font.getlength(text)) + 8, 48), (paper,) * 3)
    ImageDraw.Draw(page).text((4, 0), text, font=font, fill=(ink,) * 3)
    return np.asarray(page)[:, :, ::-1]


def likeness(read: str, text: str) -> float:
    a, b = "".join(read.split()), "".join(text.split())
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


@pytest.mark.parametrize(("ink", "paper"), [(30, 245), (245, 60)], ids=["dark on light", "light on dark"])
def test_korean_that_was_not_read_is_read(ink: int, paper: int) -> None:
    crops = [picture(line, ink=ink, paper=paper) for line in LINES]
    mended = HangulReader().mend(crops, [NOTHING] * len(crops))
    assert likeness("".join(text for text, _ in mended), FERRY) > 0.9
    assert all(MIN_SCORE <= score <= 1 for _, score in mended)


def test_what_was_read_surely_on_a_page_without_korean_is_not_looked_at() -> None:
    reader = HangulReader()
    read = [("Fuel is sold there", 0.99), ("from 7 to 11 only", 0.97)]
    assert reader.mend([picture(text, korean=False) for text, _ in read], read) == read
    assert "_tesseract" not in reader.__dict__, "the model was not even loaded"


def test_what_is_no_korean_stays_as_it_was_read() -> None:
    read = [("Boats wait at the pontoon", 0.6), ("", 0.1), *([("illegible scribble", 0.7)] * 6)]
    crops = [picture(text or "xq", korean=False) for text, _ in read]
    assert HangulReader().mend(crops, read) == read


def test_on_a_page_with_korean_lines_of_both_kinds_are_right_however_sure_their_readings_were() -> None:
    read = [NOTHING, ("Fuel is sold there", 0.98), ("，G，，11，，", 0.94)]
    crops = [picture(LINES[3]), picture(read[1][0], korean=False), picture(LINES[5])]
    korean, english, misread = HangulReader().mend(crops, read)
    assert likeness(korean[0], LINES[3]) > 0.8
    assert english == read[1]
    assert likeness(misread[0], LINES[5]) > 0.8


def test_without_its_wheel_everything_stays_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tesserocr", None)
    assert HangulReader().mend([picture(LINES[0])], [NOTHING]) == [NOTHING]
