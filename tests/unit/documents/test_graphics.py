"""What charts and diagrams of Office documents say is read with the slide or text that shows them."""

from __future__ import annotations

import io
import zipfile

from examples.make import rota_docx
from pipeline.documents import media
from tests.unit.documents.conftest import MakeJob
from tests.unit.documents.test_office import parsed, picture, pptx

DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def chart() -> str:
    def points(*values: object) -> str:
        return "".join(f'<c:pt idx="{at}"><c:v>{value}</c:v></c:pt>' for at, value in enumerate(values))

    def series(name: str, *values: float) -> str:
        return (
            f"<c:ser><c:tx><c:strRef><c:f>Sheet1!$B$1</c:f><c:strCache>{points(name)}</c:strCache></c:strRef></c:tx>"
            f"<c:cat><c:strRef><c:strCache>{points('North | gate', 'South gate')}</c:strCache></c:strRef></c:cat>"
            f"<c:val><c:numRef><c:numCache>{points(*values)}</c:numCache></c:numRef></c:val></c:ser>"
        )

    title = "<c:title><c:tx><c:rich><a:p><a:r><a:t>Openings</a:t></a:r></a:p></c:rich></c:tx></c:title>"
    return (
        f'<c:chartSpace xmlns:c="{DRAWING}/chart" xmlns:a="{DRAWING}/main"><c:chart>{title}<c:plotArea><c:barChart>'
        f"{series('May', 19, 21.5)}{series('June', 7)}</c:barChart></c:plotArea></c:chart></c:chartSpace>"
    )


def diagram() -> str:
    def point(kind: str, words: str) -> str:
        return f'<d:pt modelId="1"{kind}><d:t><a:p><a:r><a:t>{words}</a:t></a:r></a:p></d:t></d:pt>'

    points = point("", "Close the sill") + point(' type="pres"', "unseen") + point(' type="node"', "Pump")
    return (
        f'<d:dataModel xmlns:d="{DRAWING}/diagram" xmlns:a="{DRAWING}/main"><d:ptLst>{points}</d:ptLst></d:dataModel>'
    )


def showing(package: bytes, part: str, folder: str) -> bytes:
    """The same with a chart and a diagram that a part refers to."""
    links = "".join(
        f'<Relationship Id="rId{kind}" Type="{RELATIONS}/{kind}" Target="{target}"/>'
        for kind, target in (("chart", "../charts/chart1.xml"), ("diagramData", "../diagrams/data1.xml"))
    )
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == part:
                content = content.replace(b"</Relationships>", f"{links}</Relationships>".encode())
            target.writestr(name, content)
        target.writestr(f"{folder}charts/chart1.xml", chart())
        target.writestr(f"{folder}diagrams/data1.xml", diagram())
    return out.getvalue()


SAID = (
    "Openings\n\n|  | May | June |\n| --- | --- | --- |\n| North \\| gate | 19 | 7 |\n| South gate | 21.5 |  |\n\n"
    "- Close the sill\n- Pump"
)


def test_a_slide_says_what_its_chart_and_its_diagram_say(make_job: MakeJob) -> None:
    content = showing(pptx("Gates", "Second", image=picture()), "ppt/slides/_rels/slide1.xml.rels", "ppt/")
    _, pages = parsed(make_job, content, media.PPTX)
    assert SAID in "\n\n".join(page.text for page in pages[:-1])
    assert pages[-1].text == "## Second"


def test_a_docx_says_it_after_its_text(make_job: MakeJob) -> None:
    content = showing(rota_docx(), "word/_rels/document.xml.rels", "")
    _, pages = parsed(make_job, content, media.DOCX)
    assert pages[-1].text.rstrip().endswith(SAID)


def test_a_bar_in_a_cell_of_a_slide_is_no_end_of_it(make_job: MakeJob) -> None:
    def row(*cells: str) -> str:
        inner = "".join(f"<a:tc><a:txBody><a:p><a:r><a:t>{cell}</a:t></a:r></a:p></a:txBody></a:tc>" for cell in cells)
        return f"<a:tr>{inner}</a:tr>"

    table = (
        "x|y</a:t></a:r></a:p></p:txBody></p:sp><p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id='7' name='t'/>"
        "<p:cNvGraphicFramePr/><p:nvPr/></p:nvGraphicFramePr><a:graphic>"
        f"<a:graphicData uri='{DRAWING}/table'><a:tbl>{row('Gate', 'Opens')}{row('a|b', '6')}</a:tbl></a:graphicData>"
        "</a:graphic></p:graphicFrame><p:sp><p:txBody><a:p><a:r><a:t>after"
    )
    _, pages = parsed(make_job, pptx("First", table, image=picture()), media.PPTX)
    assert "| Gate | Opens |\n| --- | --- |\n| a\\|b | 6 |" in pages[-1].text
    assert "x|y" in pages[-1].text
