"""Office, HTML, XML and mail as Markdown sections, with images where they stood."""

from __future__ import annotations

import base64
import io
import re
import time
import zipfile
from collections.abc import Mapping

import pytest
from PIL import Image, ImageDraw, ImageFont

from examples.make import pumps_html, rota_docx
from pipeline.documents import media, odt
from pipeline.documents.docx import keep_text
from pipeline.documents.job import Opened
from pipeline.documents.markup import closed_html, read_html
from pipeline.documents.office import read
from pipeline.documents.pictures import REFERENCE
from pipeline.domain.document import ParsedPage, TextFormat
from pipeline.domain.errors import RejectedInput
from tests.unit.documents.conftest import MakeJob


def parsed(make_job: MakeJob, content: bytes | str, media_type: str) -> tuple[str | None, list[ParsedPage]]:
    opened, *events = read(make_job(content, media_type))
    assert isinstance(opened, Opened)
    found = [event for event in events if isinstance(event, ParsedPage)]
    assert opened.pages == len(found)
    return opened.title, found


def picture() -> bytes:
    image, out = Image.new("L", (160, 90), 255), io.BytesIO()
    ImageDraw.Draw(image).text((10, 10), "BOARD", font=ImageFont.load_default(40), fill=0)
    image.save(out, "PNG")
    return out.getvalue()


def replaced(docx: bytes, before: str, after: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(docx)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(before.encode(), after.encode()))
    return out.getvalue()


def with_notes(docx: bytes, notes: dict[str, str]) -> bytes:
    """Add ``footnotes`` and ``endnotes``, each its XML, and what a package says of them."""
    office = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    types = "".join(f'<Override PartName="/word/{name}.xml" ContentType="{office}.{name}+xml"/>' for name in notes)
    relations = "".join(
        f'<Relationship Id="rId{name}" Type="{relation}/{name}" Target="{name}.xml"/>' for name in notes
    )
    docx = replaced(replaced(docx, "</Types>", f"{types}</Types>"), "</Relationships>", f"{relations}</Relationships>")
    out = io.BytesIO(docx)
    with zipfile.ZipFile(out, "a") as target:
        for name, xml in notes.items():
            target.writestr(f"word/{name}.xml", xml)
    return out.getvalue()


def test_a_docx_is_markdown_with_its_image_as_a_page_where_it_stood(make_job: MakeJob) -> None:
    title, (before, image, after) = parsed(make_job, rota_docx(), media.DOCX)
    assert title == "Night Watch"
    assert before.text_format is TextFormat.MARKDOWN
    assert "| Wednesday | Maud Okafor | Jory Tamm |" in before.text
    assert before.text.endswith("[Image: The board beside the radio]")
    assert image.text == ""
    assert image.image is not None
    assert image.image.path.is_file()
    assert after.text.startswith("# Rounds")
    assert "dry & the float switch" in after.text


def test_the_parts_of_a_docx_may_be_called_otherwise(make_job: MakeJob) -> None:
    """Word on the web calls them so."""
    out, names = io.BytesIO(), ("document", "styles", "numbering")
    with zipfile.ZipFile(io.BytesIO(rota_docx())) as source, zipfile.ZipFile(out, "w") as target:
        for part in source.namelist():
            content, called = source.read(part), part
            for name in names:
                called = called.replace(f"word/{name}.xml", f"word/{name}2.xml")
                called = called.replace(f"word/_rels/{name}.xml", f"word/_rels/{name}2.xml")
                if part.endswith(".rels") or part == "[Content_Types].xml":
                    content = content.replace(f"{name}.xml".encode(), f"{name}2.xml".encode())
            target.writestr(called, content)
    _, usual = parsed(make_job, rota_docx(), media.DOCX)
    _, pages = parsed(make_job, out.getvalue(), media.DOCX)
    assert [page.text for page in pages] == [page.text for page in usual]


def test_no_entity_of_a_docx_is_lost(make_job: MakeJob) -> None:
    content = replaced(rota_docx(), "Nobody", "R&amp;D: 3 &lt; 5 &gt; 2, caf&#233; &#x4e2d; &quot;x&quot; nobody")
    _, pages = parsed(make_job, content, media.DOCX)
    assert 'R&D: 3 \\< 5 > 2, café 中 "x" nobody' in pages[0].text


def test_what_readers_wrote_in_the_margin_of_a_docx_comes_last(make_job: MakeJob) -> None:
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    comments = "".join(
        f'<w:comment w:id="{n}" w:author="{author}"><w:p><w:r><w:t>{said}</w:t></w:r></w:p></w:comment>'
        for n, (author, said) in enumerate([("Maud", "Which gate?"), ("", "The * one")])
    )
    content = with_notes(rota_docx(), {"comments": f"<w:comments {word}>{comments}</w:comments>"})
    _, pages = parsed(make_job, content, media.DOCX)
    assert pages[-1].text.endswith("Comments:\n\n- Maud: Which gate?\n- The \\* one")


def test_words_of_a_docx_are_not_joined_over_a_tab_a_line_end_or_a_hyphen(make_job: MakeJob) -> None:
    run = 'Nobody</w:t><w:tab/><w:t>came</w:t><w:cr/><w:t>to</w:t><w:ptab w:alignment="left"/><w:t>the re'
    content = replaced(rota_docx(), "Nobody", f"{run}</w:t><w:noBreakHyphen/><w:t>opening")
    _, pages = parsed(make_job, content, media.DOCX)
    assert "Nobody came to the re-opening" in " ".join(pages[0].text.split())


@pytest.mark.parametrize("line_above", ['w:type="separator" w:id="-1"', 'w:type="separator" w:id="1"'])
def test_every_note_of_a_docx_is_read(make_job: MakeJob, line_above: str) -> None:
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    said = {"foot": ["first", "second"], "end": ["third", "fourth"]}
    refer = "".join(
        f'Nobody</w:t></w:r><w:r><w:{kind}noteReference w:id="{number}"/></w:r><w:r><w:t>'
        for kind in said
        for number in (1, 2)
    )
    parts = {
        f"{kind}notes": f"<w:{kind}notes {word}><w:{kind}note {line_above}><w:p/></w:{kind}note>"
        + "".join(
            f'<w:{kind}note w:id="{number}"><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:{kind}note>'
            for number, text in enumerate(texts, start=1)
        )
        + f"</w:{kind}notes>"
        for kind, texts in said.items()
    }
    _, pages = parsed(make_job, with_notes(replaced(rota_docx(), "Nobody", refer), parts), media.DOCX)
    text = "\n".join(page.text for page in pages)
    assert re.findall(r"Nobody(\[\^\d\])", text) == ["[^1]", "[^2]", "[^3]", "[^4]"]
    assert set(re.findall(r"^(\[\^\d\]): (\w+)", text, re.MULTILINE)) == {
        ("[^1]", "first"),
        ("[^2]", "second"),
        ("[^3]", "third"),
        ("[^4]", "fourth"),
    }


def test_html_is_read_in_its_encoding_without_what_is_not_shown(make_job: MakeJob) -> None:
    page = "<html><head><title>Käse &amp; Wein</title><style>p{}</style></head><body><h1>Menü</h1><p>Brötchen</p>"
    title, (only,) = parsed(make_job, page.encode("cp1252"), media.HTML)
    assert title == "Käse & Wein"
    assert only.text == "# Menü\n\nBrötchen"


def test_an_html_table_and_list_are_markdown(make_job: MakeJob) -> None:
    title, (only,) = parsed(make_job, pumps_html(), media.HTML)
    assert title == "Pump house: questions and answers"
    assert "2. Prime for 40 seconds" in only.text
    assert "| Big Bess" in only.text


def test_an_image_inside_an_html_page_is_a_page(make_job: MakeJob) -> None:
    data = base64.b64encode(picture()).decode()
    _, pages = parsed(
        make_job, f'<p>Before</p><img alt="board" src="data:image/png;base64,{data}"><p>After</p>', media.HTML
    )
    assert [page.image is not None for page in pages] == [False, True, False]
    assert data[:40] not in pages[0].text + pages[2].text


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def pptx(*slides: str, image: bytes) -> bytes:
    """The least that is a presentation: each slide's one shape, and a picture on the first."""
    main = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
    art = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    rel = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "application/vnd.openxmlformats-officedocument.presentationml"
    numbers = range(1, len(slides) + 1)
    ids = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in numbers)
    links = "".join(f'<Relationship Id="rId{n}" Type="{rel}/slide" Target="slides/slide{n}.xml"/>' for n in numbers)
    picture = (
        '<p:pic><p:nvPicPr><p:cNvPr id="4" name="P" descr="the board"/><p:cNvPicPr/><p:nvPr/></p:nvPicPr><p:blipFill>'
        '<a:blip r:embed="rId5"/></p:blipFill><p:spPr><a:xfrm><a:off x="1" y="1"/><a:ext cx="9" cy="9"/></a:xfrm>'
        "</p:spPr></p:pic>"
    )
    files: dict[str, str | bytes] = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="png" ContentType="image/png"/>'
        f'<Override PartName="/ppt/presentation.xml" ContentType="{office}.presentation.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId1" '
        f'Type="{rel}/officeDocument" Target="ppt/presentation.xml"/></Relationships>',
        "ppt/presentation.xml": f'<p:presentation {main} xmlns:r="{rel}"><p:sldIdLst>{ids}</p:sldIdLst>'
        "</p:presentation>",
        "ppt/_rels/presentation.xml.rels": f'<Relationships xmlns="{package}/relationships">{links}</Relationships>',
        "ppt/slides/_rels/slide1.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId5" '
        f'Type="{rel}/image" Target="../media/image1.png"/></Relationships>',
        "ppt/media/image1.png": image,
    }
    for number, words in zip(numbers, slides, strict=True):
        shape = (
            '<p:sp><p:nvSpPr><p:cNvPr id="1" name="T"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/><p:txBody>'
            f"<a:p><a:r><a:t>{words}</a:t></a:r></a:p></p:txBody></p:sp>"
        )
        tree = f"<p:cSld><p:spTree>{shape}{picture if number == 1 else ''}</p:spTree></p:cSld>"
        files[f"ppt/slides/slide{number}.xml"] = f'<p:sld {main} {art} xmlns:r="{rel}">{tree}</p:sld>'
    return zipped(files)


def test_slides_are_pages_with_their_pictures_after_them(make_job: MakeJob) -> None:
    _, pages = parsed(make_job, pptx("Costs 5% &amp; more", "Second", image=picture()), media.PPTX)
    assert [page.text for page in pages] == ["## Costs 5% & more\n\n[Image: the board]", "", "## Second"]
    assert pages[1].image is not None


def test_xml_is_text_under_the_names_of_its_tags(make_job: MakeJob) -> None:
    title, (only,) = parsed(
        make_job,
        '<?xml version="1.0" encoding="iso-8859-1"?><m><title>T</title><s n="1">für <b>alle</b></s></m>'.encode(
            "latin-1"
        ),
        media.XML,
    )
    assert title == "T"
    assert only.text == "**title**: T\n\n**s**: für alle (n=1)"


def test_words_of_xml_are_not_joined_over_the_end_of_a_line(make_job: MakeJob) -> None:
    _, (only,) = parsed(
        make_job, "<doc><p>one<lb/>two<b>three</b>four<x:br xmlns:x='y'/> H<sub>2</sub>O</p></doc>", media.XML
    )
    assert only.text == "**p**: one twothreefour H2O"


@pytest.mark.parametrize("media_type", [media.XML, media.HTML])
def test_markup_with_entities_of_its_own_is_unsafe(make_job: MakeJob, media_type: str) -> None:
    with pytest.raises(RejectedInput, match="unsafe"):
        parsed(make_job, '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>', media_type)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_entities_are_found_in_any_encoding(make_job: MakeJob, encoding: str) -> None:
    bomb = '\ufeff<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><x>&b;</x>'
    with pytest.raises(RejectedInput, match="unsafe"):
        parsed(make_job, bomb.encode(encoding), media.XML)


def test_a_mail_is_its_headers_and_best_body(make_job: MakeJob) -> None:
    mail = (
        b"From: Ann <ann@example.org>\nTo: bob@example.org\nSubject: =?utf-8?q?Caf=C3=A9?=\nMIME-Version: 1.0\n"
        b"Content-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: multipart/alternative; boundary=C\n\n"
        b"--C\nContent-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\n"
        b"Die T=FCr klemmt.\n\nGr=FC=DFe\n--C\nContent-Type: text/html\n\n<p>Other</p>\n--C--\n--B\n"
        b"Content-Disposition: attachment; filename=plan.pdf\n\nx\n--B--\n"
    )
    title, (only,) = parsed(make_job, mail, media.EML)
    assert title == "Café"
    assert "**Attachments**: plan.pdf" in only.text
    assert "Die Tür klemmt.\n\nGrüße" in only.text
    assert "Other" not in only.text


def test_a_mail_of_html_only_is_converted(make_job: MakeJob) -> None:
    mail = b"From: a@b.c\nSubject: S\nContent-Type: text/html; charset=utf-8\n\n<p>Hello <b>you</b></p>"
    _, (only,) = parsed(make_job, mail, media.EML)
    assert "Hello **you**" in only.text


def test_rtf(make_job: MakeJob) -> None:
    _, (only,) = parsed(make_job, rb"{\rtf1\ansi\ansicpg1252 Hello \b bold\b0  caf\'e9\par Second\par}", media.RTF)
    assert only.text == "Hello **bold** café\n\nSecond"


def epub(chapters: dict[str, str]) -> bytes:
    """The least that is a book: its chapters by the names of their files, and by what its list calls them."""
    items = "".join(
        f'<item id="c{number}" href="{href}" media-type="application/xhtml+xml"/>'
        for number, href in enumerate(chapters.values())
    )
    spine = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    files = {
        "mimetype": media.EPUB,
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "OEBPS/book.opf": f'<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><manifest>{items}</manifest>'
        f"<spine>{spine}</spine></package>",
    } | {
        f"OEBPS/{name}": f'<html xmlns="http://www.w3.org/1999/xhtml"><body><p>In {number}</p></body></html>'
        for number, name in enumerate(chapters)
    }
    return zipped(files)


def test_chapters_are_found_however_their_names_are_written(make_job: MakeJob) -> None:
    chapters = {
        "plain.xhtml": "plain.xhtml",
        "ch 1.xhtml": "ch%201.xhtml",
        "über & ab.xhtml": "%C3%BCber%20%26%20ab.xhtml",
        "as%20is.xhtml": "as%20is.xhtml",
        "part one/ch 2.xhtml": "part%20one/ch%202.xhtml",
    }
    _, pages = parsed(make_job, epub(chapters), media.EPUB)
    assert re.findall(r"In \d", "\n".join(page.text for page in pages)) == [f"In {number}" for number in range(5)]


def ods(*rows: str) -> bytes:
    """The least that is a spreadsheet: rows as they stand in its XML."""
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table")
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", media.ODS)
        archive.writestr(
            "META-INF/manifest.xml",
            '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><m:file-entry m:full-path="/" '
            f'm:media-type="{media.ODS}"/></m:manifest>',
        )
        archive.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:body><office:spreadsheet><table:table table:name='Sluices'>"
            f"{''.join(rows)}</table:table></office:spreadsheet></office:body></office:document-content>",
        )
    return out.getvalue()


def ods_row(*words: str, times: int = 1) -> str:
    cells = "".join(
        f'<table:table-cell office:value-type="string"><text:p>{word}</text:p></table:table-cell>'
        if word
        else '<table:table-cell table:number-columns-repeated="3"/>'
        for word in words
    )
    return f'<table:table-row table:number-rows-repeated="{times}">{cells}</table:table-row>'


def test_a_long_gap_between_the_rows_of_a_sheet_costs_no_cell(make_job: MakeJob) -> None:
    content = ods(ods_row("top", "gate"), ods_row("", times=1_000_000), ods_row("bottom"), ods_row("twice", times=2))
    _, (only,) = parsed(make_job, content, media.ODS)
    rows = [line for line in only.text.split("\n") if line.startswith("|") and "---" not in line]
    assert [row.strip("| ") for row in rows] == ["top | gate", "", "bottom", "twice", "twice"]


@pytest.mark.parametrize(
    "repeated", [' table:number-rows-repeated="2"', " ", "<table:table-row>", "<table:table-cell/>", "a "]
)
def test_rows_that_never_end_take_no_time(repeated: str) -> None:
    began = time.process_time()
    odt.keep_text(ods("<table:table-row " + repeated * 50_000))
    assert time.process_time() - began < 2


def test_locked_damaged_and_empty_files(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput, match="password_required"):
        parsed(make_job, b"x", media.ENCRYPTED_OFFICE)
    with pytest.raises(RejectedInput, match="corrupt"):
        parsed(make_job, rota_docx()[:2000], media.DOCX)
    with pytest.raises(RejectedInput, match="corrupt"):
        parsed(make_job, "<a><b></a>", media.XML)
    _, (only,) = parsed(make_job, "<html><body></body></html>", media.HTML)
    assert only.blank


@pytest.mark.parametrize(
    "repeated",
    [
        "<script>x",
        "<title>x",
        "<!--",
        "<style",
        "![\\",
        "![](a",
        "<template ></template ",
        "<script></script>x<!-- -->",
    ],
)
def test_what_is_opened_again_and_again_takes_no_time(repeated: str) -> None:
    began = time.process_time()
    title, page = read_html(b"<html><p>Seen</p>" + repeated.encode() * 100_000)
    assert REFERENCE.sub("", page).startswith("<html><p>Seen</p>")
    docx = replaced(rota_docx(), "Nobody", f"Nobody {'&amp;>' * 100_000}")
    assert len(keep_text(docx)) > 1000
    assert title is None
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "page",
    [
        "".join(f"<p>word{n}\n" for n in range(300)),
        "".join(f"<p><font>word{n}</p>" for n in range(300)),
        "".join(f"<div>word{n}" for n in range(300)),
        "".join(f"<b>word{n}<br>" for n in range(300)),
        "".join(f"<o:p>word{n}" for n in range(300)),
        "<table><tr>" + "".join(f"<td>word{n}" for n in range(300)) + "</table>",
        "<table><colgroup><col><thead><tr><th>word0<tbody>" + "".join(f"<tr><td>word{n}" for n in range(1, 300)),
        "".join(f"<table><tr><td>word{n}" for n in range(300)),
        "".join(f"<ul><li>word{n}" for n in range(300)),
        "".join(f"<dl><dd>word{n}" for n in range(300)),
        "".join(f"<blockquote>word{n}<div>" for n in range(300)),
        "<div>" * 47 + "".join(f"<table><tr><td>word{n}" for n in range(300)),
        "<span>" * 1000 + " ".join(f"word{n}" for n in range(300)),
    ],
)
def test_no_word_of_html_is_lost_however_deep_it_lies_or_what_is_left_open(make_job: MakeJob, page: str) -> None:
    _, pages = parsed(make_job, f"<html><body>{page}<p>end", media.HTML)
    words = re.findall(r"word\d+|end", " ".join(page.text for page in pages))
    assert words == [f"word{n}" for n in range(300)] + ["end"]


@pytest.mark.parametrize("block", ["<pre>a\n  b</pre>", "<div>a</div>", "<h2>a</h2>", "<p>a</p>"])
def test_words_at_the_end_of_a_line_are_not_joined_with_the_element_after_it(make_job: MakeJob, block: str) -> None:
    _, (only,) = parsed(make_job, f"{block}\nSee from\n<b>stdio.h</b> on\n<i>page</i>\n<b>two</b>", media.HTML)
    assert only.text.endswith("See from **stdio.h** on *page* **two**")
    assert "a\n  b" in only.text or "pre" not in block


def test_words_of_two_blocks_in_a_cell_are_not_joined(make_job: MakeJob) -> None:
    cells = ["<h1>a</h1><h2>b</h2>", "a<p>b</p>c", "a<pre>b</pre>c", "a<h1>b</h1><div>c</div>d", "<p>a<b>b</b>c</p>"]
    rows = "".join(f"<tr><td>x{cell}" for cell in cells)
    _, (only,) = parsed(make_job, f"<table>{rows}</table>", media.HTML)
    found = [" ".join(line.strip("| ").split()) for line in only.text.split("\n") if "--" not in line]
    assert found == ["x a b", "xa b c", "xa b c", "xa b c d", "x a**b**c"]


def test_a_table_without_end_tags_is_a_table(make_job: MakeJob) -> None:
    page = "<table><thead><tr><th>Gate<th>Level<tbody><tr><td>North<td>1.80<tr><td>South<td>2.10</table>after"
    _, (only,) = parsed(make_job, page, media.HTML)
    assert only.text.split("\n\n") == [
        "| Gate  | Level |\n| ----- | ----- |\n| North | 1.80  |\n| South | 2.10  |",
        "after",
    ]


@pytest.mark.parametrize(
    "repeated", ["<div>", "<p><font>", "<b><p>", "<table><tr><td>", "<a href=x>", "<li><ul>", "</p>x", "<h1>", "<pre>"]
)
def test_html_that_leaves_everything_open_is_closed_in_no_time(repeated: str) -> None:
    began = time.process_time()
    closed = closed_html(f"<p>before {repeated * 50_000}deep")
    assert "before" in closed
    assert "deep" in closed
    assert time.process_time() - began < 20


def test_what_is_not_shown_is_left_out_of_html_however_it_is_written() -> None:
    page = b"a<SCRIPT x='1'>a<b</ScRiPt >b<!-- <title>no</title> -->c<title>One\n two</TITLE><title>B</title>d<meta x>e"
    assert read_html(page) == ("One two", "abcde")
    assert read_html(b"a<script>never closed") == (None, "a<script>never closed")


@pytest.mark.parametrize("properties", ["", '<w:pPr><w:jc w:val="both"/></w:pPr>'])
def test_a_drop_cap_belongs_to_its_word(make_job: MakeJob, properties: str) -> None:
    cap = '<w:p><w:pPr><w:framePr w:dropCap="drop" w:lines="3"/></w:pPr><w:r><w:t>T</w:t></w:r></w:p>'
    paragraph = f"<w:p>{properties}<w:r><w:t>ides rise.</w:t></w:r></w:p>"
    alone = cap.replace(">T<", ">Alone<")
    _, pages = parsed(
        make_job, replaced(rota_docx(), "<w:body>", f"<w:body>{cap}{paragraph}{alone}<w:tbl></w:tbl>"), media.DOCX
    )
    assert pages[0].text.strip().startswith("Tides rise.\n\nAlone")


@pytest.mark.parametrize(
    "repeated", ['<w:p> w:dropCap="drop"', ' w:dropCap="drop"', 'w:dropCap="drop"</w:p><w:p><w:pPr>']
)
def test_drop_caps_without_end_take_no_time(repeated: str) -> None:
    began = time.process_time()
    keep_text(replaced(rota_docx(), "Nobody", f"Nobody {repeated * 20_000}"))
    assert time.process_time() - began < 5


def test_cdata_in_xhtml_is_text(make_job: MakeJob) -> None:
    page = (
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><script>//<![CDATA[\nif (a < b) x();\n//'
        "]]></script><p>Open <![CDATA[at <2 m> & below]]> only.</p></body></html>"
    )
    _, (only,) = parsed(make_job, page, media.HTML)
    assert only.text.strip() == "Open at <2 m> & below only."


@pytest.mark.parametrize("start", ["<![CDATA[", "<![CDATA[]]><![CDATA["])
def test_cdata_without_an_end_is_read_in_linear_time(start: str) -> None:
    begun = time.process_time()
    read_html(f'<?xml version="1.0"?>{start * 200_000}'.encode())
    assert time.process_time() - begun < 5


def test_the_words_of_a_drawing_in_html_stand_where_it_stood(make_job: MakeJob) -> None:
    drawing = "<svg><g><text>Pump <tspan>7</tspan></text></g><foreignObject><div>R&amp;D</div></foreignObject></svg>"
    page = f"<html><body><p>Before.</p><table><tr><td>{drawing}</td><td>x</td></tr></table><p>After.</p></body></html>"
    _, (only,) = parsed(make_job, page, media.HTML)
    assert re.findall(r"Before|Pump 7|R&D|After", only.text) == ["Before", "Pump 7", "R&D", "After"]
    _, (alone,) = parsed(make_job, f'<svg xmlns="http://www.w3.org/2000/svg">{drawing[5:]}', media.HTML)
    assert "Pump 7" in alone.text
