"""What is written on a PDF page beside its content is read where a reader sees it, and drawn in the page's image."""

from __future__ import annotations

import pytest
from PIL import Image

from examples.make import Pdf
from pipeline.documents import media
from pipeline.documents.pdf import read
from pipeline.domain.document import ParsedPage
from tests.unit.documents.conftest import MakeJob


def page_of(make_job: MakeJob, notes: list[str], *, drawing: str = "", form: bool = False, turn: int = 0) -> ParsedPage:
    """A page with annotations, given by their entries."""
    pdf = Pdf("")
    numbers = [pdf.add(f"<< /Type /Annot {note} >>".encode()) for note in notes]
    pdf.page(drawing)
    listed = " ".join(f"{number} 0 R" for number in numbers)
    content = pdf.write().replace(b"/MediaBox", f"/Rotate {turn} /Annots [{listed}] /MediaBox".encode())
    if form:
        fields = f"/AcroForm << /Fields [{listed}] /NeedAppearances true /DA (/Helv 12 Tf 0 g) >>"
        content = content.replace(b"/Type /Catalog", f"/Type /Catalog {fields}".encode())
    events = list(read(make_job(content, media.PDF, images="all")))
    return next(event for event in events if isinstance(event, ParsedPage))


def field(name: str, value: str, y: int) -> str:
    where = f"/Rect [160 {y} 360 {y + 18}] /F 4"
    return f"/Subtype /Widget /FT /Tx /T ({name}) /V ({value}) /DA (/Helv 12 Tf 0 g) {where}"


def free_text(words: str, entries: str = "") -> str:
    return f"/Subtype /FreeText /DA (/Helv 12 Tf 0 g) /Contents ({words}) /Rect [60 300 260 330] {entries}"


def labels(*words: str) -> str:
    return "".join(f"BT /F0 12 Tf 60 {705 - 30 * n} Td ({word}) Tj ET\n" for n, word in enumerate(words))


FORM = [field("keeper", "Oda Lunt", 700), field("gate", "the north one", 670)]


@pytest.mark.parametrize("turn", [0, 90])
def test_the_values_of_a_form_stand_beside_their_labels(make_job: MakeJob, turn: int) -> None:
    page = page_of(make_job, FORM, drawing=labels("Keeper", "Gate", "Closing line"), form=True, turn=turn)
    assert [line for line in page.text.splitlines() if line] == [
        "Keeper\tOda Lunt",
        "Gate\tthe north one",
        "Closing line",
    ]


def test_a_page_that_has_only_values_is_not_blank(make_job: MakeJob) -> None:
    page = page_of(make_job, FORM, form=True)
    assert not page.blank
    assert page.text.split() == ["Oda", "Lunt", "the", "north", "one"]


def test_a_note_is_read_and_drawn(make_job: MakeJob) -> None:
    page = page_of(make_job, [free_text("mind the sill")], drawing=labels("Above"))
    assert page.text.split("\n\n") == ["Above", "mind the sill"]
    assert page.image is not None
    with Image.open(page.image.path) as image:
        middle = image.convert("L").crop((0, image.height // 2, image.width, image.height))
        assert min(middle.tobytes()) < 100


@pytest.mark.parametrize("flags", [2, 32])
def test_a_note_that_is_not_for_the_screen_stays_hidden(make_job: MakeJob, flags: int) -> None:
    page = page_of(make_job, [free_text("not to be seen", f"/F {flags}")], drawing=labels("Above"))
    assert page.text == "Above"


def test_links_and_closed_popups_add_nothing(make_job: MakeJob) -> None:
    where = "/Rect [60 300 260 330]"
    notes = [f"/Subtype /Link /Border [0 0 1] {where}", f"/Subtype /Popup /Contents (aside) {where}"]
    assert page_of(make_job, notes, drawing=labels("Above")).text == "Above"


def test_a_mark_stays_in_the_image_of_a_page_with_notes(make_job: MakeJob) -> None:
    mark = "/Subtype /Square /C [1 0 0] /Rect [60 100 500 200]"
    page = page_of(make_job, [mark, free_text("mind the sill")])
    assert page.text == "mind the sill"
    assert page.image is not None
    with Image.open(page.image.path) as image:
        low = image.crop((0, image.height * 3 // 4, image.width, image.height))
        colours = list(zip(low.getchannel("R").tobytes(), low.getchannel("G").tobytes(), strict=True))
        assert any(red > 200 and green < 100 for red, green in colours)
