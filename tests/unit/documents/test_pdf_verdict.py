"""Text layers that say other than the page shows are not believed; honest ones that look alike are."""

from __future__ import annotations

import zlib

import pytest

from examples.make import Pdf
from pipeline.documents import media
from pipeline.documents.pdf import read
from pipeline.domain.document import ParsedPage, TextQuality
from tests.unit.documents.conftest import MakeJob
from tests.unit.documents.test_pdf import mapped

_WORDS = "the keeper of the northern gate writes the level into the book"


def parsed(make_job: MakeJob, content: bytes) -> ParsedPage:
    (page,) = [event for event in read(make_job(content, media.PDF)) if isinstance(event, ParsedPage)]
    return page


def lines(count: int, *, before: str = "") -> str:
    return "".join(f"BT {before} /F0 10 Tf 60 {700 - 14 * n} Td ({_WORDS} {n}) Tj ET\n" for n in range(count))


def with_picture(drawing: str, *, gray: bytes = b"\x80", entries: str = "") -> bytes:
    """A page with an image that ``/I0 Do`` draws: half of it black."""
    pdf = Pdf("")
    data = zlib.compress(b"\x00" * 5_000 + gray * 5_000)
    size = "/Width 100 /Height 100 /ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /FlateDecode"
    if entries:
        mask = pdf.stream(zlib.compress(b"\x40" * 10_000), f"/Type /XObject /Subtype /Image {size}")
        entries = entries.replace("MASK", f"{mask} 0 R")
    picture = pdf.stream(data, f"/Type /XObject /Subtype /Image {size} {entries}")
    pdf.page(drawing, [picture])
    return pdf.write()


def plain(drawing: str) -> bytes:
    pdf = Pdf("")
    pdf.page(drawing)
    return pdf.write()


_FULL_PAGE = "q 595 0 0 842 0 0 cm /I0 Do Q\n"


def test_text_under_a_picture_of_the_page_is_not_believed(make_job: MakeJob) -> None:
    page = parsed(make_job, with_picture(lines(12) + _FULL_PAGE))
    assert page.text_quality is TextQuality.POOR
    assert page.image is not None


def test_text_over_a_picture_of_the_page_is_believed(make_job: MakeJob) -> None:
    assert parsed(make_job, with_picture(_FULL_PAGE + lines(12))).text_quality is TextQuality.GOOD


def test_a_watermark_over_the_page_hides_nothing(make_job: MakeJob) -> None:
    content = with_picture(lines(12) + _FULL_PAGE, entries="/SMask MASK")
    assert parsed(make_job, content).text_quality is TextQuality.GOOD


def test_a_small_picture_hides_nothing(make_job: MakeJob) -> None:
    content = with_picture(lines(12) + "q 200 0 0 200 60 400 cm /I0 Do Q\n")
    assert parsed(make_job, content).text_quality is TextQuality.GOOD


@pytest.mark.parametrize("how", ["1 g", "3 Tr", "7 Tr"])
def test_text_that_nobody_sees_on_an_empty_page_costs_no_call(make_job: MakeJob, how: str) -> None:
    page = parsed(make_job, plain(lines(12, before=how)))
    assert page.text_quality is TextQuality.POOR
    assert page.blank
    assert page.image is None


def test_white_text_on_a_dark_ground_is_believed(make_job: MakeJob) -> None:
    page = parsed(make_job, plain("0 0 0.4 rg 0 0 595 842 re f\n" + lines(12, before="1 g")))
    assert page.text_quality is TextQuality.GOOD
    assert not page.blank


def alphabet(start: int) -> dict[str, str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {letter: f"{start + at:04x}" for at, letter in enumerate(letters)} | {" ": "0020"}


def test_letters_of_all_scripts_in_one_word_are_not_believed(make_job: MakeJob) -> None:
    # A subset's codes, one after the other, taken for characters of Hebrew, Greek, Cyrillic and Thai in turn.
    scripts = (0x05D0, 0x03B1, 0x0430, 0x0E01)
    jumble = {letter: f"{scripts[at % 4] + at // 4:04x}" for at, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
    page = parsed(make_job, mapped(f"{_WORDS} {_WORDS}", jumble | {" ": "0020"}))
    assert page.text_quality is TextQuality.POOR
    assert page.image is not None


@pytest.mark.parametrize("start", [0x0430, 0x03B1, 0x4E00, 0x3042, 0xAC00], ids=["ru", "el", "zh", "ja", "ko"])
def test_words_of_any_one_script_are_believed(make_job: MakeJob, start: int) -> None:
    assert parsed(make_job, mapped(f"{_WORDS} {_WORDS}", alphabet(start))).text_quality is TextQuality.GOOD


def test_words_of_two_scripts_side_by_side_are_believed(make_job: MakeJob) -> None:
    half = {letter: code for letter, code in alphabet(0x4E00).items() if letter < "f"}
    words = "abcdeZYXWV edcba QRSTU abcde gate"
    latin = {letter: f"{ord(letter):04x}" for letter in "ZYXWVQRSTUgatn"}
    page = parsed(make_job, mapped(f"{words} {words} {words}", latin | half))
    assert page.text_quality is TextQuality.GOOD


def test_codes_in_a_private_area_are_not_believed(make_job: MakeJob) -> None:
    assert parsed(make_job, mapped(f"{_WORDS} {_WORDS}", alphabet(0xE100))).text_quality is TextQuality.POOR
