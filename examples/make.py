"""Makes the example documents: what a team knows that keeps the tide gates of a harbour that isn't there.

Every file holds facts that the others don't, so that a search can be right or wrong. Nothing here needs a font, a
program or a library that Tidegate doesn't bring: PDFs and DOCX are written by hand, images drawn with Pillow. The
Chinese and Korean letters of scans are in ``.fonts``: Noto Sans SC and KR, less all that the scans don't say.
The same Pillow makes the same bytes. Run it as ``python examples/make.py [FOLDER]``; ``--check`` compares instead.
"""

from __future__ import annotations

import io
import random
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

HERE = Path(__file__).parent

# --- a digital PDF with a table --------------------------------------------------------------------------------------


class Pdf:
    """A writer for plain PDFs: standard fonts, text, rules and images; A4, points, origin at the bottom left."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._objects: list[bytes] = []
        self._pages: list[int] = []
        self._fonts = [self.add(_font(name)) for name in ("Helvetica", "Helvetica-Bold")]

    def add(self, body: bytes) -> int:
        self._objects.append(body)
        return len(self._objects) + 2

    def stream(self, data: bytes, entries: str = "") -> int:
        return self.add(f"<< /Length {len(data)} {entries} >>\nstream\n".encode() + data + b"\nendstream")

    def page(self, drawing: str, images: Sequence[int] = ()) -> None:
        content = self.stream(drawing.encode("cp1252"))
        named = " ".join(f"/I{index} {number} 0 R" for index, number in enumerate(images))
        fonts = f"/F0 {self._fonts[0]} 0 R /F1 {self._fonts[1]} 0 R"
        self._pages.append(
            self.add(
                f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {content} 0 R "
                f"/Resources << /Font << {fonts} >> /XObject << {named} >> >> >>".encode()
            )
        )

    def write(self) -> bytes:
        kids = " ".join(f"{number} 0 R" for number in self._pages)
        info = self.add(f"<< /Title ({self._title}) /Producer (examples/make.py) >>".encode("cp1252"))
        first = [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            f"<< /Type /Pages /Kids [{kids}] /Count {len(self._pages)} >>".encode(),
        ]
        out = io.BytesIO()
        out.write(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
        places = []
        for number, body in enumerate([*first, *self._objects], start=1):
            places.append(out.tell())
            out.write(f"{number} 0 obj\n".encode() + body + b"\nendobj\n")
        start = out.tell()
        out.write(f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n".encode())
        out.writelines(f"{place:010d} 00000 n \n".encode() for place in places)
        out.write(f"trailer\n<< /Size {len(places) + 1} /Root 1 0 R /Info {info} 0 R >>\n".encode())
        out.write(f"startxref\n{start}\n%%EOF\n".encode())
        return out.getvalue()


def _font(name: str) -> bytes:
    return f"<< /Type /Font /Subtype /Type1 /BaseFont /{name} /Encoding /WinAnsiEncoding >>".encode()


def _text(x: float, y: float, size: float, words: str, *, bold: bool = False) -> str:
    escaped = words.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return f"BT /F{int(bold)} {size:g} Tf {x:g} {y:g} Td ({escaped}) Tj ET\n"


def _lines(x: float, y: float, lines: Sequence[str], size: float = 10.5, leading: float = 15) -> str:
    return "".join(_text(x, y - index * leading, size, line) for index, line in enumerate(lines))


def _table(x: float, y: float, widths: Sequence[float], rows: Sequence[Sequence[str]]) -> str:
    drawn, height = "0.5 w\n", 18
    for index, row in enumerate(rows):
        top, left = y - index * height, x
        drawn += f"{x:g} {top:g} m {x + sum(widths):g} {top:g} l S\n"
        for width, cell in zip(widths, row, strict=True):
            drawn += _text(left + 5, top - 13, 9.5, cell, bold=index == 0)
            left += width
    bottom = y - len(rows) * height
    return drawn + f"{x:g} {bottom:g} m {x + sum(widths):g} {bottom:g} l S\n"


def handbook_pdf() -> bytes:
    pdf = Pdf("Tide Gate Handbook")
    running = _text(60, 800, 8, "Saltmere Harbour Office - Tide Gate Handbook, 4th edition")
    rows = [
        ("Gate", "Sill level", "Opens below", "Closes above", "Time to open"),
        ("North gate", "-0.40 m", "1.85 m", "2.10 m", "6 min"),
        ("South gate", "-0.25 m", "1.70 m", "2.05 m", "4 min"),
        ("Cobbler's Sluice", "0.10 m", "1.35 m", "1.60 m", "11 min"),
        ("Eel Pass", "0.55 m", "always open", "2.60 m", "1 min"),
    ]
    pdf.page(
        running
        + _text(60, 752, 22, "Tide Gate Handbook", bold=True)
        + _text(60, 712, 14, "1 Opening and closing levels", bold=True)
        + _lines(
            60,
            688,
            [
                "All levels are metres above chart datum, read at the outer gauge on Lantern Quay. A gate is",
                "opened when the outer level has stayed below its opening level for ten minutes, and closed as",
                "soon as its closing level is reached on a rising tide.",
            ],
        )
        + _table(60, 630, [120, 80, 90, 95, 90], rows)
        + _lines(
            60,
            515,
            [
                "The north gate must never be moved while the dredger Marigold is inside the basin: her wake",
                "has lifted the seal twice. Ask the dredging master on the quay telephone first.",
            ],
        )
        + _text(300, 40, 8, "1")
    )
    pdf.page(
        running
        + _text(60, 752, 14, "2 Closing a gate by hand", bold=True)
        + _lines(
            60,
            728,
            [
                "When the hydraulic pressure falls below 85 bar, the gates no longer close by themselves.",
                "Take the crank from the red cabinet in the gatehouse, engage it on the lower shaft, and turn it",
                "clockwise. The north gate takes 240 turns; two people change over every 60 turns.",
            ],
        )
        + _text(60, 660, 14, "3 Who decides", bold=True)
        + _lines(
            60,
            636,
            [
                "The keeper on duty decides alone up to a forecast surge of 0.8 m. Above that the harbour",
                "master decides, and the flood warden of Saltmere is told before the first gate moves.",
            ],
        )
        + _text(300, 40, 8, "2")
    )
    return pdf.write()


# --- a scanned PDF: nothing but a picture of a page ------------------------------------------------------------------

REPORT_1987 = """SALTMERE HARBOUR TRUST

Report on the inspection of the Cobbler's Sluice
after the storm of 16 October 1987

The sluice held through the night, although the sea
stood 0.9 m above the coping for two hours. The
lifting chain had stretched by a hand's breadth and
was condemned. A new chain of 22 mm links was ordered
from the Tregarth foundry the same week.

The oak paddle is sound but for the lowest plank,
where shipworm was found to a depth of 15 mm. The
plank is to be replaced by greenheart before spring.

The masonry of the east abutment shows a crack of
3 mm, which was marked with glass tell-tales. They
are to be read on the first Monday of every month.

          Orla Venn, Inspecting Engineer
          Saltmere, 2 November 1987"""


def scan_pdf() -> bytes:
    rng = random.Random(1987)  # noqa: S311 -- paper, not secrets
    page = Image.new("L", (1000, 1414), 243)
    draw = ImageDraw.Draw(page)
    draw.multiline_text((105, 150), REPORT_1987, font=ImageFont.load_default(29), fill=38, spacing=15)
    page = page.rotate(0.6, Image.Resampling.BICUBIC, fillcolor=243).filter(ImageFilter.GaussianBlur(0.6))
    page = ImageChops.subtract(page, _grain(rng, page.size, strength=14))
    return _scanned(page, quality=42)


def _scanned(page: Image.Image, quality: int) -> bytes:
    """A PDF of one page that is nothing but this picture."""
    jpeg = io.BytesIO()
    page.save(jpeg, "JPEG", quality=quality)
    pdf = Pdf("")
    image = pdf.stream(
        jpeg.getvalue(),
        f"/Type /XObject /Subtype /Image /Width {page.width} /Height {page.height} "
        "/ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /DCTDecode",
    )
    pdf.page("q 595 0 0 842 0 0 cm /I0 Do Q", [image])
    return pdf.write()


def _grain(rng: random.Random, size: tuple[int, int], strength: int) -> Image.Image:
    """Paper and lens: coarse noise, the same for the same seed."""
    small = size[0] // 2, size[1] // 2
    noise = Image.frombytes("L", small, rng.randbytes(small[0] * small[1]))
    return noise.point(lambda value: value * strength // 255).resize(size, Image.Resampling.BILINEAR)


# --- the same in Chinese ----------------------------------------------------------------------------------------------

CHINESE_FONT = HERE / ".fonts" / "noto-sans-sc-notice.otf"

NOTICE_1994 = """潮闸风暴检查报告

一九九四年八月风暴之夜，外港水位
升至三点二米，东闸未受损坏。

升降链条已被拉长，须在十二月之前
更换为不锈钢链条。

值班员每两小时记录一次潮位。

检查员：林秋月"""


def chinese_scan_pdf() -> bytes:
    return _notice_scan(NOTICE_1994, CHINESE_FONT, seed=1994)


# --- a scan in Korean -------------------------------------------------------------------------------------------------

KOREAN_FONT = HERE / ".fonts" / "noto-sans-kr-notice.otf"

FERRY = """연락선 운항 안내

삼월부터 시월까지 연락선은 매시 정각에
등대 부두에서 떠난다.

안개가 짙은 날에는 종을 세 번 울리고
운항을 멈춘다.

자전거는 두 대까지 돈을 받지 않는다.

선장: 한보름"""


def korean_scan_pdf() -> bytes:
    return _notice_scan(FERRY, KOREAN_FONT, seed=2003)


def _notice_scan(text: str, face: Path, seed: int) -> bytes:
    rng = random.Random(seed)  # noqa: S311 -- paper, not secrets
    page = Image.new("L", (800, 1131), 240)
    ImageDraw.Draw(page).multiline_text((90, 120), text, font=ImageFont.truetype(face, 36), fill=45, spacing=16)
    page = page.rotate(-0.5, Image.Resampling.BICUBIC, fillcolor=240).filter(ImageFilter.GaussianBlur(0.5))
    return _scanned(ImageChops.subtract(page, _grain(rng, page.size, strength=12)), quality=42)


# --- a photo of a notice ---------------------------------------------------------------------------------------------

NOTICE = """NOTICE

Slipway closed for dredging
from 3 to 9 March

Boats wait at the pontoon by
Lantern Quay. Fuel is sold
there from 7 to 11 only.

Harbour master: 01632 960147"""


def notice_png() -> bytes:
    rng = random.Random(39)  # noqa: S311 -- paper, not secrets
    board = Image.new("L", (760, 640), 226)
    draw = ImageDraw.Draw(board)
    draw.rectangle((14, 14, 745, 625), outline=70, width=5)
    draw.multiline_text((70, 52), NOTICE, font=ImageFont.load_default(42), fill=30, spacing=9)
    wall = Image.new("L", (900, 760), 118)
    # The board seen a little from the left and from below: each corner of the photo, as a point of the board's plane.
    seen = board.transform(
        wall.size,
        Image.Transform.QUAD,
        (-70, -62, -52, 700, 850, 716, 822, -84),
        Image.Resampling.BICUBIC,
        fillcolor=118,
    )
    light = Image.linear_gradient("L").resize(wall.size).rotate(180).point(lambda value: 178 + value * 77 // 255)
    photo = ImageChops.multiply(seen, light).filter(ImageFilter.GaussianBlur(0.7))
    photo = ImageChops.subtract(photo, _grain(rng, photo.size, strength=9))
    return _png(photo.point(lambda value: value & 0xF0))


def _png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=9)
    return out.getvalue()


# --- a DOCX ----------------------------------------------------------------------------------------------------------

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_DRAWINGML = "http://schemas.openxmlformats.org/drawingml/2006"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_WORDML = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


BOARD = """RADIO: VHF CHANNEL 74
CALL SIGN: SALTMERE GATE"""


def rota_docx() -> bytes:
    board = Image.new("1", (520, 150), 1)
    draw = ImageDraw.Draw(board)
    draw.rectangle((2, 2, 517, 147), outline=0, width=3)
    draw.multiline_text((24, 22), BOARD, fill=0, font=ImageFont.load_default(34), spacing=18)
    body = [
        _p("Night Watch", "Title"),
        _p("Rota", "Heading1"),
        _p("The watch begins at 21:30 and ends when the relief has signed the log. Nobody keeps two nights in a row."),
        _docx_table(
            [
                ("Night", "Keeper", "Stand-by"),
                ("Monday", "Idris Penhale", "Maud Okafor"),
                ("Wednesday", "Maud Okafor", "Jory Tamm"),
                ("Friday", "Jory Tamm", "Idris Penhale"),
                ("Sunday", "Lowenna Bright", "Maud Okafor"),
            ]
        ),
        _p("Radio", "Heading1"),
        _p("What is said on the radio is written down with the minute. The board beside the set says:"),
        _picture("The board beside the radio"),
        _p("Rounds", "Heading1"),
        _p(
            "Walk the quay at 23:00 and 03:00. Knock on the door of the pump house: a hollow sound means that the sump "
            "is dry & the float switch is stuck. In fog below 200 m sound the horn every two minutes, long and short."
        ),
    ]
    return _docx(body, {"word/media/image1.png": _png(board)})


def chinese_docx() -> bytes:
    return _docx(
        [
            _p("泵房操作手册", "Title"),
            _p("启动柴油泵", "Heading1"),
            _p(
                "先打开海水阀，直到看见黄色标记。预热四十秒，时间不能更长，否则会烧坏预热塞。然后转动钥匙，让发动机空转三分钟。"
            ),
            _p("水泵", "Heading1"),
            _docx_table([("水泵", "驱动", "每秒升数"), ("大贝丝", "柴油", "310"), ("小贝丝", "电力", "95")]),
            _p("气味", "Heading1"),
            _p("地下室有硫磺味时，说明充电器停在强充位置。请改为浮充，并通风一刻钟，在此之前不得点火。"),
        ]
    )


def _docx(body: Sequence[str], images: Mapping[str, bytes] | None = None) -> bytes:
    """A document of these elements; the first image, if any, is ``rId2``."""
    images = images or {}
    pictures = [(f"rId{n}", "image", name.removeprefix("word/")) for n, name in enumerate(images, start=2)]
    files: dict[str, str | bytes] = {
        "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/><Default Extension="png" ContentType="image/png"/>'
        f'<Override PartName="/word/document.xml" ContentType="{_WORDML}.document.main+xml"/>'
        f'<Override PartName="/word/styles.xml" ContentType="{_WORDML}.styles+xml"/></Types>',
        "_rels/.rels": _relations(("rId1", "officeDocument", "word/document.xml")),
        "word/document.xml": f"{_XML}<w:document {_W}><w:body>{''.join(body)}<w:sectPr/></w:body></w:document>",
        "word/styles.xml": f"{_XML}<w:styles {_W}>{_style('Title')}{_style('Heading1', 0)}</w:styles>",
        "word/_rels/document.xml.rels": _relations(("rId1", "styles", "styles.xml"), *pictures),
        **images,
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name, content in files.items():
            package.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


def _p(words: str, style: str = "") -> str:
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{styled}<w:r><w:t xml:space="preserve">{words}</w:t></w:r></w:p>'


def _style(name: str, level: int | None = None) -> str:
    outline = f'<w:pPr><w:outlineLvl w:val="{level}"/></w:pPr>' if level is not None else ""
    return f'<w:style w:type="paragraph" w:styleId="{name}"><w:name w:val="{name}"/>{outline}</w:style>'


def _docx_table(rows: Sequence[Sequence[str]]) -> str:
    cells = ("".join(f"<w:tc>{_p(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def _picture(description: str) -> str:
    return (
        f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{_DRAWINGML}/wordprocessingDrawing">'
        f'<wp:extent cx="4953000" cy="1428750"/><wp:docPr id="1" name="Picture 1" descr="{description}"/>'
        f'<a:graphic xmlns:a="{_DRAWINGML}/main"><a:graphicData uri="{_DRAWINGML}/picture">'
        f'<pic:pic xmlns:pic="{_DRAWINGML}/picture"><pic:nvPicPr><pic:cNvPr id="1" name="image1.png"/><pic:cNvPicPr/>'
        f'</pic:nvPicPr><pic:blipFill><a:blip r:embed="rId2" xmlns:r="{_R}"/></pic:blipFill><pic:spPr/></pic:pic>'
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )


def _relations(*relations: tuple[str, str, str]) -> str:
    items = (f'<Relationship Id="{key}" Type="{_R}/{kind}" Target="{target}"/>' for key, kind, target in relations)
    return f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">{"".join(items)}</Relationships>'


# --- HTML and Markdown -----------------------------------------------------------------------------------------------

_PUMPS = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Pump house: questions and answers</title></head>
<body>
<h1>Pump house</h1>
<h2>How do I start the diesel pump?</h2>
<ol>
  <li>Open the sea cock until the yellow mark is up.</li>
  <li>Prime for 40 seconds, no longer: the glow plugs burn out.</li>
  <li>Turn the key, and let the engine warm up for three minutes before you engage the clutch.</li>
</ol>
<h2>How much does it move?</h2>
<table>
  <tr><th>Pump</th><th>Drive</th><th>Litres a second</th></tr>
  <tr><td>Big Bess</td><td>diesel</td><td>310</td></tr>
  <tr><td>Little Bess</td><td>electric</td><td>95</td></tr>
</table>
<h2>Why does the cellar smell of sulphur?</h2>
<p>The batteries gas when the charger is left on <em>boost</em>. Switch it to <em>float</em> and air the room for a
quarter of an hour before anybody lights anything.</p>
</body>
</html>
"""

_INCIDENT = """# Incident review: blocked trash screen

Date: 14 November 2025. Written by Lowenna Bright, read by all keepers.

## What happened

At 04:10 the inner basin rose although both gates were shut. A raft of kelp, torn off by the westerly gale, had blocked
the trash screen of the south culvert. The alarm came 25 minutes late because the differential gauge was set to
0.30 m instead of 0.12 m.

## What we changed

- The differential alarm now sounds at 0.12 m.
- The rake is kept in the gatehouse, not in the boat shed.
- After a gale from the west the screen is raked at every low water for two days.

## What it cost

| Item | Pounds |
| --- | ---: |
| Flooded cellar of the Net Loft | 2,350 |
| Overtime | 410 |
| New gauge cable | 86 |
"""


def pumps_html() -> bytes:
    return _PUMPS.encode()


def incident_md() -> bytes:
    return _INCIDENT.encode()


FILES: dict[str, Callable[[], bytes]] = {
    "tide-gate-handbook.pdf": handbook_pdf,
    "sluice-inspection-1987.pdf": scan_pdf,
    "night-watch.docx": rota_docx,
    "slipway-notice.png": notice_png,
    "pump-house.html": pumps_html,
    "incident-2025-11-14.md": incident_md,
    "storm-inspection-zh.pdf": chinese_scan_pdf,
    "ferry-notice-ko.pdf": korean_scan_pdf,
    "pump-house-zh.docx": chinese_docx,
}


def make(folder: Path) -> None:
    """Write every example into ``folder``."""
    for name, maker in FILES.items():
        (folder / name).write_bytes(maker())


def main(words: Sequence[str]) -> int:
    """Make the files, or with ``--check`` say which of the committed ones differ."""
    if "--check" in words:
        with tempfile.TemporaryDirectory() as fresh:
            make(Path(fresh))
            differing = [name for name in FILES if (HERE / name).read_bytes() != (Path(fresh) / name).read_bytes()]
        print("\n".join(f"{name} differs from what make.py makes" for name in differing) or "all as made")
        return 1 if differing else 0
    make(Path(words[0]) if words else HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
