"""PDF pages: text in reading order and judged, images only where one is needed, blanks told, locks and damage named."""

from __future__ import annotations

import io
import re
import zlib

import pytest
from PIL import Image, ImageDraw, ImageFont

from examples.make import Pdf, handbook_pdf, scan_pdf
from pipeline.documents import media
from pipeline.documents.job import Begun, Ended, Opened
from pipeline.documents.pdf import read
from pipeline.domain.document import Limits, ParsedPage, TextQuality
from pipeline.domain.errors import RejectedInput
from tests.unit.documents.conftest import MakeJob


def pages(make_job: MakeJob, content: bytes, **changes: object) -> list[ParsedPage]:
    return [event for event in read(make_job(content, media.PDF, **changes)) if isinstance(event, ParsedPage)]


def only(make_job: MakeJob, *drawings: str, **changes: object) -> ParsedPage:
    pdf = Pdf("")
    for drawing in drawings:
        pdf.page(drawing)
    return pages(make_job, pdf.write(), **changes)[0]


def shown(x: float, y: float, words: str, size: float = 10, mode: int = 0) -> str:
    return f"BT /F0 {size} Tf {mode} Tr {x} {y} Td ({words}) Tj ET\n"


def with_image(drawing: str, *, gray: int = 255, words: str = "") -> bytes:
    image = Image.new("L", (600, 850), gray)
    ImageDraw.Draw(image).text((60, 100), words, font=ImageFont.load_default(48), fill=0)
    pdf = Pdf("")
    data = zlib.compress(image.tobytes())
    number = pdf.stream(
        data,
        "/Type /XObject /Subtype /Image /Width 600 /Height 850 /ColorSpace /DeviceGray /BitsPerComponent 8 "
        "/Filter /FlateDecode",
    )
    pdf.page(f"q 595 0 0 842 0 0 cm /I0 Do Q\n{drawing}", [number])
    return pdf.write()


def test_events_come_page_by_page_and_a_later_start_skips_what_was_read(make_job: MakeJob) -> None:
    events = list(read(make_job(handbook_pdf(), media.PDF)))
    assert [type(event) for event in events] == [Opened, Begun, ParsedPage, Begun, ParsedPage, Ended]
    assert [page.number for page in pages(make_job, handbook_pdf(), first_page=2)] == [2]


def test_a_table_has_a_tab_between_cells_and_a_line_a_row(make_job: MakeJob) -> None:
    first, _ = pages(make_job, handbook_pdf())
    assert first.text_quality is TextQuality.GOOD
    assert not first.has_figures
    assert first.image is None
    assert (
        "Gate\tSill level\tOpens below\tCloses above\tTime to open\n"
        "North gate\t-0.40 m\t1.85 m\t2.10 m\t6 min\n" in first.text
    )


def test_empty_cells_stay_empty(make_job: MakeJob) -> None:
    rows = [("gate", "level", "state"), ("north", "", "open"), ("", "2.1", "shut")]
    drawing = "".join(
        shown(60 + 120 * x, 700 - 16 * y, cell) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell
    )
    assert only(make_job, drawing).text == "gate\tlevel\tstate\nnorth\t\topen\n\t2.1\tshut"


def test_paragraphs_are_parted_and_hyphens_at_line_ends_are_kept_as_written(make_job: MakeJob) -> None:
    drawing = shown(60, 700, "The first para-") + shown(60, 688, "graph ends.") + shown(60, 660, "The second one.")
    assert only(make_job, drawing).text == "The first para-\ngraph ends.\n\nThe second one."


def test_two_columns_written_line_by_line_are_read_one_after_the_other(make_job: MakeJob) -> None:
    drawing = "".join(
        shown(60, 700 - 12 * n, f"left column running text {n:02}")
        + shown(320, 700 - 12 * n, f"right side of the text {n:02}")
        for n in range(14)
    )
    text = only(make_job, drawing).text
    assert text.index("left column running text 13") < text.index("right side of the text 00")


def test_lines_written_in_a_jumble_are_put_in_order(make_job: MakeJob) -> None:
    order = [7, 2, 9, 0, 5, 8, 1, 6, 3, 4]
    drawing = "".join(shown(60, 700 - 14 * n, f"this is line number {n}") for n in order)
    lines = [line for line in only(make_job, drawing).text.splitlines() if line]
    assert lines == [f"this is line number {n}" for n in range(10)]


def test_a_scan_has_no_text_and_an_image(make_job: MakeJob) -> None:
    (page,) = pages(make_job, scan_pdf())
    assert page.text_quality is TextQuality.NONE
    assert page.has_figures
    assert page.image is not None
    assert (page.image.width_px, page.image.height_px) == (1089, 1540)


def test_invisible_text_over_a_scan_is_not_believed(make_job: MakeJob) -> None:
    content = with_image(shown(60, 700, "an old ocr layer with qu1te s0me err0rs", mode=3), words="SCANNED")
    (page,) = pages(make_job, content)
    assert page.text_quality is TextQuality.POOR
    assert page.image is not None
    assert page.text.startswith("an old ocr layer")


def test_a_stamp_on_a_scan_is_not_the_pages_text(make_job: MakeJob) -> None:
    (page,) = pages(make_job, with_image(shown(500, 20, "page 12"), words="SCANNED"))
    assert page.text_quality is TextQuality.PARTIAL
    assert page.image is not None


def test_currency_signs_that_stand_apart_belong_to_the_amounts_behind_them(make_job: MakeJob) -> None:
    rows = "".join(
        shown(60, y, label) + "".join(shown(x, y, word) for x, word in cells)
        for y, label, cells in (
            (700, "Revenue", [(150, "$"), (210, "178"), (228, "$"), (290, "141")]),
            (685, "Costs", [(210, "96"), (290, "80")]),
            (670, "Total", [(150, "$"), (210, "82"), (228, "$"), (290, "61")]),
        )
    )
    assert only(make_job, rows).text == "Revenue\t$ 178\t$ 141\nCosts\t96\t80\nTotal\t$ 82\t$ 61"


def test_currency_signs_behind_their_amounts_stay_there(make_job: MakeJob) -> None:
    rows = "".join(
        shown(60, y, "Revenue") + shown(200, y, "178 \\200") + shown(300, y, "141 \\200") for y in (700, 685)
    )
    assert only(make_job, rows).text.count("\t178 €\t141 €") == 2


def mapped(words: str, unicode: dict[str, str]) -> bytes:
    """A page of ``words`` whose font says what each letter stands for (hexadecimal UTF-16)."""
    drawing = f"BT /F0 20 Tf 50 100 Td ({words}) Tj ET"
    pairs = "\n".join(f"<{ord(letter):02x}> <{code}>" for letter, code in unicode.items())
    cmap = f"""/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /M def /CMapType 2 def
1 begincodespacerange <00> <ff> endcodespacerange {len(unicode)} beginbfchar\n{pairs}\nendbfchar endcmap end end"""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R"
        " /Resources << /Font << /F0 5 0 R >> >> >>",
        f"<< /Length {len(drawing)} >> stream\n{drawing}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 6 0 R >>",
        f"<< /Length {len(cmap)} >> stream\n{cmap}\nendstream",
    ]
    body = "".join(f"{number} 0 obj\n{one}\nendobj\n" for number, one in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer << /Root 1 0 R /Size 7 >>\n%%EOF".encode()


def test_the_ligature_of_lam_and_alef_reads_in_the_order_of_the_word(make_job: MakeJob) -> None:
    # Drawn from the left: meem, lam-alef in one glyph, seen. The word is "peace".
    (page,) = pages(make_job, mapped("ABC", {"A": "0645", "B": "06440627", "C": "0633"}))
    assert page.text == "سلام"


def test_alef_and_lam_of_two_glyphs_stay_as_they_are(make_job: MakeJob) -> None:
    (page,) = pages(make_job, mapped("DBA", {"A": "0627", "B": "0644", "D": "0645"}))
    assert page.text == "الم"


def test_the_ligatures_of_a_tex_font_without_a_character_map_are_read(make_job: MakeJob) -> None:
    letters = {letter: f"{ord(letter):04x}" for letter in "abcdefghijklmnopqrstuvwxyz- "}
    words = "diAerent eBcient oA-the-shelf shuBe"
    (page,) = pages(make_job, mapped(words, letters | {"A": "21b5", "B": "fffd"}))
    assert page.text == "different efficient off-the-shelf shuffle"


def test_mismapped_text_is_not_believed(make_job: MakeJob) -> None:
    garbage = "Wkh qruwk jdwh rshqv zkhq wkh rxwhu ohyho kdv vwdbhg ehorz lwv rshqlqj ohyho ".translate(
        str.maketrans("aeiouy", "xxxxxx")
    )
    assert (
        only(make_job, *["".join(shown(60, 700 - 14 * n, garbage) for n in range(3))]).text_quality is TextQuality.POOR
    )


def test_a_page_with_nothing_on_it_is_blank_and_so_is_a_white_scan(make_job: MakeJob) -> None:
    empty = only(make_job, "")
    assert empty.blank
    assert empty.image is None
    (white,) = pages(make_job, with_image("", gray=250))
    assert white.blank
    assert white.image is None
    assert not white.has_figures


def test_rules_and_boxes_are_no_figure_but_a_drawing_is(make_job: MakeJob) -> None:
    boxes = "".join(f"60 {100 + 20 * n} 400 18 re S\n" for n in range(30)) + shown(60, 700, "A table of boxes")
    assert not only(make_job, boxes).has_figures
    curve = "".join(f"100 {300 + n} m {150 + n} 500 250 {400 - n} 400 {300 + n} c S\n" for n in range(15))
    page = only(make_job, curve + shown(60, 700, "A chart of the tide"))
    assert page.has_figures
    assert page.image is not None


def test_every_page_is_rendered_when_asked(make_job: MakeJob) -> None:
    assert all(page.image is not None for page in pages(make_job, handbook_pdf(), images="all"))


def rotated(degrees: int) -> bytes:
    return handbook_pdf().replace(b"/MediaBox [0 0 595 842]", f"/MediaBox [0 0 595 842] /Rotate {degrees}".encode())


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_page_is_rendered_turned_and_read_all_the_same(make_job: MakeJob, degrees: int) -> None:
    # The cross-reference table is off now; pdfium rebuilds it.
    page, _ = pages(make_job, rotated(degrees), images="all")
    assert "North gate\t-0.40 m\t1.85 m" in page.text
    assert page.image is not None
    assert (page.image.width_px > page.image.height_px) == (degrees != 180)


@pytest.mark.parametrize("degrees", [90, -90, 450])
def test_a_turn_that_stands_elsewhere_in_the_file_counts_as_well(make_job: MakeJob, degrees: int) -> None:
    # The page's own entry is a reference to the number; and one that all pages inherit.
    number = len(re.findall(rb"\d+ 0 obj", handbook_pdf())) + 1
    turn = f"{number} 0 obj\n{degrees}\nendobj\ntrailer".encode()
    direct = b"/MediaBox [0 0 595 842]"
    own = handbook_pdf().replace(direct, direct + f" /Rotate {number} 0 R".encode()).replace(b"trailer", turn, 1)
    inherited = handbook_pdf().replace(b"<< /Type /Pages", f"<< /Type /Pages /Rotate {degrees}".encode())
    for content in (own, inherited):
        page, _ = pages(make_job, content, images="all")
        assert page.image is not None
        assert page.image.width_px > page.image.height_px
        assert "North gate\t-0.40 m\t1.85 m" in page.text


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_the_lines_of_a_turned_page_keep_their_order(make_job: MakeJob, degrees: int) -> None:
    pdf = Pdf("")
    pdf.page("".join(shown(60, 700 - 14 * n, f"this is line number {n}") for n in range(6)))
    content = pdf.write().replace(b"/MediaBox", f"/Rotate {degrees} /MediaBox".encode())
    (page,) = pages(make_job, content)
    assert page.text.splitlines() == [f"this is line number {n}" for n in range(6)]
    assert (page.width_pt > page.height_pt) == (degrees in (90, 270))


@pytest.mark.parametrize("turn", ["0 1 -1 0 800 0", "-1 0 0 -1 595 842", "0 -1 1 0 0 842"])
def test_lines_that_run_up_or_down_the_page_keep_their_order(make_job: MakeJob, turn: str) -> None:
    lines = "".join(shown(60, 500 - 14 * n, f"this is line number {n}") for n in range(6))
    page = only(make_job, f"q {turn} cm\n{lines}Q\n")
    assert page.text.splitlines() == [f"this is line number {n}" for n in range(6)]


@pytest.mark.parametrize("long_side_px", [300, 1540, 2200])
def test_a_page_is_rendered_as_large_as_asked(make_job: MakeJob, long_side_px: int) -> None:
    for page in pages(make_job, handbook_pdf(), images="all", long_side_px=long_side_px):
        assert page.image is not None
        assert abs(max(page.image.width_px, page.image.height_px) - long_side_px) <= 1


def test_a_page_of_any_size_is_rendered_within_the_limits(make_job: MakeJob) -> None:
    huge = handbook_pdf().replace(b"/MediaBox [0 0 595 842]", b"/MediaBox [0 0 14400 14400]")
    page, _ = pages(make_job, huge, images="all", limits=Limits(max_pixels=500_000))
    assert page.image is not None
    assert page.image.width_px * page.image.height_px <= 500_000 * 1.01
    with Image.open(page.image.path) as image:
        assert image.size == (page.image.width_px, page.image.height_px)


def test_too_many_pages_are_refused(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput, match=r"too_large: 2 pages; limits\.max_pages = 1"):
        pages(make_job, handbook_pdf(), limits=Limits(max_pages=1))


@pytest.mark.parametrize("content", [b"%PDF-1.4\nnothing\n%%EOF\n", b"%PDF-1.7", handbook_pdf()[:900]])
def test_damage_is_corrupt(make_job: MakeJob, content: bytes) -> None:
    with pytest.raises(RejectedInput, match="corrupt"):
        pages(make_job, content)


def test_a_page_without_its_content_keeps_the_others(make_job: MakeJob) -> None:
    broken = handbook_pdf().replace(b"/Type /Page /Parent", b"/Type /Nope /Parent", 1)
    found = list(read(make_job(broken, media.PDF)))
    assert isinstance(found[0], Opened)
    assert isinstance(found[-1], Ended)


def said_to_have(count: int, *, missing: int = 0) -> bytes:
    """A PDF of three pages, and of some that are named but not there."""
    pdf = Pdf("")
    for number in range(3):
        pdf.page(shown(60, 700, f"page number {number}"))
    gone = "".join(f" {900 + number} 0 R" for number in range(missing))
    return re.sub(rb"\] /Count 3", f"{gone}] /Count {count}".encode(), pdf.write())


@pytest.mark.parametrize("count", [4, 99, 100_000])
def test_pages_that_are_only_counted_do_not_exist(make_job: MakeJob, count: int) -> None:
    events = list(read(make_job(said_to_have(count), media.PDF)))
    assert events[0] == Opened(3, None)
    found = [event for event in events if isinstance(event, ParsedPage)]
    assert [page.text for page in found] == ["page number 0", "page number 1", "page number 2"]
    assert not any(page.failure for page in found)


def test_pages_beyond_the_count_are_read(make_job: MakeJob) -> None:
    assert [page.text for page in pages(make_job, said_to_have(1))] == [f"page number {n}" for n in range(3)]


def test_pages_that_no_page_tree_names_any_more_are_not_read(make_job: MakeJob) -> None:
    # As in a file to which a program has added a version with fewer pages.
    content = re.sub(rb"/Kids \[(\d+ 0 R)[^\]]*\] /Count 3", rb"/Kids [\1] /Count 1", said_to_have(3))
    assert [page.text for page in pages(make_job, content)] == ["page number 0"]


def test_pages_that_are_named_and_missing_are_damage(make_job: MakeJob) -> None:
    found = pages(make_job, said_to_have(5, missing=2))
    assert [page.failure is not None for page in found] == [False, False, False, True, True]


def test_the_title_is_the_declared_one_unless_it_is_junk(make_job: MakeJob) -> None:
    def title(declared: str) -> str | None:
        pdf = Pdf(declared)
        pdf.page(
            shown(60, 750, "The Real Title", size=24) + "".join(shown(60, 700 - 14 * n, f"line {n}") for n in range(9))
        )
        *_, ended = read(make_job(pdf.write(), media.PDF))
        assert isinstance(ended, Ended)
        return ended.title

    assert title("Tide Tables") == "Tide Tables"
    assert title("Microsoft Word - Tide Tables") == "Tide Tables"
    for junk in ("untitled", "", "report_final.docx", "example", "Document1"):
        assert title(junk) == "The Real Title"


def test_images_are_jpeg_files_in_the_work_folder(make_job: MakeJob) -> None:
    job = make_job(scan_pdf(), media.PDF)
    (page,) = [event for event in read(job) if isinstance(event, ParsedPage)]
    assert page.image is not None
    assert page.image.path.parent == job.workdir
    assert Image.open(io.BytesIO(page.image.path.read_bytes())).format == "JPEG"
