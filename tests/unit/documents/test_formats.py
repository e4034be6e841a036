"""One real file of each office format: its words, its tables, its picture where it stood, and what it calls itself."""

from __future__ import annotations

import gzip
import io
import re
import time
import zipfile
from html import escape
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from pipeline.documents import media
from pipeline.documents.cells import spelled_out
from pipeline.documents.job import Opened
from pipeline.documents.office import read
from pipeline.documents.rtf import take_pictures
from pipeline.documents.sheets import with_pictures
from pipeline.documents.sniff import sniff
from pipeline.domain.document import ParsedPage
from tests.fixtures.make import book_epub, message_msg
from tests.unit.documents.conftest import MakeJob

FIXTURES = Path(__file__).parents[2] / "fixtures"
TABLE = (
    "| Valve | Turns to close | Keeper |\n| --- | --- | --- |\n"
    "| Seven | 14 & a half | Zoë Müller |\n| Eight | 9 {}< 10 | 潮門 office |"
)
SHEETS = (
    "## Valves\n\n| Valve | Turns | Keeper |\n| --- | --- | --- |\n| Seven | 14.5 | Zoë Müller |\n"
    "| Eight | 9 | R & D 潮門 |\n\n## Grease\n\n| Month | Tins |\n| --- | --- |\n| March | 3 |\n| June | 11 |"
)
PLATE = "[Image: The plate on valve seven]"


def fixture(name: str) -> bytes:
    data = (FIXTURES / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def parsed(make_job: MakeJob, data: bytes, expected: str) -> tuple[str | None, list[ParsedPage]]:
    job = make_job(data, expected)
    assert sniff(job.path) == expected
    opened, *events = read(job)
    assert isinstance(opened, Opened)
    return opened.title, [event for event in events if isinstance(event, ParsedPage)]


@pytest.mark.parametrize(
    ("name", "media_type", "escape", "before"),
    [
        ("valves.odt", media.ODT, "\\", "Before the plate.\n\n[Image: Valve plate]"),
        ("valves.rtf", media.RTF, "\\", f"Before the plate.\n\n{PLATE}"),
    ],
)
def test_a_text_document_has_its_picture_where_it_stood(
    make_job: MakeJob, name: str, media_type: str, escape: str, before: str
) -> None:
    title, (first, picture, last) = parsed(make_job, fixture(name), media_type)
    assert title == "Valve Book"
    assert first.text.startswith("# Valve Book\n\nThe valves of the Saltmere main are turned by hand: smørefett & pat")
    assert TABLE.format(escape) in first.text
    assert first.text.endswith(before)
    assert picture.image is not None
    assert (picture.image.width_px, picture.image.height_px) == (220, 110)
    assert last.text == "After the plate comes the drain cock.\n\n- Grease the spindle\n- Count the turns"


def test_a_word_document_of_before_2007_keeps_its_paragraphs_and_its_table(make_job: MakeJob) -> None:
    title, (only,) = parsed(make_job, fixture("valves.doc"), media.DOC)
    assert title == "Valve Book"
    assert "Valve Book\n\nThe valves of the Saltmere main are turned by hand: smørefett & patience – 20 €." in only.text
    assert TABLE.format("") + "\n\nBefore the plate.\n\nAfter the plate" in only.text


@pytest.mark.parametrize(("name", "media_type"), [("valves.xls", media.XLS), ("valves.ods", media.ODS)])
def test_every_sheet_of_a_workbook_is_a_table_under_its_name(make_job: MakeJob, name: str, media_type: str) -> None:
    title, (only,) = parsed(make_job, fixture(name), media_type)
    assert title in (None, "Valves")
    assert only.text == SHEETS


@pytest.mark.parametrize(
    ("name", "media_type", "place"), [("gauges.xlsx", media.XLSX, " at B6"), ("gauges.ods", media.ODS, "")]
)
def test_a_picture_in_a_sheet_comes_after_its_table(make_job: MakeJob, name: str, media_type: str, place: str) -> None:
    _, pages = parsed(make_job, fixture(name), media_type)
    assert [page.text for page in pages] == [
        "## Gauges\n\n| Gauge | Reading |\n| --- | --- |\n| North | 1.85 |\n| Lantern | 2.1 |\n\n"
        f"[Image: The plate on valve seven{place}]",
        "",
        "## R & D\n\n| Month | Tins |\n| --- | --- |\n| March | 3 |",
    ]
    assert pages[1].image is not None


def test_a_picture_on_a_sheet_without_cells_comes_under_the_name_of_the_sheet() -> None:
    pictures = iter([("Second_x", "![b](b.png)"), ("Empty", "![e](e.png)")])
    text = "## First\n\n| a |\n\n## Second\\_x\n\n| b |\n"
    assert with_pictures(text, pictures) == (
        "## First\n\n| a |\n\n## Second\\_x\n\n| b |\n\n![b](b.png)\n\n\n\n## Empty\n\n![e](e.png)"
    )


def test_the_slides_of_a_pptx_have_their_pictures_and_the_speakers_notes(make_job: MakeJob) -> None:
    _, pages = parsed(make_job, fixture("valves.pptx"), media.PPTX)
    assert [page.text for page in pages] == [
        f"## Valve training\n\nFourteen turns & a half close valve seven\n\n{PLATE}",
        "",
        "Notes:\n\nRemind them: never force the spindle in frost",
        "## Grease\n\nEleven tins in June for Zoë Müller",
    ]
    assert pages[1].image is not None


def test_slides_come_in_the_order_in_which_they_are_shown_with_their_own_notes(make_job: MakeJob) -> None:
    package = fixture("valves.pptx")
    show = part(package, "ppt/presentation.xml")
    turned = show.replace('id="256" r:id="rId4"', "@").replace('id="257" r:id="rId5"', 'id="256" r:id="rId4"')
    content = repacked(package, ppt__presentation_DOT_xml=turned.replace("@", 'id="257" r:id="rId5"'))
    _, pages = parsed(make_job, content, media.PPTX)
    assert [page.text.split("\n")[0] for page in pages] == ["## Grease", "## Valve training", "", "Notes:"]


def test_the_slides_of_an_odp_too(make_job: MakeJob) -> None:
    _, pages = parsed(make_job, fixture("valves.odp"), media.ODP)
    assert [page.text for page in pages] == [
        f"Valve training\n\nFourteen turns & a half close valve seven\n\n{PLATE}",
        "",
        "Notes:\n\nRemind them: never force the spindle in frost",
        "Grease\n\nEleven tins in June for Zoë Müller",
    ]
    assert pages[1].image is not None


def repacked(package: bytes, **changes: str | bytes) -> bytes:
    """A package with parts replaced or added; ``__`` in a keyword is a slash, ``_X`` a dot before X."""
    names = {key.replace("__", "/").replace("_DOT_", "."): value for key, value in changes.items()}
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            if name not in names:
                target.writestr(name, source.read(name))
        for name, content in names.items():
            target.writestr(name, content)
    return out.getvalue()


def part(package: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        return archive.read(name).decode()


def test_titles_lists_and_tables_of_an_odp_are_markdown(make_job: MakeJob) -> None:
    package = fixture("valves.odp")
    content = part(package, "content.xml")
    titled = content.replace("<draw:frame ", '<draw:frame presentation:class="title" ', 1)
    page = titled.rindex("</draw:page>")
    more = (
        "<draw:frame><draw:text-box><text:list><text:list-item><text:p>One<text:s/>* two</text:p><text:list>"
        "<text:list-item><text:p>Inner</text:p></text:list-item></text:list></text:list-item></text:list>"
        "</draw:text-box></draw:frame><draw:frame><table:table><table:table-row><table:table-cell><text:p>a|b</text:p>"
        '</table:table-cell><table:table-cell table:number-columns-repeated="99999999"/>'
        f'<table:table-cell table:number-columns-repeated="{"9" * 5000}"/></table:table-row>'
        "</table:table></draw:frame>"
    )
    _, pages = parsed(make_job, repacked(package, content_DOT_xml=titled[:page] + more + titled[page:]), media.ODP)
    assert pages[0].text.startswith("## Valve training\n\n")
    assert "- One \\* two\n  - Inner" in pages[-1].text
    assert pages[-1].text.splitlines()[-2].startswith("| a\\|b |  |")


def picture(words: str) -> bytes:
    image, out = Image.new("L", (160, 90), 255), io.BytesIO()
    ImageDraw.Draw(image).text((10, 10), words, font=ImageFont.load_default(40), fill=0)
    image.save(out, "PNG")
    return out.getvalue()


def test_each_picture_of_a_slide_is_the_one_that_stands_there(make_job: MakeJob) -> None:
    """The library lists a slide's pictures in an order of its own, and among them what is none."""
    package = fixture("valves.pptx")
    slide, links = part(package, "ppt/slides/slide1.xml"), part(package, "ppt/slides/_rels/slide1.xml.rels")
    shape = slide[slide.index("<p:pic>") : slide.index("</p:pic>") + len("</p:pic>")]
    image = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/image"
    added = "".join(
        f'<Relationship Id="rId9{n}" Type="{image}" Target="../media/{name}"/>'
        for n, name in enumerate(("drawing.emf", "b.png", "a.png"))
    )
    shapes = "".join(
        shape.replace('r:embed="rId1"', f'r:embed="rId9{n}"').replace('descr="The plate', f'descr="{n} plate')
        for n in range(3)
    )
    content = repacked(
        package,
        ppt__slides__slide1_DOT_xml=slide.replace(shape, shapes + shape),
        ppt__slides___rels__slide1_DOT_xml_DOT_rels=links.replace("</Relationships>", f"{added}</Relationships>"),
        ppt__media__drawing_DOT_emf=b"\1\0\0\0" * 50,
        ppt__media__a_DOT_png=picture("AAAA"),
        ppt__media__b_DOT_png=picture("BBB"),
    )
    _, pages = parsed(make_job, content, media.PPTX)
    sizes = [page.image and (page.image.width_px, page.image.height_px) for page in pages]
    assert sizes[:6] == [None, (160, 90), None, (160, 90), None, (220, 110)]
    assert "0 plate" in pages[0].text
    assert pages[0].text.endswith("[Image: 1 plate on valve seven]")
    assert pages[2].text == "[Image: 2 plate on valve seven]"
    first, second = pages[1].image, pages[3].image
    assert first is not None
    assert second is not None
    assert ink(first.path) < ink(second.path), "B stands before A"


def test_a_picture_that_stands_in_several_places_is_described_where_it_stands_first(make_job: MakeJob) -> None:
    with zipfile.ZipFile(io.BytesIO(book_epub())) as archive:
        chapter = archive.read("OPS/text/b-first.xhtml").decode()
    plate = '<p><img src="../art/plate.png" alt="The plate on valve seven"/></p>'
    again = chapter.replace("After the plate", f"Between</p>{plate * 50}<p>After the plate")
    _, pages = parsed(make_job, repacked(book_epub(), **{"OPS__text__b-first_DOT_xhtml": again}), media.EPUB)
    assert [page.image is not None for page in pages] == [False, True, False]
    assert pages[2].text.count(PLATE) == 50


def test_no_word_of_a_book_is_lost_or_joined_with_the_next(make_job: MakeJob) -> None:
    with zipfile.ZipFile(io.BytesIO(book_epub())) as archive:
        chapter = archive.read("OPS/text/b-first.xhtml").decode()
    more = (
        '<script src="x.js"/><div>First</div>\nread\n<b>this</b><a id="x"/>'
        f"<table><tr><td>one<p>two</p>three</td></tr></table>{'<div>' * 100}deep{'</div>' * 100}"
    )
    changed = chapter.replace("<h1>", f"{more}<h1>").encode("utf-16")
    damaged = repacked(
        book_epub(), **{"OPS__text__b-first_DOT_xhtml": changed, "OPS__art__plate_DOT_png": b"not a picture"}
    )
    _, pages = parsed(make_job, damaged, media.EPUB)
    words = " ".join(" ".join(page.text for page in pages).replace("*", "").replace("|", "").split())
    assert "First read this one two three" in words
    assert "deep" in words
    assert "Fourteen turns & a half" in words


def test_no_word_of_an_open_document_is_lost_or_joined_with_the_next(make_job: MakeJob) -> None:
    with zipfile.ZipFile(io.BytesIO(fixture("valves.odt"))) as archive:
        content = archive.read("content.xml").decode()
    more = (
        "<text:p>Name:<text:tab/>Bo<text:s/>Ek</text:p><text:numbered-paragraph><text:p>Rule one</text:p>"
        "</text:numbered-paragraph><text:p>read <text:ruby><text:ruby-base>潮門</text:ruby-base>"
        "<text:ruby-text>shiomon</text:ruby-text></text:ruby></text:p></office:text>"
    )
    changed = content.replace("</office:text>", more).replace(
        "Zoë Müller</text:p>", "Zoë</text:p><text:p>Müller</text:p>"
    )
    assert changed.count("<text:p>Müller") == 1
    _, pages = parsed(make_job, repacked(fixture("valves.odt"), content_DOT_xml=changed), media.ODT)
    text = "\n".join(page.text for page in pages)
    assert "| Zoë Müller |" in text
    for words in ("Name: Bo Ek", "Rule one", "read 潮門 (shiomon)"):
        assert words in text


def test_no_word_of_a_slide_is_lost_or_cut(make_job: MakeJob) -> None:
    package = fixture("valves.pptx")
    slide = part(package, "ppt/slides/slide2.xml")
    shape = slide[slide.index("<p:sp>") : slide.index("</p:sp>") + len("</p:sp>")]
    run = '<a:r><a:rPr lang="en" b="1"/><a:t>sm</a:t></a:r><a:r><a:rPr lang="no"/><a:t>ørefett\there</a:t></a:r>'
    newer = re.sub(r"<a:r>.*</a:r>", run, shape, flags=re.DOTALL)
    both = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f'<mc:Choice Requires="a14">{newer}</mc:Choice><mc:Fallback>{newer}</mc:Fallback></mc:AlternateContent>'
    )
    content = repacked(package, ppt__slides__slide2_DOT_xml=slide.replace("</p:spTree>", f"{both}</p:spTree>"))
    _, pages = parsed(make_job, content, media.PPTX)
    assert " ".join(page.text for page in pages).count("smørefett here") == 1


def ink(path: Path) -> int:
    """The rightmost marked column: a longer word reaches further."""
    with Image.open(path) as image:
        box = image.convert("L").point(lambda level: 255 if level < 128 else 0).getbbox()
    assert box is not None
    return box[2]


def test_a_presentation_of_before_2007(make_job: MakeJob) -> None:
    title, (only,) = parsed(make_job, fixture("valves.ppt.gz"), media.PPT)
    assert title == "Valve training"
    assert only.text == (
        "## Valve training\n\nFourteen turns & a half close valve seven\n\nGrease\n\n"
        "Eleven tins in June for Zoë Müller\n\nRemind them: never force the spindle in frost"
    )


def test_a_book_is_read_in_the_order_of_its_spine(make_job: MakeJob) -> None:
    assert fixture("book.epub") == book_epub()
    title, (first, plate, last) = parsed(make_job, book_epub(), media.EPUB)
    assert title == "The Valve Book"
    assert first.text == f"# Closing\n\nFourteen turns & a half close valve seven.\n\n{PLATE}"
    assert plate.image is not None
    assert last.text.startswith("After the plate comes the drain cock.\n\n# Grease\n\n| Month | Tins |")


def test_an_outlook_message_keeps_its_lines(make_job: MakeJob) -> None:
    assert fixture("message.msg") == message_msg()
    title, (only,) = parsed(make_job, message_msg(), media.MSG)
    assert title == "Spindle of valve seven – Zoë"
    assert only.text.startswith("**Subject**: Spindle of valve seven – Zoë  \n**From**: ")
    assert only.text.endswith("Bo,\n\nthe spindle of valve seven needs grease & patience: 14 turns, 潮門.\n\nZoë")


def test_a_picture_in_rtf_is_found_by_its_group_and_not_by_what_is_said_of_it() -> None:
    rtf = (
        rb"{\rtf1 a{\*\shppict{\pict{\sp{\sn wzDescription}{\sv abc \'e9}}\pngblip 8950}}"
        rb"{\nonshppict{\pict\wmetafile8 01}}b{\pict\wmetafile8 0102}c{\pict\jpegblip\bin3 }}{d} \{e\} {\pict 00"
    )
    text, (first, second, third, cut) = take_pictures(rtf, "MARK")
    assert text == rb"{\rtf1 a MARK0 b MARK1 c MARK2  \{e\}  MARK3 "
    assert (first.data, first.description) == (b"\x89P", "abc é")
    assert (second.data, cut.data) == (b"", b"")
    assert third.data == b"}}{"


def test_notes_on_cells_come_after_their_sheet(make_job: MakeJob) -> None:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/comments"
    note = '<comment ref="B6" authorId="0"><text><r><t>Read </t></r><r><t>twice</t></r></text></comment>'
    rels, out = "xl/worksheets/_rels/sheet1.xml.rels", io.BytesIO()
    link = f'<Relationship Id="rIdN" Type="{relation}" Target="../comments1.xml"/></Relationships>'
    with zipfile.ZipFile(io.BytesIO(fixture("gauges.xlsx"))) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content.replace(b"</Relationships>", link.encode()) if name == rels else content)
        target.writestr("xl/comments1.xml", f'<comments xmlns="{main}"><commentList>{note}</commentList></comments>')
    _, pages = parsed(make_job, out.getvalue(), media.XLSX)
    assert "Notes:\n\n- B6: Read twice" in "\n".join(page.text for page in pages)


def test_the_words_of_text_boxes_come_after_their_sheet_once(make_job: MakeJob) -> None:
    words = "<a:r><a:t>Closed </a:t></a:r><a:r><a:t>in May</a:t></a:r>"
    box = f"<xdr:sp><xdr:txBody><a:p>{words}</a:p><a:p/></xdr:txBody></xdr:sp>"
    both = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    office = "http://schemas.openxmlformats.org/"
    drawing = (
        f'<xdr:wsDr xmlns:xdr="{office}drawingml/2006/spreadsheetDrawing" xmlns:a="{office}drawingml/2006/main" '
        f'xmlns:mc="{office}markup-compatibility/2006"><xdr:oneCellAnchor>{both}</xdr:oneCellAnchor></xdr:wsDr>'
    )
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(fixture("gauges.xlsx"))) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            target.writestr(name, drawing if name == "xl/drawings/drawing1.xml" else source.read(name))
    _, pages = parsed(make_job, out.getvalue(), media.XLSX)
    assert "\n".join(page.text for page in pages).count("|\n\nClosed in May") == 1


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def workbook(*cells: str) -> bytes:
    """A workbook of one row a cell; cells may have the styles 1 to 6."""
    codes = ("hh:mm", "[h]:mm:ss", "yyyy-mm-dd hh:mm", '0.0" h"')
    listed = "".join(f'<numFmt numFmtId="{170 + n}" formatCode="{escape(code)}"/>' for n, code in enumerate(codes))
    used = "".join(f'<xf numFmtId="{number}"/>' for number in (0, 170, 171, 172, 173, 20, 46))
    styles = f"<numFmts>{listed}</numFmts><cellXfs>{used}</cellXfs>"
    rows = "".join(f'<row r="{n}">{cell}</row>' for n, cell in enumerate(cells, start=1))
    parts = {
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{styles}</styleSheet>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>',
    }
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(fixture("gauges.xlsx"))) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            target.writestr(name, parts.get(name) or source.read(name))
    return out.getvalue()


@pytest.mark.parametrize(
    ("style", "value", "shown"),
    [
        (1, "0.29722222222222222", "07:08"),
        (5, "0.75", "18:00"),
        (1, "1.1574074074074073E-5", "00:00:01"),
        (2, "1.5", "36:00"),
        (6, "2.25", "54:00"),
        (1, "45000.25", "2023-03-15 06:00:00"),
        (3, "45000.5", "2023-03-15 12:00:00"),
        (4, "7.5", "7.5"),
    ],
)
def test_a_cell_with_a_time_says_the_time(make_job: MakeJob, style: int, value: str, shown: str) -> None:
    _, pages = parsed(make_job, workbook(f'<c r="A1" s="{style}"><f>B1</f><v>{value}</v></c>'), media.XLSX)
    assert f"| {shown} |" in pages[0].text


def test_a_formula_that_no_program_has_computed_is_shown_itself(make_job: MakeJob) -> None:
    cells = (
        '<c r="A1"><f>SUM(B1:B9)</f></c>',
        '<c r="A2" t="n"><f aca="false">B1&amp;" m"</f><v></v></c>',
        '<c r="A3"><f>1+1</f><v>2</v></c>',
        '<c r="A4" t="str"><f>IF(B1,"x","")</f><v></v></c>',
    )
    _, pages = parsed(make_job, workbook(*cells), media.XLSX)
    assert "| =SUM(B1:B9) |" in pages[0].text
    assert '| =B1&" m" |' in pages[0].text
    assert "| 2 |" in pages[0].text
    assert "IF(" not in pages[0].text


@pytest.mark.parametrize("piece", ["<c ", "<c s='1'>", "<c s='1'><f>", "<c s='1'> " + " " * 50])
def test_cells_that_never_end_are_looked_through_in_linear_time(piece: str) -> None:
    begun = time.process_time()
    spelled_out(workbook(piece * 100_000 + "</f>"))
    assert time.process_time() - begun < 5
