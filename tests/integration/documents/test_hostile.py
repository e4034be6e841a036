"""Files that mean harm, through the real child: each has an end, soon, and what can be kept of it is kept."""

from __future__ import annotations

import io
import time
import zipfile
import zlib
from pathlib import Path

import pytest

from examples.make import Pdf, rota_docx
from pipeline.documents.sniff import sniff
from pipeline.domain.document import Limits, ParsedDocument
from pipeline.domain.errors import RejectedInput
from pipeline.stages.parse import parse
from tests.fixtures.make import book_epub

FIXTURES = Path(__file__).parents[2] / "fixtures"
OOXML = "http://schemas.openxmlformats.org"
WORDS = "BT /F0 20 Tf 50 700 Td ({}) Tj ET"


def parsed(tmp_path: Path, content: bytes, limits: Limits | None = None) -> ParsedDocument:
    path, workdir = tmp_path / "file", tmp_path / "work"
    path.write_bytes(content)
    workdir.mkdir()
    return parse(path, sniff(path), limits or Limits(), workdir=workdir)


def refusal(tmp_path: Path, content: bytes, limits: Limits | None = None) -> RejectedInput:
    with pytest.raises(RejectedInput) as refused:
        parsed(tmp_path, content, limits)
    return refused.value


def repacked(package: bytes, **parts: str | bytes) -> bytes:
    """A package with parts replaced or added; ``__`` in a keyword is a slash, ``_DOT_`` a dot."""
    named = {key.replace("__", "/").replace("_DOT_", "."): content for key, content in parts.items()}
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(package)) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            if name not in named:
                target.writestr(name, source.read(name))
        for name, content in named.items():
            target.writestr(name, content)
    return out.getvalue()


# --- pages -----------------------------------------------------------------------------------------------------------


def nested_forms() -> bytes:
    """Three pages; the second draws a form that draws ten of another that draws ten … ten deep."""
    pdf = Pdf("Nested")
    pdf.page(WORDS.format("The first page"))
    form = pdf.stream(b"0 0 m 100 100 l S", "/Type /XObject /Subtype /Form /BBox [0 0 500 500]")
    for _ in range(10):
        entries = "/Type /XObject /Subtype /Form /BBox [0 0 500 500]"
        form = pdf.stream(b"/I0 Do " * 10, f"{entries} /Resources << /XObject << /I0 {form} 0 R >> >>")
    pdf.page(WORDS.format("The second page") + " /I0 Do", images=[form])
    pdf.page(WORDS.format("The third page"))
    return pdf.write()


def test_a_page_on_which_the_parser_never_ends_fails_and_the_others_are_kept(tmp_path: Path) -> None:
    began = time.monotonic()
    document = parsed(tmp_path, nested_forms(), Limits(parse_seconds=40, parse_memory_mb=256))
    assert [page.number for page in document.pages] == [1, 2, 3]
    first, second, third = document.pages
    assert (first.text, third.text) == ("The first page", "The third page")
    assert second.failure is not None
    assert second.failure.kind in ("unsafe", "corrupt")
    assert second.failure.detail.startswith("page 2 ")
    assert (first.failure, third.failure) == (None, None)
    assert time.monotonic() - began < 40


def test_a_page_of_35000_points_is_rendered_at_the_size_that_is_wanted(tmp_path: Path) -> None:
    pdf = Pdf("Large")
    curves = " ".join(f"{n * 900} 300 m {n * 900} 20000 30000 9000 34000 {n * 900} c S" for n in range(30))
    pdf.page(f"200 w {curves}")
    (page,) = parsed(tmp_path, pdf.write().replace(b"[0 0 595 842]", b"[0 0 35000 35000]")).pages
    assert page.image is not None
    assert max(page.image.width_px, page.image.height_px) == 1540


def test_an_image_of_35000_by_35000_pixels_inside_a_page_costs_no_more_memory_than_allowed(tmp_path: Path) -> None:
    pdf = Pdf("Bomb")
    packer = zlib.compressobj(9)
    start = packer.compress(b"\0") + packer.flush(zlib.Z_FULL_FLUSH)
    rows = packer.compress(b"\0" * (35_000 // 8) * 350) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = start + rows * 100 + packer.flush()
    image = pdf.stream(
        packed,
        "/Type /XObject /Subtype /Image /Width 35000 /Height 35000 /ColorSpace /DeviceGray /BitsPerComponent 1 "
        "/Filter /FlateDecode",
    )
    pdf.page("q 500 0 0 500 20 20 cm /I0 Do Q", images=[image])
    pdf.page(WORDS.format("The second page"))
    document = parsed(tmp_path, pdf.write(), Limits(parse_memory_mb=512))
    assert document.pages[1].text == "The second page"


def test_2000_pages_are_taken_and_one_more_is_not(tmp_path: Path) -> None:
    pdf = Pdf("Long")
    for number in range(1, 2001):
        pdf.page(WORDS.format(f"Page {number} of the log"))
    document = parsed(tmp_path, pdf.write())
    assert [page.text for page in document.pages] == [f"Page {number} of the log" for number in range(1, 2001)]
    pdf.page("")
    (tmp_path / "more").mkdir()
    assert refusal(tmp_path / "more", pdf.write()).kind == "too_large"


# --- archives --------------------------------------------------------------------------------------------------------


def gigabyte_docx(*, honest: bool) -> bytes:
    """A DOCX whose text is 1 GB of spaces in 1 MB; or one that says it is 5,000 bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(b"<w:document>") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = start + block * 1024 + packer.flush()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        with zipfile.ZipFile(io.BytesIO(rota_docx())) as source:
            for name in source.namelist():
                if name != "word/document.xml":
                    archive.writestr(name, source.read(name))
        entry = zipfile.ZipInfo("word/document.xml")
        archive.writestr(entry, packed)
        # Stored, then called deflated: the archive library packs what it is given only once.
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.file_size = (1 << 30) + 12 if honest else 5_000
        at = entry.header_offset
    data = bytearray(out.getvalue())
    data[at + 8 : at + 10] = (8).to_bytes(2, "little")
    data[at + 22 : at + 26] = entry.file_size.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("honest", [True, False])
def test_a_docx_that_inflates_to_a_gigabyte_is_refused_in_no_time(tmp_path: Path, honest: bool) -> None:
    began = time.monotonic()
    refused = refusal(tmp_path, gigabyte_docx(honest=honest))
    assert refused.kind == ("unsafe" if honest else "corrupt")
    assert time.monotonic() - began < 15


def test_entities_in_a_part_of_an_odd_name_are_found(tmp_path: Path) -> None:
    """The parts that are read here are those that the package names, whatever their ending."""
    package = (FIXTURES / "valves.pptx").read_bytes()
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        links = archive.read("ppt/slides/_rels/slide1.xml.rels").decode()
        notes = archive.read("ppt/notesSlides/notesSlide1.xml").decode()
    bomb = notes.replace("?>", '?><!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>', 1)
    content = repacked(
        package,
        ppt__slides___rels__slide1_DOT_xml_DOT_rels=links.replace("notesSlide1.xml", "notesSlide1.bin"),
        ppt__notesSlides__notesSlide1_DOT_bin=bomb,
    )
    assert refusal(tmp_path, content).detail == "its XML declares entities"


def test_a_book_that_names_files_outside_of_it_gets_none(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    with zipfile.ZipFile(io.BytesIO(book_epub())) as archive:
        chapter = archive.read("OPS/text/b-first.xhtml").decode()
    outside = chapter.replace("../art/plate.png", f"../../../..{tmp_path}/secret.png")
    document = parsed(tmp_path, repacked(book_epub(), **{"OPS__text__b-first_DOT_xhtml": outside}))
    assert all(page.image is None for page in document.pages)
    assert "After the plate" in document.pages[0].text


# --- sheets ----------------------------------------------------------------------------------------------------------


def xlsx(rows: str) -> bytes:
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    office = f"{OOXML}/officeDocument/2006/relationships"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{OOXML}/package/2006/content-types">'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kinds}.sheet.main+xml"/>'
        f'<Override PartName="/xl/s.xml" ContentType="{kinds}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{OOXML}/package/2006/relationships"><Relationship Id="a" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{OOXML}/spreadsheetml/2006/main" xmlns:r="{office}"><sheets>'
        '<sheet name="S" sheetId="1" r:id="b"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{OOXML}/package/2006/relationships">'
        f'<Relationship Id="b" Type="{office}/worksheet" Target="s.xml"/></Relationships>',
        "xl/s.xml": f'<worksheet xmlns="{OOXML}/spreadsheetml/2006/main"><sheetData>{rows}</sheetData></worksheet>',
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def test_two_cells_at_the_far_corners_of_a_sheet_are_two_cells(tmp_path: Path) -> None:
    corners = '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
    (page,) = parsed(tmp_path, xlsx(corners)).pages
    assert len(page.text) < 200
    assert page.text.endswith("| 2 |")


def test_a_sheet_of_more_cells_than_make_pages_is_refused(tmp_path: Path) -> None:
    cells = "".join(f'<c r="{chr(65 + n)}{{0}}"><v>{n}</v></c>' for n in range(20))
    rows = "".join(f'<row r="{number}">{cells.format(number)}</row>' for number in range(1, 10_001))
    refused = refusal(tmp_path, xlsx(rows), Limits(max_pages=20))
    assert refused.kind == "too_large"
    assert "limits.max_pages = 20" in refused.detail


def test_a_cell_that_is_repeated_to_the_ends_of_the_sheet_is_refused(tmp_path: Path) -> None:
    package = (FIXTURES / "valves.ods").read_bytes()
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        content = archive.read("content.xml").decode()
    repeated = content.replace("<table:table-row", '<table:table-row table:number-rows-repeated="1048576"')
    repeated = repeated.replace("<table:table-cell ", '<table:table-cell table:number-columns-repeated="16384" ')
    assert refusal(tmp_path, repacked(package, content_DOT_xml=repeated)).kind == "unsafe"
